"""Our tuner plugin in the hands of a program that calls it as NCCL does."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.ladders import CLUSTER, Rungs, table_of
from tests.support.waiting import patience
from tuner.core.collective import Collective
from tuner.core.table import Rule, RuleKey, TuningTable
from tuner.formats.nccl.plugin import (
    COMPILER_FLAGS,
    LIBRARY_FILE,
    RULES_FILE,
    SOURCE,
    compiler_command,
    with_digest_header,
)

CALLER = Path(__file__).with_name("nccl_caller.c")
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
