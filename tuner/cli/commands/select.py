"""Say what a tuning table, or a selector that `tuner train` made, decides for one call, and why."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.base.errors import InputError, UsageError
from tuner.base.units import (
    format_exact_size,
    format_size,
    format_time,
    humanize,
    parse_size,
    plural,
)
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option
from tuner.cli.terminal.output import (
    finish_command,
    print_cautions,
    print_result,
    print_table,
    print_text,
)
from tuner.core.collective import Collective
from tuner.core.path_classes import BLOCK, PLACEMENTS
from tuner.core.table import (
    LEARNED,
    MEASURED,
    NO_EVIDENCE,
    SIMULATED,
    AlgorithmChoice,
    Rule,
    RuleKey,
    TuningTable,
    read_table,
    rule_record,
)
from tuner.select.lookup import lookup_rule
from tuner.topology import CUDA, HOST

if TYPE_CHECKING:
    from tuner.select.dataset import CallPoint

EXAMPLES = """examples:
  tuner select tuner-out/openmpi/table.json --collective bcast --ranks 4 --size 64KiB
  tuner select tuner-out/openmpi/table.json --collective allreduce --ranks 4 --size 1MiB \\
      --operators commutative --json
  tuner select models/reference --group "lumi cray_mpich 8.1.29" --collective allreduce \\
      --nodes 12 --ppn 1 --size 1MiB

Two of --ranks, --nodes and --ppn tell the third; --ranks alone means ranks on one node."""


UNMEASURED_NOTES = {
    LEARNED: "not measured: the choice is learned from other calls.",
    SIMULATED: "not measured: the choice rests on simulated times alone.",
    NO_EVIDENCE: "not measured: nothing is known of such calls, so the library decides.",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "table", type=Path, help="table written by `tuner tune`, or a directory by `tuner train`"
    )
    parser.add_argument("--collective", type=argument_types.collective, required=True)
    count_option(parser, "--ranks", "ranks of the communicator (default: --nodes times --ppn)")
    count_option(
        parser,
        "--nodes",
        "number of nodes, each with the same number of ranks (default: --ranks divided by"
        " --ppn; without --ppn 1)",
        metavar="N",
    )
    count_option(
        parser, "--ppn", "ranks per node (default: --ranks divided by --nodes)", metavar="N"
    )
    _add_call_options(parser)
    finish_command(parser, run)


def _add_call_options(parser: argparse.ArgumentParser) -> None:
    """Declare what else decides about a call."""
    parser.add_argument(
        "--placement",
        choices=PLACEMENTS,
        default=BLOCK,
        help="rank placement: consecutive ranks share a node (default), or cyclic, dealt to the"
        " nodes one by one",
    )
    parser.add_argument(
        "--size", type=parse_size, required=True, help="size of the buffer, such as 64KiB"
    )
    parser.add_argument(
        "--operators",
        choices=("any", "commutative"),
        default="any",
        help="operators of the reduction: any (default), or commutative, which may change the"
        " order of the operands",
    )
    parser.add_argument(
        "--memory", choices=(HOST, CUDA), default=HOST, help="memory of the buffers (default: host)"
    )
    parser.add_argument(
        "--group",
        default="",
        metavar="GROUP",
        help="cluster and library of a trained selector that this one resembles",
    )


def run(options: argparse.Namespace) -> None:
    """Look up one call in a table, or ask a trained selector."""
    nodes, ppn = resolve_shape(options.ranks, options.nodes, options.ppn)
    path, placement = options.table, options.placement
    key = RuleKey(options.collective, nodes, ppn, options.memory, options.operators, placement)
    if path.is_dir():
        if placement != BLOCK:
            raise UsageError("a selector knows consecutive ranks alone: leave --placement out")
        point, record = _query_selector(path, options.group, key, options.size)
        return print_result(options.json, record, lambda: _print_asked(record, point))
    if options.group:
        raise UsageError(
            f"--group is for a trained selector; {path} is a table of one cluster: leave it out"
        )
    table = read_table(path)
    try:
        rule = lookup_rule(table, key, options.size)
    except InputError as reason:
        raise InputError(f"{reason}{_alternative_hint(table, key, placement)}") from None
    return print_result(options.json, rule_record(rule), lambda: _print(rule))


def resolve_shape(p: int | None, nodes: int | None, ppn: int | None) -> tuple[int, int]:
    """Return the number of nodes and of ranks per node, given two of the three numbers.

    A missing `nodes` counts as 1 unless both `p` and `ppn` are given.
    Raises UsageError where they do not suffice, or contradict each other.
    """
    if p is None and ppn is None:
        raise UsageError("the number of ranks is missing: give --ranks, or --nodes and --ppn")
    if p is None:
        return nodes or 1, ppn or 1
    if ppn is None:
        nodes = nodes or 1
        if p % nodes:
            raise UsageError(
                f"{plural(p, 'rank')} cannot be spread evenly over {plural(nodes, 'node')}: give"
                " --ranks as a multiple of --nodes"
            )
        return nodes, p // nodes
    if nodes is None and p % ppn:
        raise UsageError(
            f"{plural(p, 'rank')} cannot be spread over nodes of {ppn} each: give --ranks as a"
            " multiple of --ppn"
        )
    if nodes is not None and nodes * ppn != p:
        raise UsageError(
            f"{plural(nodes, 'node')} of {plural(ppn, 'rank')} each have {nodes * ppn} ranks, not"
            f" {p}: leave out one of --ranks, --nodes and --ppn"
        )
    return p // ppn, ppn


def _alternative_hint(table: TuningTable, key: RuleKey, placement: str) -> str:
    """Return what to add to the command so that the table has a rule, or "".

    The rule may be for another number of nodes, or for operators that commute.
    """
    asked = {
        replace(key, nodes=one.nodes, ppn=one.ppn, placement=placement, operators=operators)
        for one in table.keys
        if one.p == key.p
        for operators in (key.operators, "any")
    }
    known = sorted({one.nodes for one in asked.intersection(table.keys)})
    if known:
        return f": add {' or '.join(f'--nodes {nodes}' for nodes in known)}"
    if replace(key, operators="commutative") in table.keys:
        return ": only for operators that commute; add --operators commutative"
    return ""


def _query_selector(
    path: Path, group: str, key: RuleKey, nbytes: int
) -> tuple[CallPoint, dict[str, Any]]:
    """Return the choice of a trained selector with the least regret, and its guarded choice."""
    from tuner.select.dataset import (
        CallPoint,  # scikit-learn and SciPy, which tables do without
        no_simulation,
    )
    from tuner.select.persistence import read_selector

    point = CallPoint(key.collective, key.nodes, key.ppn, key.memory, nbytes, key.placement)
    trained, manifest = read_selector(path)
    selector = trained.train_selector(no_simulation, group, manifest.default_algorithms)
    known = selector.candidates(point)
    believed = {str(choice): selector.predict_seconds(point, choice) for choice in known}
    return point, {
        "choice": str(selector.choose(point)),
        "sure": str(selector.choose_guarded(point)),
        "seconds": {name: list(told) for name, told in believed.items()},
    }


def _print_asked(record: dict[str, Any], point: CallPoint) -> None:
    if not record["seconds"]:
        print_text("no evidence for this call; the default is used")
        return
    print_text(f"{humanize(record['choice'])} (least regret expected)")
    sure = "nothing" if record["sure"] == str(AlgorithmChoice()) else humanize(record["sure"])
    print_text(f"surely faster than the default: {sure}")
    if Collective(point.collective).is_reduction:
        print_text("operators were not modelled: use this for commutative ones")
    print_text("")
    told = sorted(record["seconds"].items(), key=lambda told: told[1])
    rows = [
        (
            humanize(name),
            format_time(seconds),
            f"{format_time(low)} .. {format_time(high)}",
            "chosen" if name == record["choice"] else "",
        )
        for name, (seconds, low, high) in told
    ]
    print_table(
        "",
        ("algorithm", "expected", "95 %", ""),
        rows,
        right=("expected",),
        droppable=("95 %",),
        wrappable=("algorithm",),
    )
    if record["choice"] != told[0][0]:
        print_text(_why_another(record["choice"]))


def _why_another(chosen: str) -> str:
    """Return why the choice is not the algorithm with the shortest expected time."""
    from tuner.select.dataset import MIN_GAIN

    if chosen == str(AlgorithmChoice()):
        return (
            "the default stays unless another is expected to be faster by more than"
            f" {MIN_GAIN:.0%}, by more still where not all shapes around have it; and"
            " wherever predictions were worse than the default at measured node counts"
        )
    return (
        "what won at the nearest measured call stays unless another is expected to be faster by"
        f" more than {MIN_GAIN:.0%}; by more still where not all shapes around have it"
    )


def _print(rule: Rule) -> None:
    if rule.evidence.basis != MEASURED:
        print_cautions([UNMEASURED_NOTES[rule.evidence.basis]])
    print_text(humanize(str(rule.choice)))
    end = "up" if rule.stop_bytes == math.inf else f"to below {format_exact_size(rule.stop_bytes)}"
    print_text(f"from {format_exact_size(rule.start_bytes)} {end}; evidence: {rule.evidence.basis}")
    evidence = rule.evidence  # whose times may be missing
    for nbytes, default, chosen in zip(
        evidence.nbytes, evidence.default_s, evidence.chosen_s, strict=False
    ):
        print_text(
            f"  {format_size(nbytes):>8}: default {format_time(default)},"
            f" chosen {format_time(chosen)}"
        )
