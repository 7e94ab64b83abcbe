"""Read what `make tune` leaves in its directory: the rules, how they are used, and the report."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEFAULT = "default"
REDUCTIONS = {"allreduce", "reduce", "reduce_scatter"}
LAUNCHERS = {"openmpi": "mpirun", "mpich": "mpiexec"}


class CheckError(Exception):
    """One sentence that says what is wrong, where, and what to do."""


@dataclass(frozen=True)
class Rule:
    """The algorithm that a table gives for sizes from `low` bytes on and below `high` bytes."""

    collective: str
    ranks: int
    low: int
    high: float
    algorithm: str
    probed: tuple[int, ...]


@dataclass(frozen=True)
class Comparison:
    """A call of the report's held-out comparison; the ratio is default over tuned."""

    collective: str
    ranks: int
    nbytes: int
    ratio: float
    interval: tuple[float, float]


@dataclass(frozen=True)
class Use:
    """Hold how a program is started with the tuning: words before it, and environment."""

    command: tuple[str, ...]
    environment: dict[str, str]


@dataclass(frozen=True)
class Library:
    """One MPI library of the directory; the digest changes with whatever its launches read."""

    name: str
    version: str
    rules: tuple[Rule, ...]
    comparisons: tuple[Comparison, ...]
    use: Use
    digest: str

    def algorithm(self, collective: str, ranks: int, nbytes: int) -> str:
        """Return what the table gives for this call, "default" where it has no rule for it."""
        for rule in self.rules:
            same_call = (rule.collective, rule.ranks) == (collective, ranks)
            if same_call and rule.low <= nbytes < rule.high:
                return rule.algorithm
        return DEFAULT


def read_libraries(directory: Path, names: list[str] | None = None) -> list[Library]:
    """Return the libraries that the directory holds, or those named.

    Raise CheckError where a file is missing or cannot be understood.
    """
    report = _read(directory / "report.json", "run 'make tune' first")
    present = sorted(report.get("libraries", {}), key=lambda name: (name != "openmpi", name))
    for name in names or []:
        if name not in present:
            there = ", ".join(present) or "none"
            raise CheckError(f"{directory} has no library {name!r}; it has: {there}")
    return [_library(directory, name, report) for name in names or present]


def _read(path: Path, advice: str) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckError(f"{path} does not exist: {advice}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise CheckError(f"{path} cannot be read: {error}") from error
    except json.JSONDecodeError as error:
        raise CheckError(f"{path} is not JSON: {error}") from error


def _library(directory: Path, name: str, report: Any) -> Library:
    path = directory / name / "table.json"
    table = _read(path, "run 'make tune' again")
    try:
        entry = report["libraries"][name]
        rules = read_rules(name, table["rules"])
        comparisons = tuple(_comparison(row) for row in entry["heldout"])
        version = str(table["library"])
        use = read_use(directory, name, entry.get("use"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        problem = f"unexpected content in {path} or report.json: {error!r}"
        raise CheckError(f"{problem}; run 'make tune' again") from error
    return Library(name, version, rules, comparisons, use, _digest(directory, name, use))


def read_rules(library: str, rows: list[Any]) -> tuple[Rule, ...]:
    """Return the rules for float sums in host memory on one node.

    Sums commute, but the file of Open MPI cannot ask for that: it holds the rules for any
    operator. Other libraries take a collective's rules for commutative operators where there are
    some.
    """
    chosen: dict[tuple[str, int], dict[str, list[Rule]]] = {}
    for row in rows:
        key = row["key"]
        if key["nodes"] != 1 or key.get("memory", "host") != "host":
            continue
        if key.get("placement", "consecutive") not in ("consecutive", "block"):
            continue
        rule = _rule(row)
        operators = chosen.setdefault((rule.collective, rule.ranks), {})
        operators.setdefault(key.get("operators", "any"), []).append(rule)
    order = ["any"] if library == "openmpi" else ["commutative", "any"]
    found = (next((o[name] for name in order if name in o), []) for o in chosen.values())
    return tuple(rule for rules in found for rule in rules)


def _rule(row: Any) -> Rule:
    key, choice = row["key"], row["choice"]
    params = ", ".join(f"{name}={value}" for name, value in sorted(choice["params"].items()))
    algorithm = choice["algorithm"] + (f"({params})" if params else "")
    probed = tuple(int(size) for size in row["evidence"]["nbytes"])
    low, high = int(row["start_bytes"]), float(row["stop_bytes"])
    return Rule(key["collective"], int(key["ppn"]), low, high, algorithm, probed)


def _comparison(row: Any) -> Comparison:
    low, high = (float(bound) for bound in row["ci95"])
    ranks, nbytes = int(row["p"]), int(row["nbytes"])
    return Comparison(row["collective"], ranks, nbytes, float(row["ratio"]), (low, high))


def read_use(directory: Path, name: str, entry: Any) -> Use:
    """Return how the library is started with the tuning, by README where the report is silent.

    Files are those of this directory, also where it is a copy of the one the report speaks of.
    """
    if entry is None:
        entry = _printed_use(directory, name)
    words = tuple(_here(directory, name, str(word)) for word in entry["command"])
    environment = {
        key: _here(directory, name, str(value)) for key, value in entry["environment"].items()
    }
    if words and Path(words[0]).name in ("mpirun", "mpiexec"):
        words = words[1:]
    return Use(words, environment)


def _printed_use(directory: Path, name: str) -> dict[str, Any]:
    if name == "openmpi":
        words = ["--mca", "coll_tuned_use_dynamic_rules", "1"]
        words += ["--mca", "coll_tuned_dynamic_rules_filename", "openmpi/openmpi.rules"]
        return {"command": words, "environment": {}}
    if name != "mpich":
        raise CheckError(f"report.json does not say how the files of {name!r} are used")
    environment = {"MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": "mpich/mpich.json"}
    if (directory / "mpich" / "mpich-device.json").exists():
        device = "MPIR_CVAR_CH4_COLL_SELECTION_TUNING_JSON_FILE"
        environment[device] = "mpich/mpich-device.json"
    else:
        environment["MPIR_CVAR_DEVICE_COLLECTIVES"] = "none"
    return {"command": [], "environment": environment}


def _here(directory: Path, name: str, word: str) -> str:
    path = directory / name / Path(word).name
    return str(path.resolve()) if "/" in word and path.is_file() else word


def _digest(directory: Path, name: str, use: Use) -> str:
    """Return what tells one tuning from another, wherever its directory lies."""
    content = hashlib.sha256()
    for word in (
        *use.command,
        *(f"{key}={use.environment[key]}" for key in sorted(use.environment)),
    ):
        content.update(word.replace(str(directory.resolve()), "").encode() + b"\0")
    for path in sorted((directory / name).iterdir()):
        if str(path.resolve()) in (*use.command, *use.environment.values()):
            content.update(path.read_bytes())
    return content.hexdigest()[:16]
