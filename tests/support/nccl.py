"""Our tuner plugin in the hands of a program that calls it as NCCL does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from tests.support.ladders import CLUSTER, Rungs, table_of
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, Rule, RuleKey, TuningTable
from tuner.formats.nccl.plugin import (
    COMPILER_FLAGS,
    HEADER,
    LIBRARY_FILE,
    RULES_FILE,
    SOURCE,
    compiler_command,
    with_digest_header,
)
from tuner.mpi_libraries.nccl.names import algo_protos_of, choice_of

CALLER = Path(__file__).with_name("nccl_caller.c")
DECLARATIONS = Path(__file__).with_name("nccl_declarations")  # in place of NCCL's header
SANITIZERS = {"": "-O2", "address": "-fsanitize=address,undefined", "thread": "-fsanitize=thread"}
COLLECTIVES = (
    Collective.BCAST,
    Collective.REDUCE,
    Collective.ALLGATHER,
    Collective.REDUCE_SCATTER,
    Collective.ALLREDUCE,
)
ALGORITHMS = ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
PROTOCOLS = ("ll", "ll128", "simple")
LARGEST = 2**64 - 1
UNTOUCHED = (-1, -1, -1)
Shape = tuple[int, int]  # nodes, ranks per node
EVERY_SHAPE: tuple[Shape, ...] = ((1, 8), (2, 8), (4, 4), (3, 5))  # two of them have 16 ranks


@dataclass(frozen=True)
class Said:
    """What a run printed: results of the commands in order, and messages as (level, text)."""

    results: tuple[str, ...]
    messages: tuple[tuple[int, str], ...]

    @property
    def answers(self) -> tuple[tuple[int, ...], ...]:
        """Algorithm, protocol, channels of each `run_calls` and `threads`; -1 for untouched."""
        return tuple(tuple(map(int, line.split())) for line in self.results if line.count(" ") == 2)


@dataclass(frozen=True)
class Caller:
    """The calling program and the plugin, compiled alike; the rules lie beside the plugin."""

    program: Path
    library: Path

    @property
    def rules(self) -> Path:
        """The file that the plugin reads."""
        return self.library.parent / RULES_FILE

    def run(self, commands: Sequence[str], environment: Mapping[str, str] | None = None) -> Said:
        """Carry out commands; fails where the plugin breaks the interface or a sanitizer speaks."""
        done = subprocess.run(
            [self.program, self.library],
            input="".join(f"{line}\n" for line in commands),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=patience(),
            env={"PATH": os.environ["PATH"], **(environment or {})},
        )
        assert done.returncode == 0, (done.returncode, done.stderr[-3000:], done.stdout[-300:])
        assert done.stderr == ""
        lines = done.stdout.splitlines()
        logged = [line.split(" ", 2) for line in lines if line.startswith("log ")]
        return Said(
            tuple(line for line in lines if not line.startswith("log ")),
            tuple((int(level), text) for _, level, text in logged),
        )

    def with_rows(self, rows: str) -> Caller:
        """Put these rows, under the header that belongs to them, beside the plugin."""
        self.rules.write_text(with_digest_header(rows))
        return self


def has(sanitizer: str, folder: Path) -> bool:
    """Whether a program that does nothing can be made and run under a sanitizer."""
    source, program = folder / "nothing.c", folder / "nothing"
    source.write_text("int main(void) { return 0; }\n")
    commands: tuple[list[str | Path], ...] = (
        [*compiler_command(), SANITIZERS[sanitizer], "-o", program, source],
        [program],
    )
    return all(
        subprocess.run(command, capture_output=True, check=False).returncode == 0
        for command in commands
    )


def build(folder: Path, sanitizer: str = "", source: Path = SOURCE) -> Caller:
    """Compile both; raises CalledProcessError where the compiler cannot."""
    made = Caller(folder / "caller", folder / LIBRARY_FILE)
    flag = SANITIZERS[sanitizer]
    options = ["-g", flag, *(["-fno-sanitize-recover=all"] if sanitizer == "address" else [])]
    commands: tuple[list[str | Path], ...] = (
        [*compiler_command(), *COMPILER_FLAGS, *options, "-o", made.library, source, "-ldl"],
        [
            *compiler_command(),
            "-std=gnu11",
            *options,
            "-o",
            made.program,
            CALLER,
            "-ldl",
            "-pthread",
        ],
    )
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    return made


@dataclass(frozen=True)
class Asker:
    """A program linked with the library; the rules lie beside that."""

    program: Path

    def run(self, commands: Sequence[str], rows: str, **environment: str) -> tuple[list[str], str]:
        """Return the lines printed under these rows, and what was written to standard error."""
        (self.program.parent / RULES_FILE).write_text(with_digest_header(rows))
        return self.run_as_it_is(commands, **environment)

    def run_as_it_is(self, commands: Sequence[str], **environment: str) -> tuple[list[str], str]:
        """Return the same under the rules that are there."""
        done = subprocess.run(
            [self.program],
            input="".join(f"{line}\n" for line in commands),
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(),
            env={"PATH": os.environ["PATH"], **environment},
        )
        assert done.returncode == 0, (done.returncode, done.stderr)
        return done.stdout.splitlines(), done.stderr


def build_asker(folder: Path, sanitizer: str = "") -> Asker:
    """Compile the library and the program, with every warning an error."""
    options = ["-g", SANITIZERS[sanitizer], "-Wall", "-Wextra", "-Werror"]
    library, program = folder / LIBRARY_FILE, folder / "asker"
    options_of_caller = ["-std=gnu11", *options, f"-I{DECLARATIONS}", f"-I{HEADER.parent}"]
    commands: list[list[str | Path]] = [
        [*compiler_command(), *COMPILER_FLAGS, *options, "-o", library, SOURCE, "-ldl"],
        [
            *compiler_command(),
            *options_of_caller,
            "-o",
            program,
            CALLER.with_name("nccl_asker.c"),
            library,
            f"-Wl,-rpath,{folder}",
            "-pthread",
        ],
    ]
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    return Asker(program)


def copied(caller: Caller, folder: Path) -> Caller:
    """The same programs in another folder, for rules of their own."""
    shutil.copy(caller.library, folder / LIBRARY_FILE)
    return Caller(caller.program, folder / LIBRARY_FILE)


def on_shapes(
    ladders: Mapping[tuple[Collective, Shape], Rungs], library: str = "nccl 2.30.7"
) -> TuningTable:
    """A table of device memory from (collective, (nodes, ranks per node)) -> rungs."""
    rules = list[Rule]()
    for (collective, (nodes, ppn)), rungs in ladders.items():
        for rule in table_of({(collective, ppn): rungs}).rules:
            key = RuleKey(collective, nodes, ppn, "cuda")
            rules.append(Rule(key, rule.start_bytes, rule.stop_bytes, rule.choice, rule.evidence))
    return TuningTable(CLUSTER, library, tuple(rules))


def every_way() -> TuningTable:
    """Return each way of each collective on every shape, with and without channels, and gaps."""
    ladders = {}
    for i, collective in enumerate(COLLECTIVES):
        ways = [
            choice_of(way, channels)
            for way in algo_protos_of(collective)
            for channels in (0, 1, 64)
        ]
        choices = [
            choice
            for pair in zip(ways, cycle([AlgorithmChoice(), None, None]))
            for choice in pair
            if choice is not None
        ]
        for j, shape in enumerate(EVERY_SHAPE):
            turned = islice(cycle(choices), 3 * (i + j), 3 * (i + j) + len(choices))
            ladders[collective, shape] = [
                (0 if k == 0 else (k * (997 + 13 * i + j)) ** 2, choice)
                for k, choice in enumerate(turned)
            ]
    return on_shapes(ladders)


def sizes_of(table: TuningTable, key: RuleKey) -> list[int]:
    """Return every bound, the bytes beside it, and the ends."""
    bounds = {rule.start_bytes for rule in table.rules_for(key)}
    near = {n + d for n in bounds for d in (-1, 0, 1) if n + d >= 0}
    return sorted(near | {0, 1, 2**32 - 1, 2**32, 2**63, LARGEST})


def answer(table: TuningTable, key: RuleKey, nbytes: int, version: int = 5) -> tuple[int, int, int]:
    """What the plugin has to say about a call, by the table itself."""
    rule = table.lookup(key, nbytes)
    if rule is None or rule.choice.is_default:
        return UNTOUCHED
    algorithm, _, protocol = rule.choice.algorithm.rpartition("_")
    channels = rule.choice.params.get("channels", 0) or -1
    unlimited = algorithm.startswith("collnet") or (algorithm == "nvls" and key.nodes > 1)
    if version == 2 and (algorithm not in ("ring", "tree") or protocol == "ll128"):
        return UNTOUCHED
    if version == 2 or unlimited:
        channels = -1
    return ALGORITHMS.index(algorithm), PROTOCOLS.index(protocol), channels
