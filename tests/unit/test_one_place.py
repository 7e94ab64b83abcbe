"""What a collective is stands in one record: other modules ask `Collective` and its `spec`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tuner.core.collective import Collective

PLACES = (  # where collectives may be named
    "tuner/core/collective.py",  # the records
    "tuner/algorithms/",
    "tuner/mpi_libraries/",
    "tuner/formats/openmpi/",
    "tuner/formats/mpich/",
    "tuner/formats/nccl/",
    "tuner/formats/ucc/",
    "tuner/formats/intelmpi/",
    "tuner/validation/openmpi_",
    "tuner/training/frameworks/",
)
EXCEPTIONS = {  # module -> what it needs a certain collective for
    "tuner/runtime/fast_path.py": "Bcast and Allreduce have methods by hand, with less overhead",
    "tuner/runtime/methods.py": "the same two",
    "tuner/runtime/schedule_call.py": "the same two find their bound schedule by their arguments",
    "tuner/runtime/nccl.py": "the calls that CuPy's NCCL makes",
    "tuner/rank_programs/fixed_decisions.py": "the calls that Open MPI's decisions are traced of",
    "tuner/probe/single_host.py": "the collectives that are probed by default",
    "tuner/sim/warmup.py": "calls that need every compiled function",
    "tuner/training/recorded.py": "a barrier counts as an allreduce",
    "tuner/training/live_training.py": "the algorithms of gradients",
    "tuner/training/groups.py": "a name for schedules that are no collective",
    "tuner/whatif/study_spec.py": "a schedule whose cost is known, to try a placement",
    "tuner/importers/imb.py": "its names of benchmarks, and which sizes are of one rank",
    "tuner/importers/nccl_tests.py": "its names of programs",
    "tuner/importers/osu.py": "its titles, and which sizes are of one rank",
    "tuner/cli/nccl.py": "the default of an option",
}
ADVICE = (
    "names a collective. What it is belongs to its record in tuner/core/collective.py, what a"
    " library does to tuner/mpi_libraries/, what a file of a library says to tuner/formats/: ask"
    " for a property instead"
)


def named_collectives(tree: ast.AST) -> Iterator[str]:
    """Yield members of `Collective` that are named, and values of several in one literal."""
    values = {each.value for each in Collective}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Collective":
            yield from {node.attr} & set(Collective.__members__)
        elements = (
            node.keys
            if isinstance(node, ast.Dict)
            else node.elts
            if isinstance(node, ast.Tuple | ast.List | ast.Set)
            else []
        )
        listed = {
            one.value for one in elements if isinstance(one, ast.Constant) and one.value in values
        }
        if len(listed) > 1:
            yield ", ".join(sorted(listed))


def modules() -> Iterator[tuple[str, list[str]]]:
    """Yield the modules that name collectives, with what they name."""
    for path in sorted((ROOT / "tuner").rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        found = list(named_collectives(ast.parse(path.read_text(encoding="utf-8"))))
        if found and not name.startswith(PLACES):
            yield name, found


def test_what_a_collective_is_stands_in_one_place() -> None:
    new = [f"{name} {found} {ADVICE}" for name, found in modules() if name not in EXCEPTIONS]
    assert not new, "\n".join(new)


def test_every_exception_is_needed() -> None:
    assert set(EXCEPTIONS) <= {name for name, _ in modules()}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if one is Collective.BCAST: pass", ["BCAST"]),
        ("ROOTED = ('bcast', 'reduce')", ["bcast, reduce"]),
        ("KNOWN = {'allreduce': 1, 'gather': 2}", ["allreduce, gather"]),
        ("example = ['allreduce']; one.is_rooted", []),
    ],
)
def test_names_are_found(source: str, found: list[str]) -> None:
    assert list(named_collectives(ast.parse(source))) == found
