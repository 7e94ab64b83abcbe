"""Options become a specification at once: what argparse parsed goes no further."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

COMMANDS = ROOT / "tuner" / "cli" / "commands"
SPECIFICATIONS = ROOT / "tuner" / "cli" / "options"  # functions that turn options into them
PARSERS = (  # modules that call argparse, or that it calls
    ROOT / "tuner" / "cli" / "main.py",
    ROOT / "tuner" / "cli" / "terminal" / "parser.py",
)
ADVICE = (
    "takes parsed options: only `run` and `run_*` of tuner/cli/commands, which argparse selects,"
    " and functions of tuner/cli/options do. Hand on what is needed, or a specification such as"
    " `ProbeSpec`"
)


def functions_with_options(tree: ast.AST) -> Iterator[str]:
    """Yield the names of functions, other than `run`, in which `Namespace` stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named = {ast.unparse(each) for each in ast.walk(node) if isinstance(each, ast.expr)}
            if any(name.rpartition(".")[2] == "Namespace" for name in named):
                yield node.name


def is_run(name: str) -> bool:
    """Return whether a function carries out a command or one of its actions."""
    return name == "run" or name.startswith("run_")


def test_parsed_options_stay_in_the_function_that_argparse_selects() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name} {ADVICE}"
        for path in sorted((ROOT / "tuner").rglob("*.py"))
        if path not in PARSERS and SPECIFICATIONS not in path.parents
        if "Namespace" in (text := path.read_text(encoding="utf-8"))
        for name in functions_with_options(ast.parse(text))
        if not (path.parent == COMMANDS and is_run(name))
    ]
    assert not found, "\n".join(found)


def passed_on(tree: ast.AST) -> Iterator[str]:
    """Yield the functions that get `options` as a whole, but for those of Python itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and any(
            isinstance(one, ast.Name) and one.id == "options"
            for one in (*node.args, *(each.value for each in node.keywords))
        ):
            name = ast.unparse(node.func)
            if name not in ("vars", "getattr"):
                yield name


def imported_specifications(tree: ast.AST) -> set[str]:
    """Return the names under which a module knows the functions and modules of `cli.options`."""
    return {
        name.asname or name.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tuner.cli.options")
        for name in node.names
    }


def test_options_are_handed_to_functions_that_make_specifications_alone() -> None:
    found = []
    for path in sorted(COMMANDS.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = imported_specifications(tree)
        others = [name for name in passed_on(tree) if name.partition(".")[0] not in known]
        found += [f"{path.name}: {name} {ADVICE}" for name in others]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def _print(options: argparse.Namespace) -> None: pass", ["_print"]),
        ("def _parse(known: Namespace | None = None) -> None: pass", ["_parse"]),
        ("def _make() -> None:\n    return argparse.Namespace(a=1)", ["_make"]),
        ("def _print(options: Mapping[str, str]) -> None: pass", []),
        ("def _named() -> SimpleNamespace: pass", []),
    ],
)
def test_functions_are_found(source: str, found: list[str]) -> None:
    assert list(functions_with_options(ast.parse(source))) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("_print(options)", ["_print"]),
        ("_print(1, given=options)", ["_print"]),
        ("host_options.given_hosts(options)", ["host_options.given_hosts"]),
        ("vars(options); getattr(options, 'out'); _print(options.out)", []),
    ],
)
def test_handing_on_is_found(source: str, found: list[str]) -> None:
    assert list(passed_on(ast.parse(source))) == found
