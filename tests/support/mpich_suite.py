"""MPICH's own test suite, from Debian's source package, alone and under tables of ours.

python -m tests.support.mpich_suite         download the suite and build it for both libraries
python -m tests.support.mpich_suite fortran PYTHON
                                            compare programs in Fortran, with an interpreter's MPI

The programs are C, or Fortran where the MPI has a compiler for it. They follow a table by a file
that the library itself reads, or by the library that is loaded before them.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.support.ladders import Rungs, table_of
from tests.support.mpi4py_suite import SHARED_CORES, forced_choices
from tests.support.preload import preload_environment
from tests.support.waiting import patience
from tuner import algorithms, mpi_libraries
from tuner.base.errors import LaunchTimeoutError
from tuner.base.processes import available_cores
from tuner.core.collective import Collective
from tuner.core.table import OPERATORS, SCHEDULE, AlgorithmChoice, TuningTable
from tuner.launch import Launcher
from tuner.launch.process import run_streaming
from tuner.mpi_libraries.profiles import profile_of
from tuner.preload.report import read_counts
from tuner.validation.timing import LaunchOptions
from tuner.workflows.acceptance import prepare_side

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TUNER_MPICH_SUITE", ROOT / "build" / "mpich-suite"))
FOLDERS = (
    *("coll", "comm", "attr", "errhan", "topo", "init", "spawn"),
    *("threads/coll", "threads/comm", "threads/init", "threads/spawn"),
)
BINDINGS = ("f77", "f90", "f08")  # folders with programs in Fortran
FORTRAN_FOLDERS = tuple(
    f"{binding}/{folder}"
    for binding in BINDINGS
    for folder in (
        *("attr", "coll", "comm", "datatype", "ext", "f90types", "info", "init", "misc"),
        *("profile", "pt2pt", "spawn", "subarray", "timer", "topo"),
    )
)
# Most of these programs hang there by themselves.
LEFT_OUT = {"openmpi": ("spawn", "threads/spawn", *(f"{binding}/spawn" for binding in BINDINGS))}
FORTRAN_FLAGS = "-w -fallow-argument-mismatch"  # for GCC: a buffer has any type
MAX_RANKS = 5
BANDS = (0, *(1 << bits for bits in range(21)))  # bytes from which on a table has another choice
SEGMENT = 64  # bytes: most messages of the suite are longer
LIMIT_S = 18.0  # what an entry without a limit of its own takes at most on a quiet machine
REPEATS = 3  # runs of an entry, alone and under the file, that tell a difference from a flaky one
ALONE = LaunchOptions()


@dataclass(frozen=True)
class Entry:
    """A line of a testlist: a program with its ranks and arguments.

    limit_s     seconds that it takes at most on a quiet machine
    """

    folder: str
    program: str
    ranks: int
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, compare=False)
    limit_s: float = LIMIT_S

    def __str__(self) -> str:
        words = (f"{self.folder}/{self.program}", *self.arguments)
        return f"{shlex.join(words)} on {self.ranks} ranks"


@dataclass(frozen=True)
class Comparison:
    """The outcomes of all entries: alone, and under a table.

    failed_alone    what an entry that fails by itself said
    failed          the same under the table, of those that pass alone
    flaky           entries that failed under the table, but not again, or alone too when repeated
    """

    entries: int
    failed_alone: dict[str, str]
    failed: dict[str, str]
    flaky: dict[str, str]

    def __str__(self) -> str:
        alone = self.entries - len(self.failed_alone)
        lines = [
            f"{self.entries} entries, {alone} pass alone,"
            f" {alone - len(self.failed) - len(self.flaky)} of them under the table at once;"
            f" differences: {len(self.failed)}"
        ]
        for title, found in (("fails alone", self.failed_alone), ("flaky", self.flaky)):
            lines += [f"  {title}: {name}: {why}" for name, why in found.items()]
        return "\n".join(lines)


# Getting and building it


def source() -> Path:
    """Return `test/mpi` of the source package; raises FileNotFoundError, which says what to do."""
    found = sorted(CACHE.glob("mpich-*/test/mpi/configure"))
    if not found:
        raise FileNotFoundError(f"{CACHE} has no MPICH suite: get it with `make test-mpich-suite`")
    return found[-1].parent


def download() -> Path:
    """Return the same after a download, where that is needed.

    Lists and packages of apt are in folders of their own: nothing of the system changes. Raises
    OSError where there is no apt-get, no Debian or no network.
    """
    try:
        return source()
    except FileNotFoundError:
        CACHE.mkdir(parents=True, exist_ok=True)
    if shutil.which("apt-get") is None:
        raise OSError("the suite is a source package of Debian, and there is no apt-get")
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        options = _apt_options(Path(place))
        for words in (["update"], ["source", "--download-only", "mpich"]):
            done = subprocess.run(
                ["apt-get", "--quiet", *options, *words],
                cwd=place,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                raise OSError(f"apt-get {' '.join(words)} fails: {last}")
        (archive,) = Path(place).glob("mpich_*.orig.tar.*")
        shutil.unpack_archive(archive, CACHE, filter="data")
    return source()


def _apt_options(place: Path) -> list[str]:
    """Return options under which apt-get only reads the sources of Debian, into `place`."""
    parts = place / "sources"
    for folder in (parts, place / "lists" / "partial", place / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True)
    own = [*Path("/etc/apt").glob("sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    for path in own:
        kept = [part for part in _source_entries(path) if re.search(r"\S+/debian\b", part)]
        if kept:
            (parts / path.name).with_suffix(path.suffix).write_text("\n\n".join(kept) + "\n")
    if not any(parts.iterdir()):
        raise OSError("apt has no sources of Debian here, from which MPICH's suite could come")
    settings = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": parts,
        "Dir::State::lists": place / "lists",
        "Dir::Cache": place / "cache",
        "APT::Sandbox::User": "root",
    }
    return [f"-o{name}={value}" for name, value in settings.items()]


def _source_entries(path: Path) -> list[str]:
    """Return the entries of a file of apt's sources, each for source packages instead."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".sources":
        return [re.sub(r"(?m)^Types:.*$", "Types: deb-src", one) for one in text.split("\n\n")]
    lines = (line for line in text.splitlines() if re.match(r"deb\s", line))
    return [re.sub(r"^deb\s", "deb-src ", line) for line in lines]


def build(launcher: Launcher, *, fortran: bool = False) -> Path:
    """Return the folder with the programs for a library, after building them where needed.

    fortran     whether those in Fortran are built, instead of those in C

    Programs that do not compile for this library are left out of `entries`. Raises OSError where
    the suite cannot be configured.
    """
    target = CACHE / (launcher.version().replace(" ", "-") + ("-fortran" if fortran else ""))
    folders = _folders(fortran)
    done, wanted = target / "built", " ".join(folders)
    if done.exists() and done.read_text() == wanted:
        return target
    if launcher.compiler is None:
        raise OSError(f"{launcher.version()} has no mpicc")
    target.mkdir(parents=True, exist_ok=True)
    prefix = launcher.compiler.parents[1]
    configure = [
        str(source() / "configure"),
        f"--with-mpi={prefix}",
        "--disable-cxx",
        "--disable-romio",
        f"MPICC={launcher.compiler}",
        *(_fortran_options(launcher.compiler) if fortran else ["--disable-fortran"]),
    ]
    _make(target, configure, check=True)
    for folder in () if fortran else ("dtpools", "util"):
        _make(target, ["make", "-C", folder], check=True)
    for folder in folders:
        _make(target, ["make", "--keep-going", f"-j{available_cores()}", "-C", folder])
    done.write_text(wanted)
    return target


def _folders(fortran: bool) -> list[str]:
    """Return the folders of programs in C or in Fortran that the suite has."""
    known = FORTRAN_FOLDERS if fortran else FOLDERS
    return [folder for folder in known if (source() / folder).is_dir()]


def _fortran_options(compiler: Path) -> list[str]:
    """Return the options of configure for programs in Fortran: compilers beside that for C."""
    f77, fc = (compiler.with_name(compiler.name.replace("cc", name)) for name in ("f77", "fort"))
    flags = [f"{name}={FORTRAN_FLAGS}" for name in ("FFLAGS", "FCFLAGS")]
    return ["--enable-fortran=all", f"MPIF77={f77}", f"MPIFC={fc}", *flags]


def _make(target: Path, command: Sequence[str], *, check: bool = False) -> None:
    run = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
    if check and run.returncode:
        raise OSError(f"{shlex.join(command)} fails:\n{(run.stdout + run.stderr)[-2000:]}")


def entries(built: Path) -> list[Entry]:
    """Return the entries of all testlists with at most MAX_RANKS ranks, of programs that exist.

    Those that have to fail or to be stopped are left out, and the folders in LEFT_OUT.
    """
    found: list[Entry] = []
    left_out = LEFT_OUT.get(built.name.partition("-")[0], ())
    folders = (built / "built").read_text(encoding="utf-8").split()
    for folder in (one for one in folders if one not in left_out):
        lists = [one / folder / "testlist" for one in (built, source())]
        text = next(path for path in lists if path.is_file()).read_text(encoding="utf-8")
        for line in text.splitlines():
            words = line.partition("#")[0].split()
            if words and not words[0].startswith("!") and "resultTest=" not in line:
                found.append(_entry(folder, words))
    return [
        entry
        for entry in dict.fromkeys(found)
        if entry.ranks <= MAX_RANKS and (built / entry.folder / entry.program).is_file()
    ]


def _entry(folder: str, words: Sequence[str]) -> Entry:
    named = [word.partition("=")[::2] for word in words[2:]]
    limits = [float(value) / 10 for name, value in named if name == "timeLimit"]
    return Entry(
        folder,
        words[0],
        int(words[1]) if len(words) > 1 else 1,
        tuple(value for name, value in named if name == "arg"),
        dict(value.split("=", 1) for name, value in named if name == "env"),
        max([LIMIT_S, *limits]),
    )


# The tables


def tables(library: str) -> list[TuningTable]:
    """Return tables that together send every algorithm of a library's file at every band of sizes.

    Each number of ranks begins with another algorithm, and each table with others again.
    """
    choices = {c: known for c in Collective if (known := _choices(library, c, "any"))}
    most = max(map(len, choices.values()))
    return [_table(library, shift) for shift in range(-(-most // (MAX_RANKS - 1)))]


def _table(library: str, shift: int) -> TuningTable:
    ladders: dict[tuple[Collective, int, str], Rungs] = {}
    unsupported = mpi_libraries.library_module(library).unsupported_reason
    for collective in Collective:
        for operators in ("any", "commutative") if collective.is_reduction else ("any",):
            for p in range(1, MAX_RANKS + 1):
                known = [
                    choice
                    for choice in _choices(library, collective, operators)
                    if not unsupported(collective, choice, p)
                ]
                first = p + shift * (MAX_RANKS - 1)
                whole = collective in profile_of(library).unsplittable
                if known:
                    ladders[collective, p, operators] = _rungs(known, first, whole=whole)
    return table_of(ladders, library=library)


def _rungs(choices: Sequence[AlgorithmChoice], first: int, *, whole: bool) -> Rungs:
    """Return a choice for each band, or one for all sizes; without a segment for 0 bytes."""
    bands = BANDS[:1] if whole else BANDS
    rungs = [(low, choices[(first + n) % len(choices)]) for n, low in enumerate(bands)]
    safe = [choice for choice in choices if "segment" not in choice.params]
    return [(0, safe[first % len(safe)]), *rungs[1:]]


def _choices(library: str, collective: Collective, operators: str) -> list[AlgorithmChoice]:
    """Return the choices that a file may name for these calls, with and without segments."""
    known = mpi_libraries.library_module(library)
    named = known.ALGORITHMS.get(collective, ())
    found = [
        AlgorithmChoice(name, params)
        for name in named
        if name != "default"
        for params in ({}, {"segment": SEGMENT})
    ]
    return [
        choice
        for choice in found
        if known.is_expressible(collective, choice)
        and (operators == "commutative" or known.preserves_operand_order(collective, choice))
    ]


def followed(table: TuningTable, launcher: Launcher, directory: Path) -> LaunchOptions:
    """Write the file of a table, for any operator; return the options that activate it."""
    return prepare_side(table, "any", launcher, directory)


def preload_tables(library: str, ranks: int = MAX_RANKS) -> dict[str, TuningTable]:
    """Return tables for the preloaded library, which has more choices than a native file.

    schedule    every call goes to a schedule of ours, each at some band of sizes
    forced      every call that the library can be made to carry out by a given algorithm
    mixed       both, and the library's own choice, in turn
    """
    forces = profile_of(library).name in mpi_libraries.LIBRARY_MODULES
    made: dict[str, dict[tuple[Collective, int, str], Rungs]] = {}
    for collective in Collective:
        for operators in OPERATORS if collective.is_reduction else OPERATORS[:1]:
            for p in range(1, ranks + 1):
                ours = schedules(collective, p, operators) or [AlgorithmChoice()]
                forced = forced_choices(library, collective, p, operators) if forces else []
                forced = forced or [AlgorithmChoice()]
                mixed = [
                    one
                    for place in range(max(len(ours), len(forced)))
                    for one in (
                        ours[place % len(ours)],
                        forced[place % len(forced)],
                        AlgorithmChoice(),
                    )
                ]
                bands = BANDS if collective.has_data else BANDS[:1]
                for name, known in (("schedule", ours), ("forced", forced), ("mixed", mixed)):
                    made.setdefault(name, {})[collective, p, operators] = [
                        (low, known[(p * len(BANDS) + n) % len(known)])
                        for n, low in enumerate(bands)
                    ]
    return {name: table_of(ladders, library=library) for name, ladders in made.items()}


def schedules(collective: Collective, p: int, operators: str) -> list[AlgorithmChoice]:
    """Return our algorithms for such calls, with segments of their own length and short ones."""
    found = []
    for name in () if collective.is_ragged else algorithms.algorithm_names(collective):
        segmented = "segment" in algorithms.describe(collective, name).params
        for params in ({}, {"segment": SEGMENT}) if segmented else ({},):
            schedule = algorithms.build(collective, name, p, nbytes=1000, params=params)
            ordered = algorithms.schedule_properties(schedule).order_preserving
            if not schedule.in_network and (ordered or operators == "commutative"):
                found.append(AlgorithmChoice(name, params, SCHEDULE))
    return found


def preloaded(table: TuningTable, launcher: Launcher, directory: Path) -> LaunchOptions:
    """Write the flat file of a table; return the options under which programs follow it."""
    reports = directory / "reports"
    reports.mkdir()
    own = {"TUNER_REPORT": str(reports), "TUNER_TUNE_AFTER_US": "0", "TUNER_QUIET": "1"}
    following = preload_environment(launcher, table, directory)
    return LaunchOptions(environment={**following, **own})


def calls_of_rules(side: LaunchOptions) -> Counter[int]:
    """Return how many calls of all programs followed each rule of the flat file."""
    found = Counter[int]()
    for report in Path(side.environment["TUNER_REPORT"]).iterdir():
        found.update(read_counts(report))
    return found


# Running it


def run_entry(launcher: Launcher, built: Path, side: LaunchOptions, entry: Entry) -> str:
    """Run an entry; return what was wrong, "" when it passed."""
    limit = patience(entry.limit_s)
    report = {}
    if place := side.environment.get("TUNER_REPORT"):
        report["TUNER_REPORT"] = f"{place}/{uuid.uuid4()}"
    program = built / entry.folder / entry.program
    command = launcher.command(entry.ranks, entry.arguments, side.settings, program)
    own = {**SHARED_CORES, **entry.environment, **side.environment, **report}
    try:
        run = run_streaming(  # where the programs are that it spawns
            ["env", f"--chdir={program.parent}", *command],
            {**os.environ, **own},
            None,
            limit,
            None,
            "this computer",
        )
    except LaunchTimeoutError:
        return f"no end within {limit:.0f} s"
    if run.returncode == 0 and re.search(r"(?m)^ *No Errors$", run.stdout):
        return ""
    said = [line for line in (run.stdout + run.stderr).splitlines() if line.strip(" -*")]
    signal = next((line for line in said if "signal" in line.lower()), "")
    return f"status {run.returncode}: {(signal or (said or ['no output'])[0]).strip()}"


def run_alone(launcher: Launcher, built: Path) -> dict[Entry, str]:
    """Return what was wrong with each entry in the library alone, "" where it passed."""
    return _run_all(launcher, built, ALONE, entries(built))


def compare(
    launcher: Launcher, built: Path, side: LaunchOptions, alone: Mapping[Entry, str]
) -> Comparison:
    """Compare the entries that pass alone with what they do under a table."""
    passing = [entry for entry, why in alone.items() if not why]
    tuned = {e: why for e, why in _run_all(launcher, built, side, passing).items() if why}
    flaky = {}
    for entry, why in tuned.items():
        again = [run_entry(launcher, built, side, entry) for _ in range(REPEATS)]
        without = [run_entry(launcher, built, ALONE, entry) for _ in range(REPEATS)]
        if not any(again) or any(without):
            failed = sum(map(bool, without))
            flaky[entry] = (
                f"{why}; again {sum(map(bool, again))}, alone {failed} of {REPEATS} times"
            )
    return Comparison(
        len(alone),
        {str(entry): why for entry, why in alone.items() if why},
        {str(entry): why for entry, why in tuned.items() if entry not in flaky},
        {str(entry): why for entry, why in flaky.items()},
    )


def _run_all(
    launcher: Launcher, built: Path, side: LaunchOptions, wanted: Sequence[Entry]
) -> dict[Entry, str]:
    with ThreadPoolExecutor(available_cores()) as pool:
        return dict(
            zip(wanted, pool.map(partial(run_entry, launcher, built, side), wanted), strict=True)
        )


def _build_for_both() -> Iterator[Path]:
    for library, python in (
        ("openmpi", Path(sys.executable)),
        ("mpich", ROOT / ".venv-mpich" / "bin" / "python"),
    ):
        yield build(Launcher.find(library, python))


def compare_fortran(launcher: Launcher) -> int:
    """Print how programs in Fortran fare under each table that is preloaded.

    Returns the number of those that pass alone and do not under a table.
    """
    built, differences = build(launcher, fortran=True), 0
    alone = run_alone(launcher, built)
    for name, table in preload_tables(launcher.version()).items():
        with tempfile.TemporaryDirectory() as place:
            side = preloaded(table, launcher, Path(place))
            found = compare(launcher, built, side, alone)
            calls = calls_of_rules(side)
        used = sum(map(bool, calls.values()))
        print(
            f"{launcher.version()}, {name}: {found}\n"
            f"  {calls.total()} calls followed {used} of {len(calls)} rules",
            *(f"  differs: {entry}: {why}" for entry, why in found.failed.items()),
            sep="\n",
            flush=True,
        )
        differences += len(found.failed)
    return differences


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["fortran"]:
            sys.exit(compare_fortran(Launcher.find(python=Path(sys.argv[2]))) > 0)
        print(download())
        for folder in _build_for_both():
            print(f"{folder}: {len(entries(folder))} entries")
    except OSError as reason:
        sys.exit(f"MPICH's suite is left out: {reason}")
