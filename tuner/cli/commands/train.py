"""Learn from measured tables, find out how good that is on calls left out, and keep the selector:
a directory that `tuner select` asks."""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import require_writable_file, write_atomically
from tuner.base.errors import InputError
from tuner.base.progress import StageCallback, subtask_progress, with_eta
from tuner.base.units import format_size, plural
from tuner.cli.commands.evaluate import NOTHING_TO_CHOOSE, add_input_options, read_cases
from tuner.cli.options.argument_types import file_option
from tuner.cli.terminal.output import (
    finish_command,
    print_cautions,
    print_result,
    print_table,
    print_text,
    warn,
)
from tuner.cli.terminal.progress import Display
from tuner.core.path_classes import BLOCK
from tuner.select.cases import (
    LEAVE_NODE_COUNT_OUT,
    LEAVE_SIZE_OUT,
    NEW_MACHINE,
    EvaluationCase,
    drop_algorithms,
    group_cases,
    with_alternatives,
)
from tuner.select.dataset import no_simulation
from tuner.select.evaluate import DEFAULT_LABEL, TUNER, TUNER_GUARDED, evaluate, selector_trainers
from tuner.select.persistence import (
    MANIFEST_FILE,
    SELECTOR_FILE,
    Manifest,
    TrainingTable,
    package_versions,
    write_selector,
)
from tuner.workflows.known_defaults import (
    DefaultCounts,
    default_algorithms,
    fill_in_defaults,
    known_defaults,
)

MODEL_CARD_FILE = "README.md"
SHOWN_SELECTORS = (TUNER, TUNER_GUARDED, "nearest", DEFAULT_LABEL)
EXAMPLES = """examples:
  tuner train leonardo.csv lumi.csv fugaku.csv --out models/mine
  tuner train m.ndjson --out models/mine
  tuner select models/mine --group "lumi cray_mpich 8.1.29" --collective allreduce \\
      --nodes 12 --ranks 12 --size 1MiB

Regret is held out: of node counts that were left out, of sizes where there is only one node count,
and of whole machines where several have algorithms of the same names."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_input_options(parser)
    file_option(parser, "--out", "directory to write", required=True, metavar="DIRECTORY")
    finish_command(parser, run)


def run(options: argparse.Namespace) -> None:
    """Read cases, train a selector, evaluate it on held-out calls, and write it."""
    for name in (SELECTOR_FILE, MANIFEST_FILE, MODEL_CARD_FILE):
        require_writable_file(options.out / name, *options.files)
    known = package_versions()
    read = read_cases(options.files, options.format, no_simulation, options.pooled)
    measured = [case for case in read if case.point.placement == BLOCK]
    if len(measured) < len(read):
        left = plural(len(read) - len(measured), "call")
        warn(f"left out, since a selector knows none: {left} of cyclic ranks")
    cases = drop_algorithms(fill_in_defaults(measured), options.exclude_algorithms)
    if not with_alternatives(cases):
        raise InputError(NOTHING_TO_CHOOSE)
    trained = TrainingTable.from_cases(cases)
    with Display().stage("asking for what was left out") as report:
        held_out = _held_out(cases, report)
    counts = DefaultCounts.of(measured)
    manifest = Manifest(_hashes(options.files), known, held_out, default_algorithms(cases))
    told = model_card(trained, manifest)
    write_selector(trained, manifest, options.out)
    write_atomically(options.out / MODEL_CARD_FILE, told)
    record = {"groups": trained.groups, "held_out": held_out, "defaults": asdict(counts)}
    print_result(options.json, record, lambda: _print(held_out, counts))


def _hashes(files: Sequence[Path]) -> dict[str, str]:
    """Return the SHA-256 of each file by its name, or by its path if names are not unique."""
    named = Counter(path.name for path in set(files))
    return {
        path.name if named[path.name] == 1 else str(path): sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def _held_out(cases: Sequence[EvaluationCase], report: StageCallback) -> dict[str, dict[str, Any]]:
    """Return the regrets of every set that leaves something to choose and to learn from."""
    asked = [(name, own, _protocol(own)) for name, own in group_cases(cases).items()]
    asked += [
        (f"{name}, all machines", own, NEW_MACHINE)
        for name, own in group_cases(cases, pooled=True).items()
        if len({c.group for c in own}) > 1
    ]
    found, tell = dict[str, dict[str, Any]](), with_eta(report)
    for number, (name, own, protocol) in enumerate(asked):
        trainers = selector_trainers(no_simulation, ("nearest",), known_defaults)
        part = subtask_progress(tell, number, len(asked), name)
        scores = evaluate(own, protocol, trainers, progress=part)
        if TUNER in scores:
            records = {each: scores[each].to_record() for each in SHOWN_SELECTORS if each in scores}
            found[name] = {"protocol": protocol, **records}
    return found


def _protocol(cases: Sequence[EvaluationCase]) -> str:
    return LEAVE_NODE_COUNT_OUT if len({case.point.nodes for case in cases}) > 1 else LEAVE_SIZE_OUT


COLUMNS = ("calls of", "left out", "calls", *SHOWN_SELECTORS)


def _rows(held_out: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each set: name, what was held out, calls, and regrets in percent."""
    for name, told in held_out.items():
        calls = str(told[TUNER]["points"])
        means = [_percent(told[each]) if each in told else "" for each in SHOWN_SELECTORS]
        yield name, told["protocol"].removeprefix("leave-one-").removesuffix("-out"), calls, *means


def _percent(told: Mapping[str, float]) -> str:
    return f"{100 * told['mean']:.1f} / {100 * told['p95']:.0f}"


def _print(held_out: Mapping[str, Mapping[str, Any]], counts: DefaultCounts) -> None:
    rows = list(_rows(held_out))
    print_table(
        "regret of calls left out: mean / 95th percentile, %",
        COLUMNS,
        rows,
        right=COLUMNS[2:],
        droppable=("nearest", "calls", TUNER_GUARDED, "left out"),
        wrappable=(COLUMNS[0], "left out"),
    )
    print_text(
        f"The library's default was measured in {counts.measured} of"
        f" {plural(counts.calls, 'call')}; in {counts.by_rules} of them its rules tell what it"
        " runs."
    )
    print_cautions(
        f"{name}: {TUNER} has no less regret than the default on calls left out."
        for name, told in held_out.items()
        if DEFAULT_LABEL in told and told[TUNER]["mean"] >= told[DEFAULT_LABEL]["mean"]
    )


def model_card(trained: TrainingTable, manifest: Manifest) -> str:
    """Return what a person should know before using the selector, as Markdown.

    Raises InputError if nothing could be held out.
    """
    if not manifest.held_out:
        raise InputError("nothing could be left out: measure two sizes or node counts at least")
    made = ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    return "\n".join(
        [
            "# Trained selector",
            "",
            (
                f"Learned from {len(trained.seconds)} times, with {made}. Written by `tuner"
                " train`, as is"
            ),
            f"`{MANIFEST_FILE}`, which has the regrets in full.",
            "",
            "## Data",
            "",
            *_table(("file", "SHA-256"), manifest.data.items()),
            "",
            "## Held-out regret: mean / 95th percentile, %",
            "",
            *_table(COLUMNS, _rows(manifest.held_out)),
            "",
            "## Support",
            "",
            "Between these, and up to eight times beyond them in nodes, ranks per node and sizes,"
            " it",
            "guesses; elsewhere it says `default`.",
            "",
            *_table(("like", "calls of", "nodes", "ranks per node", "sizes"), _support(trained)),
            "",
        ]
    )


def _table(columns: Sequence[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |"
    yield "|---" * len(columns) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def _support(trained: TrainingTable) -> Iterator[tuple[str, ...]]:
    columns = (trained.group, trained.collective, trained.memory)
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for n, key in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        found[key].append(n)
    for (group, collective, memory), own in sorted(found.items()):
        sizes = [format_size(int(pick(trained.nbytes[own]))) for pick in (min, max)]
        shapes = [
            ", ".join(map(str, sorted(set(column[own].tolist()))))
            for column in (trained.nodes, trained.ppn)
        ]
        yield group, f"{collective}, {memory}", *shapes, " to ".join(sizes)
