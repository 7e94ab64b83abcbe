"""Iterators, which can be read only once, are read only once.

A parameter typed `Iterable` takes a generator, of which a second reader gets nothing; mypy does not
see that. A function that reads it again asks for a `Collection` or a `Sequence`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import tuner

ROOT = Path(tuner.__file__).parent
ONE_SHOT_TYPES = {"Iterable", "Iterator", "Generator"}
ONE_SHOT_CALLS = {"map", "filter", "zip", "iter", "reversed", "enumerate", "chain"}
STEPS = {"next", "islice"}  # calls that read on where the last one ended, as intended
AGAIN = 2  # reads that one in a loop stands for
Function = ast.FunctionDef | ast.AsyncFunctionDef
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def read_again(source: str) -> list[str]:
    """Return `line: function(name)` of whatever a function may read twice."""
    functions = [one for one in ast.walk(ast.parse(source)) if isinstance(one, Function)]
    return [
        f"{function.lineno}: {function.name}({name})"
        for function in functions
        for name, body in one_shot_names(function)
        if most_reads(body, name) > 1
    ]


def one_shot_names(function: Function) -> Iterator[tuple[str, Sequence[ast.stmt]]]:
    """Yield parameters and local names of iterators, with the statements that may read them."""
    signature = function.args
    for one in (*signature.posonlyargs, *signature.args, *signature.kwonlyargs):
        if one.annotation is not None and is_one_shot_type(one.annotation):
            yield one.arg, function.body
    for block in blocks(function):
        for at, statement in enumerate(block):
            match statement:
                case ast.Assign([ast.Name(name)], value) if is_one_shot_value(value):
                    yield name, block[at + 1 :]


def blocks(function: Function) -> Iterator[Sequence[ast.stmt]]:
    for node in ast.walk(function):
        for field in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, field, None), list):
                yield block


def is_one_shot_type(annotation: ast.expr) -> bool:
    """Return whether it may be an `Iterable`, as `Iterable[int] | None`; a tuple of them is not."""
    match annotation:
        case ast.BinOp(left, ast.BitOr(), right):
            return is_one_shot_type(left) or is_one_shot_type(right)
        case ast.Subscript(ast.Name(name)) | ast.Name(name):
            return name in ONE_SHOT_TYPES
    return False


def is_one_shot_value(value: ast.expr) -> bool:
    match value:
        case ast.GeneratorExp():
            return True
        case ast.Call(ast.Name(name)):
            return name in ONE_SHOT_CALLS
    return False


def most_reads(statements: Sequence[ast.stmt], name: str) -> int:
    """Return how often `name` is read at most on a way to its next binding or the end."""
    if not statements:
        return 0
    first, *rest = statements
    match first:
        case ast.If(test, body, orelse):
            ways = (way if leaves(way) else [*way, *rest] for way in (body, orelse))
            return reads(test, name) + max(most_reads(way, name) for way in ways)
        case ast.With(items, body):
            return sum(reads(one, name) for one in items) + most_reads([*body, *rest], name)
        case ast.Assign([ast.Name(bound)], value) if bound == name:
            return reads(value, name)
    return reads(first, name) + most_reads(rest, name)


def leaves(statements: Sequence[ast.stmt]) -> bool:
    return bool(statements) and isinstance(
        statements[-1], (ast.Return, ast.Raise, ast.Continue, ast.Break)
    )


def reads(node: ast.AST, name: str) -> int:
    """Return how often a part of a function reads `name`; what is repeated counts as `AGAIN`."""
    match node:
        case ast.Name(found, ast.Load()):
            return int(found == name)
        case ast.Call(ast.Name(called)) if called in STEPS:
            return 0
    once = list(ast.iter_child_nodes(node))
    often = list[ast.AST]()
    if isinstance(node, (ast.For, ast.AsyncFor)):
        once, often = [node.iter, *node.orelse], list(node.body)
    elif isinstance(node, ast.While):
        once, often = list(node.orelse), [node.test, *node.body]
    elif isinstance(node, COMPREHENSIONS):
        first = node.generators[0].iter
        once, often = [first], [one for one in comprehension_parts(node) if one is not first]
    elif isinstance(node, (ast.Lambda, *Function.__args__)):
        once, often = [], once
    return sum(reads(one, name) for one in once) + AGAIN * sum(reads(one, name) for one in often)


def comprehension_parts(node: ast.AST) -> Iterator[ast.AST]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.comprehension):
            yield from (part.iter, *part.ifs)
        else:
            yield part


@pytest.mark.parametrize(
    "body",
    [
        "return [one for one in KNOWN if one in set(names)]",
        "return [(a, b) for a in KNOWN for b in names]",
        "return sum(names) / len(list(names))",
        "if names:\n        return list(names)",
        "for one in KNOWN:\n        print(one in names)",
        "return sorted(KNOWN, key=lambda one: one in names)",
        "own = (one for one in names)\n    return max(own), min(own)",
        "while KNOWN:\n        print(list(names))",
    ],
)
def test_a_second_reader_is_found(body: str) -> None:
    assert read_again(f"def f(names: Iterable[str]):\n    {body}\n")


@pytest.mark.parametrize(
    "body",
    [
        "return [one for one in names if one in KNOWN]",
        "names = tuple(names)\n    return max(names), min(names)",
        "if KNOWN:\n        return list(names)\n    return sum(names)",
        "return next(names), next(names)",
    ],
)
def test_a_single_reader_is_fine(body: str) -> None:
    assert not read_again(f"def f(names: Iterator[str]):\n    {body}\n")


def test_nothing_reads_an_iterator_twice() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{where}"
        for path in sorted(ROOT.rglob("*.py"))
        for where in read_again(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
