"""Say what a tuning table decides for one call, and why."""

from __future__ import annotations

import argparse
from pathlib import Path

from tuner.cli import parsing
from tuner.cli.output import add_json, console, emit
from tuner.errors import InputError
from tuner.select.lookup import lookup
from tuner.table import Key, Rule, read_table, rule_record
from tuner.units import format_size, format_time, parse_size

EXAMPLES = """examples:
  tuner select tuner-out/openmpi/table.json --collective bcast --p 4 --size 64KiB
  tuner select tuner-out/openmpi/table.json --collective allreduce --p 4 --size 1MiB \\
      --operators commutative --json"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("table", type=Path, help="table written by `tuner tune`")
    parser.add_argument("--collective", type=parsing.collective, required=True)
    parser.add_argument("--p", type=int, required=True, help="ranks of the communicator")
    parser.add_argument("--nodes", type=int, default=1, help="nodes they are on (default: 1)")
    parser.add_argument("--size", type=parse_size, required=True, help="such as 64KiB")
    parser.add_argument(
        "--operators", choices=("any", "commutative"), default="any",
        help="commutative: the reduction may change the order of the operands (default: any)",
    )  # fmt: skip
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Look the call up."""
    table = read_table(options.table)
    if options.p < 1 or options.nodes < 1 or options.p % options.nodes:
        raise InputError(
            f"{options.p} ranks cannot be spread evenly over {options.nodes} nodes:"
            " give --p as a multiple of --nodes"
        )
    ppn = options.p // options.nodes
    key = Key(options.collective, options.nodes, ppn, "host", options.operators)
    rule = lookup(table, key, options.size)
    emit(options, rule_record(rule), lambda: _print(rule))


def _print(rule: Rule) -> None:
    out = console()
    out.print(f"{rule.choice}", markup=False)
    out.print(
        f"from {format_size(rule.lo)} to below {format_size(rule.hi)}; evidence:"
        f" {rule.evidence.basis}",
        markup=False,
    )
    evidence = rule.evidence
    for nbytes, default, chosen in zip(
        evidence.nbytes, evidence.default_s, evidence.chosen_s, strict=True
    ):
        out.print(
            f"  {format_size(nbytes):>8}: default {format_time(default)},"
            f" chosen {format_time(chosen)}",
            markup=False,
        )
