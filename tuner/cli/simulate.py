"""Predict how long algorithms take on a topology."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tuner.algorithms import algorithm_names, available_capabilities, check_requirements, describe
from tuner.base.atomic_io import require_writable_file
from tuner.base.errors import InputError, LimitExceededError, MissingCostError, UsageError
from tuner.base.progress import with_eta
from tuner.base.units import format_size, format_time
from tuner.cli import argument_types
from tuner.cli.output import add_json_option, console, print_result, print_table, print_text, warn
from tuner.cli.progress import Display
from tuner.core.calibration import Calibration, read_calibration
from tuner.core.schedule import Schedule
from tuner.core.table import LIBRARY, SCHEDULE, AlgorithmConfig
from tuner.machines import Machine
from tuner.machines.loader import (
    assumed_costs_warning,
    load_machine,
    missing_overhead_warning,
    shared_gpu_warning,
)
from tuner.machines.model_accuracy import NCCL, SIMULATION
from tuner.mpi_libraries.schedules import schedule_of
from tuner.sim import fast_engine, simulate
from tuner.sim.critical_paths import COMPONENT_DESCRIPTIONS, TIME_COMPONENTS, Explanation, explain
from tuner.topology import CUDA, GPU, HOST, Placement
from tuner.whatif.machine_resources import MIN_SENSITIVITY, RESOURCE_NAMES, nccl_factors
from tuner.whatif.nccl_times import EXPLAINED_NOTE, NcclTimes, nccl_note, nccl_times
from tuner.whatif.sensitivities import call_sensitivities
from tuner.whatif.study_candidates import Candidate, estimate_transfers, list_candidates

EXAMPLES = """examples:
  tuner simulate --topology flat64.yaml --collective allreduce --algorithm ring --sizes 1KiB,1MiB
  tuner simulate --topology flat64.yaml --collective bcast --algorithm chain \\
      --param segment=64KiB --param chains=4 --sizes 16MiB --json
  tuner simulate --topology flat64.yaml --collective bcast --sizes 1KiB,64KiB,4MiB  # all of them
  tuner simulate --topology flat64.yaml --collective bcast --sizes 1MiB --explain  # where time goes
  tuner simulate --topology flat64.yaml --ranks 8 --collective allreduce --algorithm ring \\
      --sizes 1MiB --gantt ring.svg
  tuner simulate --topology ibnetdiscover.txt --node-topology nccl-topology.xml \\
      --collective allreduce --sizes 1MiB

The shortest topology file, one switch with 64 nodes:
  name: flat64
  nodes: 64
  latency: 2us
  bandwidth: 12.5GB/s"""

PART_RANKS = 1 << 12  # whose simulation tells whether transfers are simulated event by event
MEMORY_NAMES = {HOST: "host memory", CUDA: "GPU memory"}


@dataclass(frozen=True)
class AlgorithmTime:
    """The predicted time of an algorithm.

    schedule    what was simulated; None where the time is predicted from NCCL's model
    """

    seconds: float
    algorithm: str
    params: Mapping[str, int]
    schedule: Schedule | None


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--topology",
        type=Path,
        required=True,
        metavar="FILE",
        help="topology: preset:NAME, YAML, or a file of lstopo, NCCL, nvidia-smi, ibnetdiscover or"
        " Slurm",
    )
    parser.add_argument(
        "--node-topology",
        type=Path,
        metavar="FILE",
        help="topology file of one computer: the inside of every node",
    )
    parser.add_argument("--collective", type=argument_types.collective, required=True)
    parser.add_argument(
        "--algorithm",
        type=argument_types.name_list,
        help="algorithms, separated by commas (default: all)",
    )
    parser.add_argument(
        "--sizes", type=argument_types.size_list, required=True, help="sizes, such as 1KiB,1MiB"
    )
    _shape(parser)
    _add_cost_options(parser)
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print where the time goes (latency, bandwidth, contention, reduction), too, and"
        " which resource would have to be faster",
    )
    parser.add_argument(
        "--gantt",
        type=Path,
        metavar="FILE",
        help="draw the run of one algorithm at one size, as .svg or .png",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def _add_cost_options(parser: argparse.ArgumentParser) -> None:
    """Declare what decides how long an algorithm takes."""
    parser.add_argument(
        "--param",
        type=argument_types.parameter,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="parameter of the algorithm, may be repeated (default: the fastest values worth"
        " trying)",
    )
    parser.add_argument(
        "--engine",
        choices=("fast", "events"),
        default="fast",
        help="engine: fast (numpy and numba, default) or events (the SimPy reference)",
    )
    parser.add_argument(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="measured costs instead of the latencies and bandwidths in the topology file",
    )
    parser.add_argument(
        "--runner",
        choices=(LIBRARY, SCHEDULE),
        default=LIBRARY,
        help="who runs the algorithm: library, the one of the calibration or NCCL, for what it has"
        " (default), or schedule, tuner itself",
    )
    parser.add_argument(
        "--memory",
        choices=(HOST, CUDA),
        help="memory of the buffers; with cuda the ranks are on the GPUs of the nodes (default:"
        " cuda where each rank has a GPU and no calibration is given, else host)",
    )


def _shape(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ppn", type=argument_types.positive_int, default=1, help="ranks per node (default: 1)"
    )
    parser.add_argument(
        "--ranks", type=argument_types.positive_int, help="ranks (default: all that fit)"
    )
    parser.add_argument("--root", type=int, default=0, help="root rank (default: 0)")
    parser.add_argument(
        "--itemsize",
        type=argument_types.positive_int,
        default=1,
        help="bytes of one element (default: 1)",
    )


def run(options: argparse.Namespace) -> None:
    """Print one prediction per algorithm and size."""
    _require_known_algorithms(options)
    if options.gantt:
        _require_one(options)
    machine = load_machine(options.topology, node_topology=options.node_topology)
    if options.calibration:
        machine = replace(machine, calibration=read_calibration(options.calibration))
    warn(assumed_costs_warning(machine))
    placement = Placement.block(machine.topology, options.ppn, options.ranks)
    options.memory = options.memory or _default_memory(options, placement)
    if options.memory == CUDA:
        warn(shared_gpu_warning(machine.topology, placement.shape[1]))
    records = list(_predictions(options, placement, machine))
    if not records:
        raise LimitExceededError("nothing is left to be simulated: ask for fewer ranks or others")
    if not options.calibration:
        warn(missing_overhead_warning(machine))
    where = f"{machine.topology.name}, in {MEMORY_NAMES[options.memory]}"

    def show() -> None:
        _print(where, records, explained_too=options.explain)
        if not options.calibration:
            print_text(machine.accuracy_sentence({record["predicted_by"] for record in records}))

    print_result(options, records, show)


def _require_known_algorithms(options: argparse.Namespace) -> None:
    """Raise UsageError for a name of which the collective has no algorithm."""
    try:
        for name in options.algorithm or ():
            describe(options.collective, name)
    except InputError as reason:
        raise UsageError(str(reason)) from None


def _default_memory(options: argparse.Namespace, placement: Placement) -> str:
    """Return the memory of GPUs where every rank has one; a calibration may be of hosts alone."""
    topology = placement.topology
    if options.calibration:
        return HOST
    inside = [topology.nodes[node].node_topology for node in set(placement.node_of.tolist())]
    fewest = min(len(one.device_indices(GPU)) if one else 0 for one in inside)
    return CUDA if placement.shape[1] <= fewest else HOST


def _require_one(options: argparse.Namespace) -> None:
    if len(options.algorithm or ()) != 1 or len(options.sizes) != 1:
        raise UsageError("--gantt draws one run: give one --algorithm and one size")
    argument_types.require_image_suffix(options.gantt, "--gantt")
    read = filter(None, [options.topology, options.node_topology, options.calibration])
    require_writable_file(options.gantt, *read)


def _predictions(
    options: argparse.Namespace, placement: Placement, machine: Machine
) -> Iterator[dict[str, Any]]:
    """Yield the fastest variant of each algorithm at each size, the fastest algorithm first."""
    known = _names(options, placement)
    tell = with_eta(Display(console(error=True)).line_report("simulating"))
    whole, large = len(options.sizes) * len(known), list[str]()
    of_nccl = _times_of_nccl(options, placement)
    for before, nbytes in enumerate(options.sizes):
        price = _Predictor(options, placement, machine.calibration, nbytes, large, of_nccl)
        every = []
        for number, name in enumerate(known, start=before * len(known)):
            tell(number / whole, f"{name}, {format_size(nbytes)}")
            every.append(list(price.runs(name)))
        runs = [min(runs, key=_seconds) for runs in every if runs]
        for rank, found in enumerate(sorted(runs, key=_seconds)):
            record: dict[str, Any] = {
                "collective": options.collective.value,
                "algorithm": found.algorithm,
                "params": dict(found.params),
                "p": placement.p,
                "nbytes": nbytes,
                "seconds": found.seconds,
                "predicted_by": SIMULATION if found.schedule else NCCL,
            }
            if found.schedule and (options.explain or options.gantt):
                run = explain(*price.simulation_arguments(found.schedule), options.memory)
                record |= {"parts": dict(run.components)} if options.explain else {}
                _draw(options.gantt, record, run)
            if options.explain and rank == 0:
                record["sensitivities"] = _sensitivities(options, machine, found, nbytes)
            yield record
    if large and not options.algorithm:
        large = [", ".join(large)]
    for text in large:
        warn(f"left out, too large to be simulated: {text}")


def _sensitivities(
    options: argparse.Namespace, machine: Machine, found: AlgorithmTime, nbytes: int
) -> dict[str, float]:
    """Return how many times as fast an algorithm is with each resource twice as fast."""

    def seconds_on(changed: Machine, resource: str) -> float:
        placement = Placement.block(changed.topology, options.ppn, options.ranks)
        if found.schedule is not None:
            costs, item = changed.calibration, options.itemsize
            return simulate(found.schedule, placement, costs, nbytes, item, memory=options.memory)
        of_nccl = nccl_times(placement, options.memory, *nccl_factors(resource))
        assert of_nccl is not None
        return of_nccl.seconds(options.collective, found.algorithm, nbytes)

    return call_sensitivities(machine, seconds_on, found.schedule is None)


def _times_of_nccl(options: argparse.Namespace, placement: Placement) -> NcclTimes | None:
    """Return NCCL's times where its algorithms are wanted as NCCL runs them, and unmeasured."""
    wanted = options.runner == LIBRARY and not (
        options.param or options.gantt or options.calibration
    )
    return nccl_times(placement, options.memory) if wanted else None


def _names(options: argparse.Namespace, placement: Placement) -> Sequence[str]:
    """Return the named algorithms, or all that the machine supports with such buffers.

    Raises an error for a named algorithm that the machine does not support.
    """
    topology = placement.topology
    here = available_capabilities(topology.capabilities, options.memory == CUDA, *placement.shape)
    for name in options.algorithm or ():
        check_requirements(options.collective, name, here, topology.name)
    return options.algorithm or algorithm_names(options.collective, here)


@dataclass(frozen=True)
class _Predictor:
    """A predictor of the times of schedules for one message size.

    too_large   receives the variants that are left out as too large to be simulated, those of a
                named algorithm with the reason
    """

    options: argparse.Namespace
    placement: Placement
    calibration: Calibration
    nbytes: int
    too_large: list[str]
    times_of_nccl: NcclTimes | None

    def simulation_arguments(
        self, made: Schedule
    ) -> tuple[Schedule, Placement, Calibration, int, int]:
        return made, self.placement, self.calibration, self.nbytes, self.options.itemsize

    def variants(self, name: str) -> list[Candidate]:
        """Return the variant with the given parameters, or all worth trying.

        A named algorithm has at least one variant.
        """
        options = self.options
        if options.param:
            return [Candidate(name, dict(options.param))]
        found = list_candidates(options.collective, (name,), *self.placement.shape, self.nbytes)
        return list(found) or ([Candidate(name, {})] if options.algorithm else [])

    def runs(self, name: str) -> Iterator[AlgorithmTime]:
        """Yield the predictions of all variants of an algorithm, or that of NCCL for its own.

        Variants that are too large are left out. Of an algorithm that is not named, those are left
        out, too, that are staged through host memory with unknown costs.

        Raises LimitExceededError if all variants of a named algorithm are too large.
        """
        options, of_nccl = self.options, self.times_of_nccl
        if of_nccl and name in of_nccl.algorithms(options.collective):
            seconds = of_nccl.seconds(options.collective, name, self.nbytes)
            yield AlgorithmTime(seconds, name, {}, None)
            return
        variants, refused = self.variants(name), list[LimitExceededError]()
        for one in variants:
            try:
                yield from self._priced(one, first_on_part=len(variants) > 1)
            except LimitExceededError as reason:
                refused.append(reason)
                about = f": {reason}" if options.algorithm else ""
                self.too_large.append(f"{one} at {format_size(self.nbytes)}{about}")
        if options.algorithm and refused and len(refused) == len(variants):
            raise refused[0]

    def _priced(self, one: Candidate, *, first_on_part: bool) -> Iterator[AlgorithmTime]:
        """Yield the prediction of a variant, nothing where none is to be made; see `runs`."""
        options = self.options
        choice = AlgorithmConfig(one.algorithm, one.params, options.runner)
        if first_on_part:
            self._refuse_by_part(one, choice)
        made = self._schedule(choice, self.placement.p)
        if made is None:
            return
        try:
            seconds = simulate(*self.simulation_arguments(made), options.engine, options.memory)
            yield AlgorithmTime(seconds, made.algorithm, made.params, made)
        except MissingCostError:
            if options.algorithm or not made.staged:
                raise

    def _schedule(self, choice: AlgorithmConfig, p: int) -> Schedule | None:
        """Return the schedule of a variant on p ranks, None where none describes it.

        Raises InputError where none describes a named algorithm.
        """
        options, library = self.options, self.calibration.library
        is_part = p < self.placement.p  # which may be without the root
        root = 0 if is_part and options.root >= p else options.root
        made = schedule_of(library, options.collective, choice, p, self.nbytes, root)
        if made is None and options.algorithm:
            raise InputError(
                f"{choice.algorithm} of {library} follows other choices of that library,"
                " and no schedule says which: try --runner schedule"
            )
        return made

    def _refuse_by_part(self, one: Candidate, choice: AlgorithmConfig) -> None:
        """Raise LimitExceededError for too many transfers whose order depends on one another.

        A part of the ranks shows it, in a fraction of the time that a simulation of all would take.
        """
        options, placement, nbytes = self.options, self.placement, self.nbytes
        transfers = estimate_transfers(options.collective, one, placement.p, nbytes)
        if transfers <= fast_engine.MAX_EVENT_TRANSFERS or placement.p <= PART_RANKS:
            return
        part = Placement(placement.topology, placement.node_of[:PART_RANKS])
        made = self._schedule(choice, part.p)
        if made is not None:
            simulation = fast_engine.PreparedSimulation(
                made, part, self.calibration, options.itemsize, options.memory
            )
            with suppress(MissingCostError):  # which the simulation of all ranks meets, too
                simulation.require_few_events(nbytes, placement.p / part.p)


def _seconds(prediction: AlgorithmTime) -> float:
    return prediction.seconds


def _draw(path: Path | None, record: Mapping[str, Any], run: Explanation) -> None:
    if path is not None:
        from tuner.report.study_plots import save_gantt  # matplotlib takes its time

        what = f"{record['collective']} {record['algorithm']}, {record['p']} ranks"
        how = f"{format_size(record['nbytes'])}: {format_time(record['seconds'])}"
        save_gantt(path, f"{what}, {how}", run)
        warn(f"the picture is in {path}")


def _print(where: str, records: list[dict[str, Any]], *, explained_too: bool) -> None:
    explained = [
        part for part in TIME_COMPONENTS if any(r.get("parts", {}).get(part) for r in records)
    ]
    print_table(
        f"{records[0]['collective']} of {records[0]['p']} ranks on {where}",
        ("algorithm", "size", "time", *explained),
        (_row(record, explained) for record in records),
        right=("size", "time", *explained),
        wrappable=("algorithm",),
    )
    for part in explained:
        print_text(f"{part}: {COMPONENT_DESCRIPTIONS[part]}")
    for record in records:
        if "sensitivities" in record:
            print_text(_what_would_help(record))
    of_nccl = {record["algorithm"] for record in records if record["predicted_by"] == NCCL}
    if of_nccl:
        print_text(nccl_note(of_nccl))
        if explained_too:
            print_text(EXPLAINED_NOTE)


def _what_would_help(record: Mapping[str, Any]) -> str:
    """Return how many times as fast an algorithm is with each resource twice as fast."""
    what = f"{record['algorithm']} at {format_size(record['nbytes'])}"
    gains = sorted(record["sensitivities"].items(), key=lambda pair: -pair[1])
    named = [f"{RESOURCE_NAMES[name]} {gain:.2f}" for name, gain in gains if gain > MIN_SENSITIVITY]
    if not named:
        return f"{what}: no resource alone, twice as fast, makes it faster"
    return f"{what}: times as fast with this twice as fast: {', '.join(named)}"


def _row(record: Mapping[str, Any], explained: Sequence[str]) -> list[str]:
    """Return the cells of a prediction; parts of the time as its share."""
    params = _params(record["params"])
    cells = [
        f"{record['algorithm']} ({params})" if params else record["algorithm"],
        format_size(record["nbytes"]),
        format_time(record["seconds"]),
    ]
    parts = record.get("parts")
    if parts is None:
        return cells + [""] * len(explained)
    whole = sum(parts.values()) or 1.0
    return cells + [f"{parts[part] / whole:.0%}" for part in explained]


def _params(params: Mapping[str, int]) -> str:
    """Return parameters such as `segment=64KiB, chains=4`, without a segment size of 0."""
    return ", ".join(
        f"{name}={format_size(value) if name == 'segment' else value}"
        for name, value in params.items()
        if (name, value) != ("segment", 0)
    )
