"""Predict how long algorithms take on a topology."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from tuner.algorithms import check_requirements, describe
from tuner.base.atomic_io import require_writable_file
from tuner.base.errors import InputError, LimitExceededError, UsageError
from tuner.base.progress import with_eta
from tuner.base.units import format_size, format_time
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import finish_command, print_result, print_table, print_text, warn
from tuner.cli.terminal.progress import Display
from tuner.core.calibration import read_calibration
from tuner.core.collective import Collective
from tuner.core.table import LIBRARY, SCHEDULE, AlgorithmChoice
from tuner.machines import Machine
from tuner.machines.loader import (
    load_machine,
    machine_warnings,
    missing_overhead_warning,
    shared_gpu_warning,
)
from tuner.machines.model_accuracy import NCCL, SIMULATION, SizedCall
from tuner.prediction.block_counts import BlockCounts, block_counts
from tuner.prediction.call_candidates import Candidate
from tuner.prediction.call_predictor import CallPredictor, NoPrediction, NoScheduleError
from tuner.prediction.nccl_times import EXPLAINED_NOTE, nccl_absence, nccl_note
from tuner.prediction.ordering import rounded_seconds
from tuner.sim.critical_paths import COMPONENT_DESCRIPTIONS, TIME_COMPONENTS, Explanation
from tuner.topology import CUDA, GPU, HOST, Placement
from tuner.whatif.machine_resources import MIN_SENSITIVITY, RESOURCE_NAMES, nccl_factors
from tuner.whatif.sensitivities import call_sensitivities

EXAMPLES = """examples:
  tuner simulate --topology flat64.yaml --collective allreduce --algorithm ring --sizes 1KiB,1MiB
  tuner simulate --topology flat64.yaml --collective bcast --algorithm chain \\
      --param segment=64KiB --param chains=4 --sizes 16MiB --json
  tuner simulate --topology flat64.yaml --collective bcast --sizes 1KiB,64KiB,4MiB  # all of them
  tuner simulate --topology flat64.yaml --collective bcast --sizes 1MiB --explain  # where time goes
  tuner simulate --topology flat64.yaml --ranks 8 --collective allreduce --algorithm ring \\
      --sizes 1MiB --gantt ring.svg
  tuner simulate --topology flat64.yaml --collective alltoallv --counts zipf:1.2:2 --sizes 1MiB
  tuner simulate --topology ibnetdiscover.txt --node-topology nccl-topology.xml \\
      --collective allreduce --sizes 1MiB

The shortest topology file, one switch with 64 nodes:
  name: flat64
  nodes: 64
  latency: 2us
  bandwidth: 12.5GB/s"""

MEMORY_NAMES = {HOST: "host memory", CUDA: "GPU memory"}


@dataclass(frozen=True)
class AskedCalls:
    """Calls of which the time is asked for.

    names       algorithms; all that the machine supports if empty
    params      parameters of the algorithm; the fastest values worth trying if empty
    runner      runner of the algorithms
    """

    machine: Machine
    predictor: CallPredictor
    collective: Collective
    sizes: Sequence[int]
    names: Sequence[str]
    params: Mapping[str, int]
    runner: str


class AlgorithmTime(NamedTuple):
    """The predicted time of a choice."""

    seconds: float
    choice: AlgorithmChoice


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    file_option(
        parser,
        "--topology",
        "topology: preset:NAME, YAML, or a file of lstopo, NCCL, nvidia-smi, amd-smi,"
        " ibnetdiscover, Slurm or SimGrid",
        required=True,
    )
    file_option(
        parser, "--node-topology", "topology file of one computer: the inside of every node"
    )
    parser.add_argument("--collective", type=argument_types.collective, required=True)
    parser.add_argument(
        "--algorithm",
        type=argument_types.name_list,
        help="algorithms, separated by commas (default: all)",
    )
    parser.add_argument(
        "--sizes",
        type=argument_types.size_list,
        help="sizes of a rank's whole buffer, such as 1KiB,1MiB; with --counts of an alltoallv the"
        " mean of what ranks send (default: that of a file of counts)",
    )
    parser.add_argument(
        "--counts",
        metavar="COUNTS",
        help="bytes from each rank to each rank in an alltoallv, or from each rank in an"
        " allgatherv: a file with a row for each sender, or with one row; uniform, drawn at random;"
        " zipf or zipf:EXPONENT:CAPACITY, as of tokens for experts; or pencils or"
        " pencils:ROWSxCOLUMNS, the transposes of an FFT (default: all equal)",
    )
    _shape(parser)
    _add_cost_options(parser)
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print where the time goes (flight, bandwidth, contention, reduction), too, and"
        " which resource would have to be faster",
    )
    file_option(parser, "--gantt", "draw the run of one algorithm at one size, as .svg or .png")
    finish_command(parser, run)


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
    file_option(
        parser,
        "--calibration",
        "measured costs instead of the latencies and bandwidths in the topology file",
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
    count_option(parser, "--ppn", "ranks per node (default: 1)", default=1)
    count_option(parser, "--ranks", "ranks (default: all that fit)")
    parser.add_argument("--root", type=int, help="root of a collective that has one (default: 0)")
    count_option(parser, "--itemsize", "bytes of one element (default: 1)", default=1)


def run(options: argparse.Namespace) -> None:
    """Print one prediction per algorithm and size.

    NCCL's model is used where its algorithms are wanted as NCCL runs them, and no costs were
    measured. Only measured costs are those of a library, which may run an algorithm in its own way.
    """
    names, calibration = options.algorithm or (), options.calibration
    _require_known_algorithms(options.collective, names)
    if options.gantt:
        if len(names) != 1 or len(options.sizes or (0,)) != 1:
            raise UsageError("--gantt draws one run: give one --algorithm and one size")
        argument_types.require_image_suffix(options.gantt, "--gantt")
        require_writable_file(options.gantt, options.topology, options.node_topology, calibration)
    machine = load_machine(options.topology, node_topology=options.node_topology)
    if calibration:
        machine = replace(machine, calibration=read_calibration(calibration))
    warn(*machine_warnings(machine))
    placement = Placement.block(machine.topology, options.ppn, options.ranks)
    memory = options.memory or (HOST if calibration else _default_memory(placement))
    memory = memory if options.collective.has_data else HOST
    with_nccl = options.runner == LIBRARY and not calibration
    counts = _counts(options.counts, options.collective, placement.p)
    sizes = _sizes(options.sizes, counts, options.collective)
    predictor = replace(
        CallPredictor.of_machine(placement, machine.calibration, memory, with_nccl=with_nccl),
        root=_root(options.root, options.collective, placement.p),
        itemsize=options.itemsize,
        counts=counts,
        engine=options.engine,
    )
    for name in names:
        check_requirements(options.collective, name, predictor.features, machine.topology.name)
    if with_nccl and memory == CUDA:
        warn(nccl_absence(names, placement))
    runner = options.runner if calibration else SCHEDULE
    params = dict(options.param)
    asked = AskedCalls(machine, predictor, options.collective, sizes, names, params, runner)
    if options.gantt:
        _require_simulation(asked)
    records = _predict_all(asked, options.gantt, explained=options.explain)
    if not calibration:
        warn(missing_overhead_warning(machine))

    def show() -> None:
        _print(asked, records, explained_too=options.explain)
        if not calibration:
            print_text(_accuracy(asked, records))

    print_result(options.json, records, show)


def _root(wanted: int | None, collective: Collective, p: int) -> int:
    """Return the root of the calls; raise InputError where they have none, or no such rank."""
    if wanted is not None and not collective.is_rooted:
        rooted = ", ".join(one for one in Collective if one.is_rooted)
        raise UsageError(f"--root is for {rooted}, not for {collective}")
    root = wanted or 0
    if not 0 <= root < p:
        raise InputError(f"--root {root}: expected a rank from 0 to {p - 1}")
    return root


def _require_simulation(asked: AskedCalls) -> None:
    """Raise UsageError where NCCL's model has the time of the call, and so nothing to be drawn."""
    choice = AlgorithmChoice(asked.names[0], asked.params, asked.runner)
    if asked.predictor.model_of(asked.collective, choice) == NCCL:
        raise UsageError(
            f"--gantt draws messages, which NCCL's model of {choice.algorithm} does not have:"
            " --runner schedule simulates a schedule of the same algorithm"
        )


def _counts(wanted: str | None, collective: Collective, p: int) -> BlockCounts | None:
    """Return the counts that are asked for, if any; raise UsageError where calls have none."""
    if wanted is not None and not collective.is_ragged:
        ragged = ", ".join(one for one in Collective if one.is_ragged)
        raise UsageError(f"--counts is for {ragged}, not for {collective}")
    return None if wanted is None else block_counts(wanted, p, collective)


def _sizes(
    given: Sequence[int] | None, counts: BlockCounts | None, collective: Collective
) -> tuple[int, ...]:
    """Return the sizes of the calls; raise UsageError where nothing says how large they are."""
    sizes = given or (counts and counts.mean_bytes and (counts.mean_bytes,))
    if not sizes:
        raise UsageError("give --sizes, such as --sizes 1KiB,1MiB")
    return tuple(dict.fromkeys(map(collective.call_bytes, sizes)))


def _predict_all(asked: AskedCalls, gantt: Path | None, *, explained: bool) -> list[dict[str, Any]]:
    """Return the predictions; raise LimitExceededError if none could be made."""
    if asked.predictor.memory == CUDA:
        ranks = asked.predictor.placement.shape[1]
        warn(shared_gpu_warning(asked.machine.topology, ranks))
    records = list(_predictions(asked, gantt, explained=explained))
    if not records:
        raise LimitExceededError("nothing is left to be simulated: ask for fewer ranks or others")
    return records


def _accuracy(asked: AskedCalls, records: Sequence[Mapping[str, Any]]) -> str:
    """Return how far what predicted these times was off on the machine."""
    nodes, predicted = asked.predictor.placement.shape[0], defaultdict[str, list[SizedCall]](list)
    for record in records:
        call = SizedCall(asked.collective, nodes, record["nbytes"])
        predicted[record["predicted_by"]].append(call)
    return asked.machine.accuracy_sentence(predicted)


def _require_known_algorithms(collective: Collective, names: Sequence[str]) -> None:
    """Raise UsageError for a name of which the collective has no algorithm."""
    try:
        for name in names:
            describe(collective, name)
    except InputError as reason:
        raise UsageError(str(reason)) from None


def _default_memory(placement: Placement) -> str:
    """Return the memory of GPUs where every rank has one, else that of hosts."""
    nodes = placement.topology.nodes
    inside = [nodes[node].node_topology for node in set(placement.node_of.tolist())]
    fewest = min(len(one.device_indices(GPU)) if one else 0 for one in inside)
    return CUDA if placement.shape[1] <= fewest else HOST


def _predictions(
    asked: AskedCalls, gantt: Path | None, *, explained: bool
) -> Iterator[dict[str, Any]]:
    """Yield the fastest variant of each algorithm at each size, the fastest algorithm first."""
    known = asked.names or asked.predictor.algorithms(asked.collective)
    tell = with_eta(Display().line_report("simulating"))
    whole, large = len(asked.sizes) * len(known), list[str]()
    for before, nbytes in enumerate(asked.sizes):
        every = []
        for number, name in enumerate(known, start=before * len(known)):
            tell(number / whole, f"{name}, {format_size(nbytes)}")
            every.append(list(_variant_times(asked, name, nbytes, large)))
        fastest = [min(times, key=_order) for times in every if times]
        for rank, found in enumerate(sorted(fastest, key=_order)):
            record = _record(asked, nbytes, found)
            if record["predicted_by"] == SIMULATION and (explained or gantt):
                made = asked.predictor.schedule(asked.collective, found.choice, nbytes)
                run = asked.predictor.explain(made, nbytes)
                record |= {"parts": dict(run.components)} if explained else {}
                _draw(gantt, record, run)
            if explained and rank == 0:
                record["sensitivities"] = _sensitivities(asked, found.choice, nbytes)
            yield record
    if large and not asked.names:
        large = [", ".join(large)]
    for text in large:
        warn(f"left out, too large to be simulated: {text}")


def _record(asked: AskedCalls, nbytes: int, found: AlgorithmTime) -> dict[str, Any]:
    """Return a prediction as JSON data; a simulated one has all parameters of the algorithm."""
    name, model = found.choice.algorithm, asked.predictor.model_of(asked.collective, found.choice)
    own = describe(asked.collective, name).params if model == SIMULATION else {}
    return {
        "collective": asked.collective.value,
        "algorithm": name,
        "params": {**own, **found.choice.params},
        "p": asked.predictor.placement.p,
        "nbytes": nbytes,
        "seconds": found.seconds,
        "predicted_by": model,
    }


def _sensitivities(asked: AskedCalls, choice: AlgorithmChoice, nbytes: int) -> dict[str, float]:
    """Return how many times as fast an algorithm is with each resource twice as fast."""
    node_of = asked.predictor.placement.node_of

    def seconds_on(changed: Machine, resource: str) -> float:
        placement = Placement(changed.topology, node_of)
        factors = nccl_factors(resource)
        there = asked.predictor.on_changed(placement, changed.calibration, factors)
        return replace(there, engine="fast").seconds(asked.collective, choice, nbytes)

    of_nccl = asked.predictor.model_of(asked.collective, choice) == NCCL
    return call_sensitivities(asked.machine, seconds_on, of_nccl)


def _variants(asked: AskedCalls, name: str, nbytes: int) -> Sequence[Candidate]:
    """Return the variant with the given parameters, or all worth trying.

    A named algorithm has at least one variant.
    """
    if asked.params:
        return [Candidate(name, asked.params)]
    found = asked.predictor.candidates(asked.collective, (name,), nbytes)
    return found or ([Candidate(name, {})] if asked.names else [])


def _variant_times(
    asked: AskedCalls, name: str, nbytes: int, too_large: list[str]
) -> Iterator[AlgorithmTime]:
    """Yield the predictions of all variants of an algorithm.

    too_large   receives the variants that are left out as too large to be simulated, those of a
                named algorithm with the reason

    Of an algorithm that is not named, those without a prediction are left out. Raises the reason
    for a named one; too large are all its variants then.
    """
    variants, refused = _variants(asked, name, nbytes), list[NoPrediction]()
    for one in variants:
        choice = AlgorithmChoice(name, one.params, asked.runner)
        found = _predict(asked, choice, nbytes, compete=len(variants) > 1)
        if isinstance(found, float):
            yield AlgorithmTime(found, choice)
        elif found.is_too_large:
            refused.append(found)
            about = f": {found.reason}" if asked.names else ""
            too_large.append(f"{one} at {format_size(nbytes)}{about}")
        elif isinstance(found.reason, NoScheduleError) and asked.names:
            raise InputError(f"{found.reason}: try --runner schedule")
        elif asked.names or (asked.params and found.is_wrong_choice):
            raise found.reason
    if asked.names and refused and len(refused) == len(variants):
        raise refused[0].reason


def _predict(
    asked: AskedCalls, choice: AlgorithmChoice, nbytes: int, *, compete: bool
) -> float | NoPrediction:
    """Return the prediction of a choice.

    compete     whether others can take its place, so that it may be refused sooner
    """
    predictor, collective = asked.predictor, asked.collective
    refusal = predictor.refusal_by_part(collective, choice, nbytes) if compete else None
    return refusal or predictor.predict(collective, choice, nbytes)


def _order(prediction: AlgorithmTime) -> float:
    return rounded_seconds(prediction.seconds)


def _draw(path: Path | None, record: Mapping[str, Any], run: Explanation) -> None:
    if path is not None:
        from tuner.report.study_plots import save_gantt  # matplotlib takes its time

        what = f"{record['collective']} {record['algorithm']}, {record['p']} ranks"
        how = f"{format_size(record['nbytes'])}: {format_time(record['seconds'])}"
        save_gantt(path, f"{what}, {how}", run)
        warn(f"the picture is in {path}")


def _print(asked: AskedCalls, records: list[dict[str, Any]], *, explained_too: bool) -> None:
    explained = [
        part for part in TIME_COMPONENTS if any(r.get("parts", {}).get(part) for r in records)
    ]
    print_table(
        f"{asked.collective} of {asked.predictor.placement.p} ranks on"
        f" {asked.machine.topology.name}, in {MEMORY_NAMES[asked.predictor.memory]}",
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
        simulates = any(record["predicted_by"] == SIMULATION for record in records)
        nodes = asked.predictor.placement.shape[0]
        calls = {(name, nodes) for name in of_nccl}
        print_text(nccl_note(calls, simulates=simulates))
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
