"""Calls of which one rank dies, stops for a time or is late, on the real library.

They are made under a table, and by the library alone, with which they are compared: a rule is as
safe as the library where it has the same outcomes.
"""

from __future__ import annotations

import json
from pathlib import Path

from tuner.base.errors import LaunchFailedError, LaunchTimeoutError
from tuner.base.progress import ProgressCallback, no_progress
from tuner.core.peer_faults import ERROR, FAULTS, HANG, SUCCESS, PeerFaults
from tuner.core.table import OPERATORS, Rule, TuningTable, write_table
from tuner.launch import Hosts, Launcher, ShapeLauncher
from tuner.launch.rank_program import rank_arguments
from tuner.launch.shared_directory import shared_directory
from tuner.validation.acceptance import timed_sizes

PROGRAM = rank_arguments("tuner.rank_programs.faulty_rank")
START_LIMIT_S = 300.0  # in which the ranks make the call without a fault
LIMIT_S = 60.0  # after the fault: a launcher that hears of a rank's end ends the others in seconds
READY = "ready"  # printed by rank 0 before the fault


def find_peer_faults(
    table: TuningTable,
    launcher: Launcher,
    hosts: Hosts,
    *,
    limit: float = LIMIT_S,
    progress: ProgressCallback = no_progress,
) -> list[PeerFaults]:
    """Make one call of every rule other than the default under each fault.

    limit   seconds after a fault from which on ranks hang

    Raises ProbeError where ranks cannot be started at all.
    """
    rules = [rule for rule in table.rules if not rule.choice.is_default]
    sizes = [sizes[len(sizes) // 2] for sizes in map(timed_sizes, rules)]
    starter, found = ShapeLauncher(launcher, hosts), list[PeerFaults]()
    with shared_directory(hosts.is_local) as place:
        path = place / "table.json"
        write_table(table, path)
        for number, (rule, nbytes) in enumerate(zip(rules, sizes, strict=True)):
            sides = [
                tuple(outcome(starter, rule, nbytes, fault, source, limit) for fault in FAULTS)
                for source in (path, None)
            ]
            found.append(PeerFaults(rule, nbytes, *sides))
            progress(number + 1, len(rules))
    return found


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
        return limit

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
