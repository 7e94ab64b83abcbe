"""Compilation of the simulation before it is needed, within a given time.

Compiling takes half a minute of a processor once for each installation, and numba cannot be
interrupted. So `python -m tuner.sim.warmup` does it in a process of its own, which can be killed;
what it had finished by then stays in numba's cache.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from tuner.algorithms import build
from tuner.base.own_modules import own_module_command, own_module_environment
from tuner.core.calibration import Calibration, Estimate, PathCost, ReductionCost
from tuner.core.collective import Collective
from tuner.core.path_classes import HOST, NETWORK, NETWORK_BIDIRECTIONAL, NETWORK_RING, NODE
from tuner.core.schedule import Schedule
from tuner.sim.fast_engine import PreparedSimulation
from tuner.sim.jit import NotCompiledError, forbid_compilation
from tuner.topology import Link, Node, Placement, Topology

NODES = 4
PPN = 2
SIZES = (1024, 1 << 20)
SHARED_FROM = 65536.0  # bytes from which on messages are simulated event by event


def compile_within(seconds: float, on_begin: Callable[[], object] = lambda: None) -> str:
    """Compile what is not compiled yet, for at most `seconds`.

    on_begin    called before compiling, if anything must be compiled

    Return why the simulation is not compiled, empty if it is.
    """
    if is_compiled():
        return ""
    on_begin()
    reason = "no time was left to compile the simulation, which is needed once"
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(
            own_module_command("tuner.sim.warmup"),
            timeout=seconds,
            check=False,
            env=own_module_environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
        said = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        reason = f"the simulation could not be compiled ({said[0]})"
    return "" if is_compiled() else reason


def is_compiled() -> bool:
    """Return whether everything that simulations need is compiled."""
    with forbid_compilation():
        try:
            simulate_examples()
        except NotCompiledError:
            return False
    return True


def simulate_examples() -> None:
    """Simulate calls that together need every compiled function."""
    placement = Placement.block(_topology(), PPN)
    for schedule in _schedules(placement.p):
        for calibration in (_calibration(), _calibration(with_patterns=True)):
            call = PreparedSimulation(schedule, placement, calibration, 1, HOST)
            call.seconds(SIZES, np.array(call.seconds(SIZES)))


def _schedules(p: int) -> Iterator[Schedule]:
    for collective, name, params in (
        (Collective.BCAST, "binomial", {}),
        (Collective.BCAST, "pipeline", {"segment": 8192}),
        (Collective.ALLREDUCE, "ring", {}),
        (Collective.ALLREDUCE, "recursive_doubling", {}),
        (Collective.GATHER, "linear", {}),
    ):
        yield build(collective, name, p, nbytes=SIZES[-1], params=params)


def _topology() -> Topology:
    """Return a few nodes on two switches, between which routes are searched."""
    names, switches = [f"node{number}" for number in range(NODES)], ("one", "other")
    cables = [*((name, switches[number % 2]) for number, name in enumerate(names)), switches]
    links = [
        Link(*ends, 1e9, 1e-6) for one, other in cables for ends in ((one, other), (other, one))
    ]
    return Topology("warm-up", tuple(map(Node, names)), switches, tuple(links))


def _calibration(with_patterns: bool = False) -> Calibration:
    """Return example costs; with_patterns: with those of bidirectional and ring traffic."""
    classes = (NETWORK, NODE, *((NETWORK_BIDIRECTIONAL, NETWORK_RING) if with_patterns else ()))
    paths = {
        (name, HOST): PathCost.from_alpha_beta(1e-5, 1e-9, eager_limit=4096.0) for name in classes
    }
    reduction = {HOST: ReductionCost(Estimate.exact(1e-7), Estimate.exact(1e-10))}
    return Calibration("warm-up", "none", paths, reduction, port_sharing_threshold=SHARED_FROM)


if __name__ == "__main__":
    if not is_compiled():
        print("compiling the simulation, once for each installation: a minute or two", flush=True)
        simulate_examples()
