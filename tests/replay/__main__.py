"""Replay the communication of a training workload with a real MPI.

    mpirun -n 8 python -m tests.replay FILE.yaml [--table table.json] [--json]
    python -m tests.replay FILE.yaml --ranks 8 --write-plan plan.json
    mpiexec -n 8 python -m tests.replay plan.json

A rank sleeps or spins instead of computing and makes the collective calls that the prediction has,
with the fusion of the workload's framework. Times per iteration are printed beside the predicted
one. Several files take turns in one launch. Ranks without the packages of the simulator replay a
plan that was written before.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.replay.replay_plan import ReplayPlan, plan_from_text, plan_text, write_plan
from tests.replay.replay_report import print_report, replay_report
from tests.replay.streams import COMPUTE_KINDS, SLEEP
from tuner.base.errors import InputError, TunerError

if TYPE_CHECKING:
    from mpi4py import MPI


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="python -m tests.replay",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a workload or a plan")
    made.add_argument("--table", type=Path, help="table that calls follow instead")
    made.add_argument(
        "--compute", choices=COMPUTE_KINDS, default=SLEEP, help="what a rank does instead"
    )
    made.add_argument(
        "--iterations", type=_positive, default=10, help="measured at a time (default: 10)"
    )
    made.add_argument(
        "--rounds", type=_positive, default=1, help="how often the files take turns (default: 1)"
    )
    made.add_argument("--json", action="store_true", help="print JSON instead of text")
    made.add_argument("--ranks", type=_positive, help="with --write-plan: number of ranks")
    made.add_argument(
        "--write-plan", type=Path, metavar="PLAN", help="write the plan and start no MPI"
    )
    return made


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a positive integer, got {text!r}")
    return int(text)


def load_plan(path: Path, ranks: int, table: Path | None) -> ReplayPlan:
    """Return the plan of a file for some number of ranks.

    path    a workload, or a plan

    Raises InputError for an invalid file, and where it is for other numbers of ranks.
    """
    try:
        plan = plan_from_text(path.read_text(encoding="utf-8"))
        if plan is not None and (plan.ranks != ranks or table):
            reason = (
                "a plan has its table already: write it with --table"
                if table
                else f"{ranks} ranks were started, and the plan is for {plan.ranks}"
            )
            raise InputError(reason)
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None
    except OSError as reason:
        raise InputError(f"{path}: cannot be read: {reason.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not text in UTF-8") from None
    return plan or _plan_of_workload(path, ranks, table)


def _plan_of_workload(path: Path, ranks: int, table: Path | None) -> ReplayPlan:
    from tests.replay.planned_steps import make_plan
    from tuner.core.table import read_table
    from tuner.training.workload import read_workload

    workload = read_workload(path)
    try:
        return make_plan(workload, ranks, read_table(table) if table else None)
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None


def main(argv: Sequence[str] | None = None) -> int:
    """Write a plan, or replay; return the exit status."""
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.write_plan is None:
        if options.ranks:
            parser.error("--ranks is for --write-plan: mpirun says how many ranks there are")
        return _replay(options)
    if options.ranks is None or len(options.files) > 1:
        parser.error("--write-plan needs --ranks and one file")
    try:
        write_plan(load_plan(options.files[0], options.ranks, options.table), options.write_plan)
    except TunerError as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def _replay(options: argparse.Namespace) -> int:
    """Start MPI and replay on all ranks; a rank that fails ends all of them."""
    import mpi4py

    mpi4py.rc.thread_level = "funneled"  # the main thread alone calls MPI
    from mpi4py import MPI

    status = None
    try:
        status = _replay_together(options, MPI.COMM_WORLD)
    finally:
        if status is None:
            traceback.print_exc()
            sys.stderr.flush()
            MPI.COMM_WORLD.Abort(1)
    return status


def _replay_together(options: argparse.Namespace, world: MPI.Intracomm) -> int:
    plans, failure = _shared_plans(options, world)
    if failure:
        if world.rank == 0:
            print(failure, file=sys.stderr, flush=True)
        return 1
    from mpi4py import MPI

    from tests.replay.replaying_ranks import ReplayingRank

    ranks = [ReplayingRank(plan, world, options.compute) for plan in plans]
    seconds: list[list[float]] = [[] for _ in plans]
    for _ in range(options.rounds):
        for rank, found in zip(ranks, seconds, strict=True):
            mine = rank.run(options.iterations + 2)[1:]
            world.Allreduce(MPI.IN_PLACE, mine, MPI.MAX)
            found += mine.tolist()
    hosts = len(set(world.allgather(MPI.Get_processor_name())))
    if world.rank == 0:
        library = " ".join(MPI.Get_library_version().replace("\0", "").split()[:3]).rstrip(",")
        record = replay_report(plans, seconds, library, hosts, options.compute)
        print_report(record, as_json=options.json)
    return 0


def _shared_plans(
    options: argparse.Namespace, world: MPI.Intracomm
) -> tuple[list[ReplayPlan], str]:
    """Return the plans that rank 0 reads, or the sentence why it cannot; collective."""
    known: tuple[list[str], str] = ([], "")
    if world.rank == 0:
        try:
            plans = [load_plan(path, world.size, options.table) for path in options.files]
            known = [plan_text(plan) for plan in plans], ""
        except TunerError as reason:
            known = [], str(reason)
    texts, failure = world.bcast(known)
    return [plan for plan in map(plan_from_text, texts) if plan], failure


if __name__ == "__main__":
    sys.exit(main())
