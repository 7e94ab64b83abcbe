"""No test waits a fixed time, judges by a literal time limit, or shares a port or a folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import device_mutants
from tests.conftest import ROOT

TESTS = ROOT / "tests"
WAITING = TESTS / "support" / "waiting.py"
# Measured or used by hand, and a stand-in for a library: no tests.
NO_TESTS = (TESTS / "bench", TESTS / "field", TESTS / "replay", TESTS / "support" / "cupy_standin")
LIMITS = {"timeout", "silence_timeout"}
WAITS = {"wait", "join", "result", "poll", "settimeout"}
LISTENS = {"bind", "create_server", "Server", "TCPServer", "HTTPServer", "ThreadingHTTPServer"}
CLOCKS = {("time", "monotonic"), ("time", "perf_counter"), ("time", "time")}
OPENS = {"Path", "open", "mkdtemp"}
SHARED_FOLDERS = ("/tmp/", "/var/tmp/", "/dev/shm/")


def is_number(node: ast.AST, constants: dict[str, ast.expr]) -> bool:
    """Return whether an expression is a literal number, or the name of one in this module."""
    if isinstance(node, ast.Name) and node.id in constants:
        return is_number(constants[node.id], {})
    if isinstance(node, ast.BinOp):
        return is_number(node.left, constants) and is_number(node.right, constants)
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def constants_of(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the constants of a module and their values."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    return {name.id: n.value for n in assigned for name in n.targets if isinstance(name, ast.Name)}


def called(call: ast.Call) -> tuple[str, str]:
    """Return what a function is called on, if that is a name, and its own name."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return owner, name
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return "", name
    return "", ""


def faults_of(call: ast.Call, constants: dict[str, ast.expr]) -> Iterator[str]:
    """Yield what a call does that no test may do."""
    owner, name = called(call)
    if (owner, name) in {("time", "sleep"), ("", "sleep")} or name == "wait_for_timeout":
        yield "a fixed wait: use until() or, in a program that is slow on purpose, be_slow()"
    if any(ast.unparse(argument) == "'networkidle'" for argument in call.args):
        yield "half a second without a request: wait for what the page then shows"
    limits = [keyword.value for keyword in call.keywords if keyword.arg in LIMITS]
    limits += call.args[:1] if name in WAITS else []
    if any(is_number(limit, constants) and ast.unparse(limit) != "0" for limit in limits):
        yield "a literal time limit: use patience() or, where it has to expire, expiring()"
    if name in LISTENS and any(is_fixed_port(argument, constants) for argument in call.args):
        yield "a fixed port: use port 0"
    if name in OPENS and any(is_shared_folder(argument) for argument in call.args[:1]):
        yield "a folder that tests share: use tmp_path"


def is_fixed_port(node: ast.expr, constants: dict[str, ast.expr]) -> bool:
    """Return whether an address names a port other than 0."""
    if not isinstance(node, ast.Tuple) or len(node.elts) != 2:
        return False
    return is_number(node.elts[1], constants) and ast.unparse(node.elts[1]) != "0"


def is_time_compared(node: ast.Compare, constants: dict[str, ast.expr]) -> bool:
    """Return whether something must have happened within a literal time by the clock."""
    calls = {called(part) for part in ast.walk(node.left) if isinstance(part, ast.Call)}
    upper = [isinstance(operator, ast.Lt | ast.LtE) for operator in node.ops]
    return any(upper) and bool(calls & CLOCKS) and is_number(node.comparators[0], constants)


def is_shared_folder(node: ast.expr) -> bool:
    """Return whether a path is one of a folder for temporary files of everybody."""
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(SHARED_FOLDERS)
    )


def faults(tree: ast.Module) -> list[str]:
    """Return the faults of a module, each with its line."""
    constants, found = constants_of(tree), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found += [f"line {node.lineno}: {fault}" for fault in faults_of(node, constants)]
        if isinstance(node, ast.Compare) and is_time_compared(node, constants):
            found.append(f"line {node.lineno}: a time compared: count, or use processor time")
        if isinstance(node, ast.FunctionDef):
            defaults = zip(reversed(node.args.args), reversed(node.args.defaults), strict=False)
            keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            for argument, default in (*defaults, *keywords):
                if argument.arg in LIMITS and default and is_number(default, constants):
                    found.append(f"line {node.lineno}: a literal time limit: use patience()")
    return found


def modules() -> list[Path]:
    """Return the files of the tests and of the programs that they start."""
    files = sorted(TESTS.rglob("*.py"))
    return [f for f in files if f != WAITING and not set(NO_TESTS) & set(f.parents)]


def test_no_test_has_a_fault() -> None:
    found = {file: faults(ast.parse(file.read_text(encoding="utf-8"))) for file in modules()}
    assert [
        f"{file.relative_to(ROOT)}, {one}" for file, all_ in found.items() for one in all_
    ] == []


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("time.sleep(1)", "a fixed wait"),
        ("sleep(pause)", "a fixed wait"),
        ("page.wait_for_timeout(50)", "a fixed wait"),
        ("page.wait_for_load_state('networkidle')", "half a second without a request"),
        ("run(words, timeout=60)", "a literal time limit"),
        ("LIMIT = 60.0\nrun(words, timeout=2 * LIMIT)", "a literal time limit"),
        ("process.wait(5)", "a literal time limit"),
        ("def run(words, timeout=60.0): ...", "a literal time limit"),
        ("def run(words, *, timeout=60.0): ...", "a literal time limit"),
        ("socket.create_server(('127.0.0.1', 8080))", "a fixed port"),
        ("assert time.monotonic() - begun < 30", "a time compared"),
        ("Path('/tmp/x').write_text('')", "a folder that tests share"),
        ("run(words, timeout=patience())", ""),
        ("run(words, timeout=expiring(0.5))", ""),
        ("socket.create_server(('127.0.0.1', 0))", ""),
        ("', '.join('ab')", ""),
        ("assert time.monotonic() - begun > 30", ""),
        ("assert time.process_time() - begun < 5", ""),
        ("process.poll()", ""),
        ("page.wait(0)", ""),
    ],
)
def test_the_faults_of_tests_are_found(code: str, fault: str) -> None:
    found = faults(ast.parse(code))
    assert len(found) == bool(fault)
    assert not fault or fault in found[0]


def test_every_planted_error_replaces_a_text_of_the_code() -> None:
    for mutant in device_mutants.MUTANTS:
        text = (ROOT / mutant.path).read_text(encoding="utf-8")
        assert text.count(mutant.before) == 1, mutant
