"""Each constant has a line of its own, with its own comment and unit."""

from __future__ import annotations

import ast

import pytest

from tests.conftest import ROOT

FOLDERS = ("tuner", "tests")


def has_number(node: ast.expr) -> bool:
    """Return whether an expression is made of numbers and names, without a call."""
    parts = list(ast.walk(node))
    return not any(isinstance(part, ast.Call) for part in parts) and any(
        isinstance(part, ast.Constant) and type(part.value) in (int, float) for part in parts
    )


def is_shared_line(node: ast.stmt) -> bool:
    """Return whether a statement assigns several numbers, or on several lines, to constants."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            are_constants = all(isinstance(name, ast.Name) and name.id.isupper() for name in names)
            is_long = (node.end_lineno or 0) > node.lineno
            return are_constants and (is_long or any(map(has_number, values)))
    return False


def shared_lines(code: str) -> list[int]:
    """Return the lines of a module that assign several constants."""
    return [node.lineno for node in ast.parse(code).body if is_shared_line(node)]


def test_constants_do_not_share_a_line() -> None:
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    found = [(file, line) for file in files for line in shared_lines(file.read_text("utf-8"))]
    assert [f"{file.relative_to(ROOT)}, line {line}" for file, line in found] == []


@pytest.mark.parametrize(
    ("code", "is_shared"),
    [
        ("A, B = 5, 0.02  # iterations; relative step", True),
        ("A, B = (5,), 1 << 20", True),
        ("_A, _B = 5, 'unit'", True),
        ("A, B = (\n 'one',\n 'two',\n)", True),
        ("A = 5  # iterations\nB = 0.02", False),
        ("A = (5, 0.02)", False),
        ("BCAST, REDUCE = Collective.BCAST, Collective.REDUCE", False),
        ("RING, TREE = 'ring', 'tree'", False),
        ("LL, SIMPLE = PROTOCOLS = ('LL', 'Simple')", False),
        ("READ, WRITE = range(2)", False),
        ("RING, TREE = AlgorithmChoice('ring', {'segment': 1}), AlgorithmChoice('tree')", False),
        ("world, size = COMM, 5", False),
    ],
)
def test_shared_lines_are_found(code: str, is_shared: bool) -> None:
    assert bool(shared_lines(code)) == is_shared
