"""A name of a class or a module of `tuner` has one meaning.

A name may be there several times only where it means the same: the lists below say where and why.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import tuner

ROOT = Path(tuner.__file__).parent

# A resource of the service: what the database gives, and what is sent of it.
RESOURCE = ("api", "db")
# What readers of several formats build while they read.
READERS = ("topology.readers.hwloc", "topology.readers.nccl_xml")
SAME_CLASS = {
    "Page": RESOURCE,
    "_NodeGraph": READERS,
    "_Reader": ("formats.openmpi",),  # lines of a rules file, classic or of HAN
    "_Table": ("importers",),  # a table of results in the text of a benchmark
}

# A command, the job that does the same for the service, and the module that does the work.
COMMAND = ("cli", "jobs", "workflows")
SAME_MODULE = {
    "acceptance": ("workflows", "validation"),
    "batches": ("workflows", "probe"),
    "calibrate": COMMAND,
    "calibrations": RESOURCE,
    "clusters": RESOURCE,
    "default_algorithms": ("workflows", "rank_programs", "mpi_libraries", "formats.mpich"),
    "emitter": ("formats",),
    "evaluate": (*COMMAND, "select"),
    "feedback": (*RESOURCE, "runtime"),
    "jobs": RESOURCE,
    "measurements": RESOURCE,
    "mvapich2": ("mpi_libraries", "formats"),
    "nccl": (*COMMAND, "runtime", "probe", "algorithms"),
    "probe": (*COMMAND, "rank_programs"),
    "progress": (*COMMAND, "base"),
    "publications": RESOURCE,
    "quickstart": COMMAND,
    "registry": ("formats", "algorithms"),  # what exists of its package, by name
    "run": ("cli", "run"),  # of programs in any language, and of Python programs from inside
    "select": (*COMMAND, "api"),
    "study": COMMAND,
    "table": (*COMMAND, "core"),
    "tables": RESOURCE,
    "topologies": RESOURCE,
    "training": ("cli", "api"),
    "tune": COMMAND,
    "validation": ("workflows", "validation"),
}


def modules() -> dict[str, Path]:
    """All modules by their names within `tuner`; packages are not among them."""
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*.py"))
    return {
        ".".join(path.with_suffix("").parts): ROOT / path
        for path in paths
        if not path.stem.startswith("__")
    }


def class_names(path: Path) -> list[str]:
    return [n.name for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef)]


def misplaced(
    places: dict[str, list[str]], known: dict[str, tuple[str, ...]]
) -> dict[str, list[str]]:
    """Names that are somewhere twice, outside the packages where they mean the same."""
    return {
        name: there
        for name, there in places.items()
        if len(there) > 1
        and not all(
            f"{place}.".startswith(tuple(f"{p}." for p in known.get(name, ()))) for place in there
        )
    }


def test_class_names_have_one_meaning() -> None:
    places = defaultdict(list)
    for module, path in modules().items():
        for name in class_names(path):
            places[name].append(module)
    assert misplaced(places, SAME_CLASS) == {}
    assert {name for name in SAME_CLASS if len(places[name]) < 2} == set()


def test_module_names_have_one_meaning() -> None:
    places = defaultdict(list)
    for module in modules():
        places[module.rpartition(".")[2]].append(module)
    assert misplaced(places, SAME_MODULE) == {}
    assert {name for name in SAME_MODULE if len(places[name]) < 2} == set()
