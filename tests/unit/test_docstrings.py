"""Docstrings document fields and parameters that exist.

An entry is a line of names, two or more spaces and their meaning; lines of one block have their
meanings in one column:

    shape       nodes and ranks per node
    low, high   ends of the interval, in seconds
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import tuner

ROOT = Path(tuner.__file__).parent
NAMES = r"[A-Za-z_]\w*(?:, [A-Za-z_]\w*)*,?"
ENTRY = re.compile(rf"( *){NAMES} {{2,}}(?=\S)")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Classes = dict[str, list[ast.ClassDef]]


def block_names(block: str) -> Iterator[str]:
    """Yield the names that a block of lines documents."""
    lines = block.splitlines()
    first = next((match for match in map(ENTRY.match, lines) if match), None)
    if first is None:
        return
    indent, column = len(first[1]), first.end()
    for line in lines:
        head = line[indent:column]
        is_entry = not head.startswith(" ") and line.ljust(column)[column - 1] == " "
        if is_entry and re.fullmatch(NAMES, head.strip()):
            yield from re.findall(r"\w+", head)


def documented(node: ast.ClassDef | Function) -> set[str]:
    """Return the names that an object's docstring documents."""
    blocks = re.split(r"\n\s*\n", ast.get_docstring(node) or "")
    return {name for block in blocks for name in block_names(block)}


def parameters(function: Function) -> set[str]:
    """Return the names of a function's parameters."""
    return {node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg)}


def spoken_of(function: Function) -> set[str]:
    """Return what a function's docstring can document: parameters, keys and choices it handles."""
    names = parameters(function)
    for node in ast.walk(function):
        match node:
            case ast.Constant(value=str(text)) if text.isidentifier():
                names.add(text)
            case ast.Name(id=name) if name.isupper():
                names.add(name)
            case ast.keyword(arg=str(name)):
                names.add(name)
    return names


def members(node: ast.ClassDef, classes: Classes) -> set[str]:
    """Return the fields, attributes, methods and arguments of a class and of its bases."""
    names = set[str]()
    for part in node.body:
        match part:
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names |= {part.name, *attributes(part)}
                names |= parameters(part) if part.name == "__init__" else set()
    for base in map(ast.unparse, node.bases):
        name = base.split("[")[0].rpartition(".")[2]
        names.update(*(members(other, classes) for other in classes[name] if other is not node))
    return names


def attributes(method: Function) -> set[str]:
    """Return the attributes of `self` that a method sets."""
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    }


def wrong_entries(trees: dict[str, ast.Module]) -> list[str]:
    """Return the entries of docstrings that document nothing, each with its module and object."""
    nodes = [(module, node) for module, tree in trees.items() for node in ast.walk(tree)]
    classes: Classes = defaultdict(list)
    for _, node in nodes:
        if isinstance(node, ast.ClassDef):
            classes[node.name].append(node)
    wrong = []
    for module, node in nodes:
        if isinstance(node, ast.ClassDef):
            unknown = documented(node) - members(node, classes)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            unknown = documented(node) - spoken_of(node)
        else:
            continue
        wrong += [f"{module}, {node.name}: {name}" for name in sorted(unknown)]
    return wrong


def test_every_documented_field_and_parameter_exists() -> None:
    paths = sorted(ROOT.rglob("*.py"))
    trees = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in paths}
    assert wrong_entries(trees) == []


@pytest.mark.parametrize(
    ("code", "wrong"),
    [
        ("class A:\n '''Do.\n\n a  one\n b  two'''\n a: int", ["b"]),
        ("class A:\n '''Do.\n\n a   one\n bcd of one space'''\n a: int", ["bcd"]),
        ("class A:\n '''Do.\n\n a,  both\n b'''\n a: int", ["b"]),
        ("class A(B):\n '''Do.\n\n a  one'''\nclass B:\n a: int", []),
        ("class A:\n '''Do.\n\n a  one'''\n def f(self):\n  self.a = 1", []),
        ("class A:\n '''Do.\n\n a  one'''\n def f(self):\n  a = 1", ["a"]),
        ("def f(a):\n '''Do.\n\n a  one\n b  two'''", ["b"]),
        ("def f(a):\n '''Return.\n\n b  two'''\n return {'b': a}", []),
    ],
)
def test_wrong_entries_are_found(code: str, wrong: list[str]) -> None:
    assert [one.rpartition(" ")[2] for one in wrong_entries({"m": ast.parse(code)})] == wrong
