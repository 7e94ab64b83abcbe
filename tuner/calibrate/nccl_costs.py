"""Fit the costs of NCCL on the GPUs of one machine to a run of nccl-tests there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tuner.base.errors import InputError
from tuner.core.measurement import Measurement, Measurements
from tuner.core.table import DEFAULT
from tuner.importers.convert import as_measurements
from tuner.importers.detect import detect_results, read_results
from tuner.machines.loader import find_own_record
from tuner.machines.topology_files import detect_topology_format, read_text
from tuner.machines.yaml_machines import PRESET_PREFIX, has_costs
from tuner.mpi_libraries import nccl
from tuner.topology import CUDA, NcclCosts, Placement, Topology
from tuner.topology.readers.safe_yaml import parse_yaml

PROBE_START = '{"kind"'  # measurements of `tuner probe`, which may be large
Sample = tuple[nccl.NcclTerms, float]  # what a call consists of, and its seconds


@dataclass(frozen=True)
class NcclCalibration:
    """The costs that fit some calls best.

    before, after               costs that the topology has, and those fitted
    error_before, error_after   median relative error of predictions with them
    calls                       number of the calls
    left_out                    collectives of other results, of which no time is predicted
    is_ambiguous                whether all calls have the same number of hops: a launch is then not
                                told from hops
    """

    before: NcclCosts
    after: NcclCosts
    error_before: float
    error_after: float
    calls: int
    left_out: tuple[str, ...]
    is_ambiguous: bool


def nccl_runs(path: Path) -> Measurements | None:
    """Return the results in a file of nccl-tests; None for any other file."""
    try:
        with path.open(encoding="utf-8") as file:
            if file.read(len(PROBE_START)) == PROBE_START:
                return None
        text = path.read_text(encoding="utf-8")
        if detect_results(text) != "nccl-tests":
            return None
    except (OSError, UnicodeDecodeError, InputError):
        return None
    return as_measurements(read_results(path), cluster=path.name)


def calibrate_nccl(measurements: Measurements, topology: Topology) -> NcclCalibration:
    """Return the costs of the GPUs that fit all-to-alls and what NCCL chose algorithms for.

    Raises InputError where there are none, and where NCCL cannot run as they did.
    """
    own = [one for one in measurements.series if _is_own_choice(one)]
    version = nccl.version_of(measurements.library)
    predictors = {
        (nodes, ppn): nccl.NcclPredictor(
            Placement.block(topology, ppn, nodes * ppn), version=version
        )
        for nodes, ppn in {(one.nodes, one.ppn) for one in own}
    }
    calls = [one for one in own if predictors[one.nodes, one.ppn].algo_protos(one.collective)]
    if not calls:
        raise InputError(
            f"nothing in it is a collective that {measurements.library} chose an algorithm for,"
            " and no all-to-all whose time is known: run nccl-tests without NCCL_ALGO and"
            " NCCL_PROTO"
        )
    samples = [_sample(predictors[one.nodes, one.ppn], one) for one in calls]
    before = next(iter(predictors.values())).costs
    after = nccl.fit_costs(samples, before)
    hops = {terms.hops for terms, _ in samples if not terms.is_simple}
    worse, better = (_median_error(samples, costs) for costs in (before, after))
    used = set(map(id, calls))
    left = dict.fromkeys(str(one.collective) for one in measurements.series if id(one) not in used)
    return NcclCalibration(before, after, worse, better, len(calls), tuple(left), len(hops) < 2)


def _is_own_choice(one: Measurement) -> bool:
    if one.kind != "collective" or one.memory != CUDA or one.algorithm != DEFAULT:
        return False
    return one.collective in (*nccl.NCCL_COLLECTIVES, *nccl.POINT_TO_POINT) and one.ppn > 0


def _sample(predictor: nccl.NcclPredictor, one: Measurement) -> Sample:
    chosen = predictor.chosen_algo_proto(one.collective, max(1, one.nbytes))
    return predictor.terms(one.collective, chosen, one.nbytes), median(one.samples)


def _median_error(samples: Sequence[Sample], costs: NcclCosts) -> float:
    return median(abs(terms.seconds(costs) / seconds - 1) for terms, seconds in samples)


def calibrated_record(reference: Path, costs: NcclCosts, source: str, out: Path) -> dict[str, Any]:
    """Return the YAML of a machine with these costs.

    reference   the machine without them, as on the command line
    source      where the costs come from
    out         the file that is going to hold the YAML

    Raises InputError where the file of the machine names others that would not be found from `out`.
    """
    told: dict[str, Any] = {
        "launch": f"{costs.launch * 1e6:.3g}us",
        "hop": f"{costs.hop * 1e6:.3g}us",
        "simple": f"{costs.simple * 1e6:.3g}us",
        "copy_rate": f"{costs.copy_rate / 1e9:.4g}GB/s",
    }
    if costs.full_channel is not None:
        told["full_channel"] = f"{costs.full_channel * 1e6:.3g}us"
    record = _machine_record(reference, out)
    if has_costs(record):
        told = {"source": source, "certainty": "verified", **told}
    return record | {"nccl": told}


def _machine_record(reference: Path, out: Path) -> dict[str, Any]:
    if str(reference).startswith(PRESET_PREFIX):
        name, _, nodes = str(reference).removeprefix(PRESET_PREFIX).partition(":")
        return {"preset": name} | ({"nodes": int(nodes)} if nodes else {})
    text = read_text(reference)
    if (own := find_own_record(text)) is not None:
        return own
    if detect_topology_format(text) != "yaml":
        return {"combine": {"fabric": os.path.relpath(reference, out.parent)}}
    if reference.resolve().parent != out.resolve().parent:
        raise InputError(f"{reference} names other files: write {out.name} beside it")
    record: dict[str, Any] = parse_yaml(text)
    return record
