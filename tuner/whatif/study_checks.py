"""Check that a study can be carried out: bounds, costs, and something to simulate."""

from __future__ import annotations

from dataclasses import replace

from tuner import algorithms
from tuner.base.errors import InputError, shortened_repr
from tuner.base.spelling import unknown_name
from tuner.core.collective import Collective
from tuner.machines import Machine
from tuner.mpi_libraries.nccl import nccl_system_of
from tuner.sim import simulate
from tuner.topology import CUDA, Placement
from tuner.whatif.axes import (
    MACHINE_AXIS,
    MAX_STUDY_NODES,
    MAX_STUDY_RANKS,
    NCCL_AXIS,
    UPLINK_AXES,
    GridPoint,
    place_ranks,
)
from tuner.whatif.checked_study import Study

MAX_STUDY_POINTS = 100_000


def require_feasible(study: Study) -> None:
    """Raise InputError for a study that is too large, lacks costs, or has nothing to simulate."""
    _require_bounds(study)
    _require_nccl_times(study)
    _require_costs(study)
    _require_offered(study)
    _require_candidates(study)


def _require_bounds(study: Study) -> None:
    if study.number_of_points > MAX_STUDY_POINTS:
        raise InputError(
            f"the study has {study.number_of_points} points, more than {MAX_STUDY_POINTS}:"
            " give fewer values, collectives or sizes"
        )
    nodes = max(int(at["nodes"]) for at in study.grid)
    if nodes > MAX_STUDY_NODES:
        raise InputError(f"the study has machines of {nodes} nodes, more than {MAX_STUDY_NODES}")
    ranks = max(int(at["nodes"]) * int(at["ppn"]) for at in study.grid)
    if ranks > MAX_STUDY_RANKS:
        raise InputError(f"the study has machines of {ranks} ranks, more than {MAX_STUDY_RANKS}")


def _require_costs(study: Study) -> None:
    """Raise InputError unless every axis can be varied and every message has a cost.

    This is tried on two nodes: the outermost values of each axis with the first ones of the others.
    """
    first = {name: values[0] for name, values in study.axes.items()}
    nodes = study.axes["nodes"]
    for name in study.axes.get(MACHINE_AXIS, ("",)):
        study.machine_at({**first, MACHINE_AXIS: name, "nodes": nodes[-1]})
    tried = list[GridPoint]()
    for name, values in study.axes.items():
        for value in values if isinstance(values[0], str) else {values[0], values[-1]}:
            at = {**first, name: value, "nodes": min(2, nodes[-1])}
            at = {axis: at[axis] for axis in at if axis not in UPLINK_AXES}  # two may lack them
            if at not in tried:
                tried.append(at)
                _require_cost(study.machine_at(at), at)


def _require_cost(changed: Machine, at: GridPoint) -> None:
    """Raise InputError unless a message has a cost on a machine with these axes."""
    ranks = place_ranks(changed, at)
    made = algorithms.build(Collective.BCAST, "linear", ranks.p)
    simulate(made, ranks, changed.calibration, 1, memory=str(at["memory"]))
    if NCCL_AXIS in at:
        _require_nccl(changed, ranks)


def _require_nccl(machine: Machine, ranks: Placement) -> None:
    """Raise InputError where RCCL runs; where neither can, algorithms are simulated."""
    try:
        is_other = bool(nccl_system_of(ranks).architecture)
    except InputError:
        return
    if is_other:
        raise InputError(
            f"vary: nccl_version is of NCCL, and on {machine.name} RCCL runs: take it out"
        )


def _require_nccl_times(study: Study) -> None:
    """Raise InputError for versions of NCCL where no times of NCCL are predicted."""
    has_times = CUDA in study.axes["memory"] and study.calibration is None
    if NCCL_AXIS in study.axes and not has_times:
        raise InputError(
            "vary: nccl_version is for predicted times of NCCL, on buffers of GPUs without"
            " `calibration`: take it out"
        )


def _require_offered(study: Study) -> None:
    """Raise InputError for what a study is without although it has no such thing."""
    known = {
        name
        for one in study.collectives
        for name in algorithms.algorithm_names(one, algorithms.REQUIREMENTS)
    }
    for name in study.without:
        if name not in study.offered | known:
            raise InputError(
                f"without: {study.topology.name} does not offer {shortened_repr(name)}, which is no"
                f" algorithm either; it offers: {', '.join(sorted(study.offered)) or 'nothing'}"
            )


def _require_candidates(study: Study) -> None:
    chosen, known = set[str](), dict[str, None]()
    for collective in study.collectives:
        here = dict.fromkeys(n for at in study.grid for n in study.known_algorithms(collective, at))
        own = here.keys() & (study.algorithms or here.keys())
        if not own:
            _require_features(study, collective)
            raise InputError(
                f"none of the algorithms is one of {collective}; it has: {', '.join(here)}"
            )
        chosen, known = chosen | own, known | here
    for name in study.algorithms:
        if name not in chosen:
            for collective in study.collectives:
                _require_features(replace(study, algorithms=(name,)), collective)
            raise InputError(f"algorithms: {unknown_name('algorithm', name, known)}")


def _require_features(study: Study, collective: Collective) -> None:
    """Raise InputError for a named algorithm of the collective whose requirements are not met."""
    every = set(algorithms.algorithm_names(collective, algorithms.REQUIREMENTS))
    for name in study.algorithms:
        if name in every:
            _require_not_withdrawn(study, collective, name)
            algorithms.check_requirements(
                collective, name, study.features(study.grid[0]), study.topology.name
            )


def _require_not_withdrawn(study: Study, collective: Collective, name: str) -> None:
    for need in algorithms.describe(collective, name).requires:
        if need in study.without:
            raise InputError(
                f"{collective} {name} needs {algorithms.REQUIREMENTS[need]}, and the study is"
                f" without {need}: take it out of `without`, or {name} out of `algorithms`"
            )
