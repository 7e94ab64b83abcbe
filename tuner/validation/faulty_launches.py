"""Calls of which one rank dies, stops for a time or is late, on the real library.

They are made under a table, and by the library alone, with which they are compared: a rule is as
safe as the library where it has the same outcomes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from tuner.base.errors import LaunchFailedError, LaunchTimeoutError, ProbeError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.path_classes import HOST
from tuner.core.peer_faults import ERROR, FAILS, FAULTS, HANG, READY, SUCCESS, PeerFaults
from tuner.core.table import OPERATORS, Rule, TuningTable, write_table
from tuner.formats.rules_by_ranks import describe_rule
from tuner.launch import Hosts, Launcher, ShapeLauncher
from tuner.launch.rank_program import rank_arguments
from tuner.launch.shared_directory import shared_directory
from tuner.validation.acceptance import timed_sizes

PROGRAM = rank_arguments("tuner.rank_programs.faulty_rank")
START_LIMIT_S = 300.0  # in which the ranks make the call without a fault
LIMIT_S = 60.0  # after the fault: a launcher that hears of a rank's end ends the others in seconds


def calls_to_try(table: TuningTable) -> dict[Rule, int]:
    """Return the rules whose calls can be tried, and the bytes of one of these calls.

    The default is left out, and what numpy's arrays do not reach: rules for memory of GPUs.
    """
    rules = [one for one in table.rules if not one.choice.is_default and one.key.memory == HOST]
    return {rule: sizes[len(sizes) // 2] for rule in rules if (sizes := timed_sizes(rule))}


def find_peer_faults(
    table: TuningTable,
    launcher: Launcher,
    hosts: Hosts,
    known: Collection[Rule] = (),
    *,
    limit: float = LIMIT_S,
    progress: ProgressCallback = no_progress,
    on_warning: Callable[[str], None] = lambda _: None,
) -> Iterator[PeerFaults]:
    """Make one call of every rule of `calls_to_try` under each fault; yield what became of it.

    known       rules that are left out
    limit       seconds after a fault from which on ranks hang
    on_warning  called with the reason why ranks fail before a fault

    Raises ProbeError where they fail with the library alone.
    """
    tried = [(rule, size) for rule, size in calls_to_try(table).items() if rule not in known]
    starter = ShapeLauncher(launcher, hosts)

    def outcome_with_table(rule: Rule, nbytes: int, fault: str, path: Path) -> str:
        try:
            return outcome(starter, rule, nbytes, fault, path, limit)
        except ProbeError as reason:
            on_warning(f"{describe_rule(rule)}: the ranks fail before a fault: {reason}")
            return FAILS

    with shared_directory(hosts.is_local) as place:
        path = place / "table.json"
        write_table(table, path)
        for number, (rule, nbytes) in enumerate(tried):
            alone = (outcome(starter, rule, nbytes, fault, None, limit) for fault in FAULTS)
            own = (outcome_with_table(rule, nbytes, fault, path) for fault in FAULTS)
            yield PeerFaults(
                rule,
                nbytes,
                default=tuple(alone),
                outcomes=tuple(own),
                hosts=hosts.names,
                launcher=launcher.start_command,
            )
            progress(number + 1, len(tried))


def outcome(
    starter: ShapeLauncher, rule: Rule, nbytes: int, fault: str, table: Path | None, limit: float
) -> str:
    """Return the outcome of a call of which the last rank has a fault.

    table   file that the ranks follow; None for the library alone

    Raises ProbeError where the ranks fail or hang before the fault.
    """
    request = {
        "table": table and str(table),
        "fault": fault,
        "collective": rule.key.collective,
        "nbytes": nbytes,
        "commutative": rule.key.operators != OPERATORS[0],
    }
    profile, lines = starter.launcher.profile, list[str]()

    def note(line: str) -> float:
        lines.append(line)
        return limit if READY in lines else START_LIMIT_S

    try:
        starter.run(
            rule.key.nodes,
            rule.key.ppn,
            [*PROGRAM, json.dumps(request)],
            environment=profile.environment(profile.forcing_settings),
            on_line=note,
            silence_timeout=START_LIMIT_S,
        )
    except (LaunchFailedError, LaunchTimeoutError) as reason:
        if READY not in lines:
            raise
        return ERROR if isinstance(reason, LaunchFailedError) else HANG
    return SUCCESS
