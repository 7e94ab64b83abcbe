"""List the algorithms with their cost formulas and sources."""

from __future__ import annotations

import argparse
from typing import Any

from tuner.algorithms import REQUIREMENTS, Algorithm, algorithm_names, describe
from tuner.base.units import humanize
from tuner.cli.options import argument_types
from tuner.cli.terminal.output import finish_command, print_result, print_text
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice

EXAMPLES = """examples:
  tuner algorithms
  tuner algorithms --collective bcast
  tuner algorithms --collective allreduce --json

In the formulas alpha is the latency (s), beta the time per byte (s/B), gamma the reduction time
per byte (s/B), m the size of the message (B), p the number of ranks, S the number of segments."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--collective", type=argument_types.collective, help="collective to list (default: all)"
    )
    finish_command(parser, run)


def run(options: argparse.Namespace) -> None:
    """Print all algorithms, or those of one collective."""
    wanted = [options.collective] if options.collective else list(Collective)
    found = [
        describe(owner, name) for owner in wanted for name in algorithm_names(owner, REQUIREMENTS)
    ]
    print_result(options.json, [_record(algorithm) for algorithm in found], lambda: _print(found))


def _record(algorithm: Algorithm) -> dict[str, Any]:
    return {
        "collective": algorithm.collective.value,
        "algorithm": algorithm.name,
        "summary": algorithm.summary,
        "formula": algorithm.formula,
        "source": algorithm.source,
        "params": dict(algorithm.params),
        "needs": list(algorithm.requires),
    }


def _print(algorithms: list[Algorithm]) -> None:
    previous = None
    for algorithm in algorithms:
        if algorithm.collective != previous:
            print_text(f"\n{algorithm.collective}", style="bold")
            previous = algorithm.collective
        print_text(
            f"  {humanize(str(AlgorithmChoice(algorithm.name, algorithm.params)))}", style="bold"
        )
        needs = "; ".join(REQUIREMENTS[need] for need in algorithm.requires)
        for label, text in (
            ("", algorithm.summary),
            ("needs   ", needs),
            ("cost    ", algorithm.formula),
            ("source  ", algorithm.source),
        ):
            if text:
                print_text(f"      {label}{text}")
