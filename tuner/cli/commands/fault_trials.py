"""`tuner table faults`: what becomes of a call of which one rank dies, stops or is late."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tuner.base.atomic_io import require_writable_file
from tuner.base.errors import InputError, TunerError, UsageError
from tuner.base.progress import progress_from_counts
from tuner.base.units import format_size, plural
from tuner.cli.commands.comparisons import open_table
from tuner.cli.options import host_options, native_options
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import add_subcommand, print_result, print_table, print_text, warn
from tuner.cli.terminal.progress import Display
from tuner.core.peer_faults import (
    ERROR,
    FAULTS,
    ORIGIN,
    PEER_FAULTS,
    PeerFaults,
    stated_outcomes,
    table_digest,
)
from tuner.core.table import Rule, TuningTable, read_table, write_table
from tuner.launch import Hosts, Launcher

EXAMPLES = """examples:
  tuner table faults table.json
  tuner table faults table.json --hosts node1,node2,node3,node4 --out known.json
  tuner table faults table.json --demand error --out safe.json

Every rule makes a call in which the last rank is killed, one in which it is stopped for two
seconds, and one in which it is two seconds late, and the library alone makes the same calls. The
outcome is `error` where the job ends with a status other than 0, `success` where every rank
finishes, and `hang` otherwise; `fails` where the ranks fail before they have the fault.

Each rule takes about 20 seconds, and its outcomes are told and written to --out at once. Rules
whose outcomes the table or an earlier --out states for these hosts and this launcher are not tried
again without --restart, unless the ranks failed. Rules for memory of GPUs, cyclic ranks and calls
with counts of each rank's own are not tried.

Exit status: 1 when a rule has another outcome than the library alone."""
DEMANDS = (ERROR,)


def add_subcommand_faults(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the action."""
    faults = add_subcommand(
        actions, "faults", "say what each rule does when a rank dies", EXAMPLES, run_faults
    )
    faults.add_argument("table", type=Path)
    file_option(faults, "--out", "table to write, which states the outcomes, and is continued")
    faults.add_argument("--restart", action="store_true", help="try all rules instead of going on")
    faults.add_argument(
        "--demand",
        choices=DEMANDS,
        help="outcome when a rank dies, without which a rule is left to the default in --out, as"
        " are rules until they are tried",
    )
    host_options.add_host_options(faults)
    count_option(faults, "--ppn", "ranks per node of the rules to try (default: any)", metavar="N")
    file_option(
        faults,
        "--python",
        "interpreter of the environment with the table's library",
        metavar="PYTHON",
    )


def run_faults(options: argparse.Namespace) -> int:
    """Print the outcomes and write the table; return 1 where one is not the library's own."""
    from tuner.validation.faulty_launches import calls_to_try  # SciPy, which `show` lacks

    if options.demand and not options.out:
        raise UsageError("--demand needs --out, the table to write")
    if options.out:
        require_writable_file(options.out, options.table)
    there = host_options.resolve_hosts(options)
    whole = read_table(options.table)
    asked = native_options.read_table_part(options.table, options.ppn)
    table, launcher = open_table(asked, options.table, options.python, there, options.launcher)
    rules = calls_to_try(table).keys()
    found = [
        one
        for one in ([] if options.restart else known_outcomes(whole, options.out))
        if one.rule not in rules or one.holds_for(there.names, launcher.start_command)
    ]

    def keep() -> None:
        if options.out:
            write_table(state_outcomes(whole, found, options.demand), options.out)
            options.resumes = bool(found)

    def show(out: Path | None) -> None:
        own = [one for one in found if one.rule in rules]
        record = {"rules": [one.as_record() for one in own]}
        untried = len(_rules_to_state(whole)) - len(found)
        print_result(options.json, record, lambda: _print(own, untried, options.demand, out))

    try:
        try_rules(table, launcher, there, found, keep)
        keep()
    except (KeyboardInterrupt, TunerError):
        if found:
            show(None)
        raise
    show(options.out)
    return int(any(not one.is_as_default for one in found if one.rule in rules))


def known_outcomes(table: TuningTable, out: Path | None) -> list[PeerFaults]:
    """Return what a table, and the file that is continued, state of its rules.

    Raises InputError for a file that was not written for this table.
    """
    rules = _rules_to_state(table)
    stated = {one.rule: one for one in stated_outcomes(table, rules)}
    if out and out.is_file():
        kept = read_table(out)
        origin = kept.provenance.get(PEER_FAULTS)
        if not isinstance(origin, Mapping) or origin.get(ORIGIN) != table_digest(table):
            raise InputError(
                f"{out}: expected a table of outcomes that this command wrote for the same table:"
                " give another name (--out), or write it anew with --restart"
            )
        stated |= {one.rule: one for one in stated_outcomes(kept, rules)}
    return [*stated.values()]


def _rules_to_state(table: TuningTable) -> list[Rule]:
    return [rule for rule in table.rules if not rule.choice.is_default]


def try_rules(
    table: TuningTable,
    launcher: Launcher,
    hosts: Hosts,
    found: list[PeerFaults],
    keep: Callable[[], None],
) -> None:
    """Add the outcomes of the other rules to `found`, and tell each as soon as it is known.

    keep    called after each
    """
    from tuner.validation.faulty_launches import find_peer_faults  # SciPy, as above

    display, known = Display(), [one.rule for one in found if one.rule in table.rules]
    if known:
        display.note(f"{plural(len(known), 'rule')} tried before; --restart tries all again")
    with display.stage(f"ending ranks of {table.library}") as report:
        progress = progress_from_counts(report)
        for one in find_peer_faults(
            table, launcher, hosts, known, progress=progress, on_warning=warn
        ):
            found.append(one)
            keep()
            display.note(str(one))


def state_outcomes(
    table: TuningTable, found: Sequence[PeerFaults], demand: str | None
) -> TuningTable:
    """Return the table with the outcomes, without the rules not known to have a demanded one."""
    from tuner.validation.acceptance import withdraw_rules  # SciPy, as above

    able = {one.rule for one in found if one.when_dead == demand}
    lacking = [rule for rule in _rules_to_state(table) if demand and rule not in able]
    kept = withdraw_rules(table, lacking) if lacking else table
    stated = {
        ORIGIN: table_digest(table),
        "rules": [one.as_record() for one in found],
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    provenance = {**table.provenance, PEER_FAULTS: stated}
    return TuningTable(table.cluster, table.library, kept.rules, provenance)


def _print(found: Sequence[PeerFaults], untried: int, demand: str | None, out: Path | None) -> None:
    """Print a line for each rule, in how many the outcome is the library's own, and the file.

    untried     rules of which nothing is known
    """
    if found:
        _print_outcomes(found, demand)
    elif not untried:
        print_text("every rule leaves its calls to the library: there is nothing to try.")
    if untried:
        left = ", and left to the default" if demand else ""
        print_text(f"{plural(untried, 'rule')} not tried{left}.")
    if out:
        print_text(f"{out}: written")


def _print_outcomes(found: Sequence[PeerFaults], demand: str | None) -> None:
    rows = [
        (
            str(one.rule.key.collective),
            str(one.rule.key.p),
            one.rule.key.operators if one.rule.key.collective.is_reduction else "",
            format_size(one.nbytes),
            str(one.rule.choice),
            *one.outcomes,
            "" if one.is_as_default else ", ".join(one.default),
        )
        for one in found
    ]
    faults = [f"rank {fault}" for fault in FAULTS]
    columns = ("call", "ranks", "operators", "bytes", "algorithm", *faults, "library alone")
    print_table(
        "", columns, rows, right=("ranks", "bytes"), droppable=("bytes",), wrappable=("algorithm",)
    )
    alike = sum(one.is_as_default for one in found)
    print_text(f"{alike} of {plural(len(found), 'rule')} end as the library alone does.")
    lacking = sum(bool(demand) and one.when_dead != demand for one in found)
    if lacking:
        print_text(f"{plural(lacking, 'rule')} left to the default: no {demand} when a rank dies.")
