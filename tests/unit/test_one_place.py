"""A collective and an MPI library are described in one record each.

Other modules ask `Collective` and its `spec`, and `LibraryProfile`, instead of their names.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import pytest

from tests.conftest import ROOT
from tuner.core.collective import Collective
from tuner.mpi_libraries.profiles import PROFILES

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
    "tuner/probe/single_host.py": "the collectives that are probed by default",
    "tuner/sim/warmup.py": "calls that need every compiled function",
    "tuner/training/recorded.py": "a barrier counts as an allreduce",
    "tuner/training/live_training.py": "the algorithms of gradients",
    "tuner/training/groups.py": "a name for schedules that are no collective",
    "tuner/whatif/study_checks.py": "a schedule whose cost is known, to try a placement",
    "tuner/cli/commands/nccl.py": "the default of an option",
}
ADVICE = (
    "names a collective. What it is belongs to its record in tuner/core/collective.py, what a"
    " library does to tuner/mpi_libraries/, what a file of a library says to tuner/formats/: ask"
    " for a property instead"
)


@dataclass(frozen=True)
class OnePlace:
    """The places in which something may be named.

    find        yields what a module names
    places      beginnings of the paths where it may be named
    exceptions  other modules that name it, and what for
    advice      what is wrong elsewhere, and what to do
    """

    find: Callable[[ast.AST], Iterator[str]]
    places: tuple[str, ...]
    exceptions: Mapping[str, str]
    advice: str

    def modules(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the other modules that name it, with what they name."""
        for name, tree in parsed_modules().items():
            found = [] if name.startswith(self.places) else list(self.find(tree))
            if found:
                yield name, found


@cache
def parsed_modules() -> Mapping[str, ast.AST]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "tuner").rglob("*.py"))
    }


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


def named_libraries(tree: ast.AST) -> Iterator[str]:
    """Yield the names of MPI libraries, as text and as constants of `products`."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(name)) if name in PROFILES:
                yield name
            case ast.Name(id=name) | ast.Attribute(attr=name) if name.lower() in PROFILES:
                if name.isupper():
                    yield name.lower()


COLLECTIVES = OnePlace(named_collectives, PLACES, EXCEPTIONS, ADVICE)
LIBRARIES = OnePlace(
    named_libraries,
    places=(
        "tuner/mpi_libraries/",
        "tuner/launch/",
        "tuner/formats/openmpi/",
        "tuner/formats/mpich/",
        "tuner/formats/intelmpi/",
        "tuner/formats/registry.py",  # which libraries each format is for
        "tuner/validation/openmpi_",
        *(f"tuner/validation/validate_{name}.py" for name in PROFILES),
    ),
    exceptions={
        "tuner/api/native_offers.py": "an example in the schema",
        "tuner/api/routes/probes.py": "the choices of a field, which the schema spells out",
        "tuner/api/routes/tables.py": "the same, of formats",
        "tuner/api/routes/what_if.py": "the same",
        "tuner/cli/commands/serve.py": "the option that names an interpreter with MPICH",
        "tuner/diagnosis/library.py": "files and packages of distributions",
        "tuner/importers/algorithm_names.py": "spellings in files of other programs",
        "tuner/probe/single_host.py": "the default of a field",
        "tuner/rank_programs/default_algorithms.py": "traces calls of Open MPI alone",
    },
    advice=(
        "names an MPI library. Facts belong to its `LibraryProfile` in"
        " tuner/mpi_libraries/profiles.py, what it does with a table beside its validation"
        " (tuner/validation/libraries.py), what a file of it says to its `Format` in"
        " tuner/formats/registry.py: ask for a property instead"
    ),
)


both = pytest.mark.parametrize("known", [COLLECTIVES, LIBRARIES], ids=["collectives", "libraries"])


@both
def test_what_it_is_stands_in_one_place(known: OnePlace) -> None:
    found = ((name, names) for name, names in known.modules() if name not in known.exceptions)
    new = [f"{name} {names} {known.advice}" for name, names in found]
    assert not new, "\n".join(new)


@both
def test_every_exception_is_needed(known: OnePlace) -> None:
    assert set(known.exceptions) <= {name for name, _ in known.modules()}


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


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if library == 'openmpi': pass", ["openmpi"]),
        ("if base_of(table.library) in (OPENMPI, products.MPICH): pass", ["openmpi", "mpich"]),
        ("BUDGETS = {'mpich': 30.0}", ["mpich"]),
        ("profile_of(library).title; openmpi.emit(table); 'openmpi-han'", []),
    ],
)
def test_names_of_libraries_are_found(source: str, found: list[str]) -> None:
    assert sorted(named_libraries(ast.parse(source))) == sorted(found)
