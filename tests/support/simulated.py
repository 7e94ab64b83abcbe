"""A small cluster with a calibration, and candidates of calls on it."""

from dataclasses import replace

from tuner.core.calibration import Calibration, PathCost
from tuner.core.collective import Collective
from tuner.core.measurement import Cluster, Measurement, Measurements
from tuner.core.table import AlgorithmChoice
from tuner.select.dataset import CallPoint
from tuner.topology.readers import single_node_topology

CLUSTER = Cluster("ares", nodes=1, cores=8, cpu="any cpu", memory=2**30)


CALIBRATION = Calibration(
    "ares", "openmpi", {("node", "host"): PathCost.from_alpha_beta(1e-6, 1e-9)}
)


TOPOLOGY = single_node_topology(CLUSTER, CALIBRATION)


POINT = CallPoint(Collective.BCAST, 1, 4, "host", 4096)


def on_four_hosts() -> Measurements:
    """Radix 2 is the fastest, and radix 4 the fastest that a rule can say."""
    times = (
        (AlgorithmChoice(), 4e-4),
        (AlgorithmChoice("linear"), 3e-4),
        (AlgorithmChoice("knomial", {"radix": 4}), 2e-4),
        (AlgorithmChoice("knomial", {"radix": 2}), 1e-4),
    )
    taken = tuple(
        Measurement(
            "collective", "bcast", 4, 1, 4, nbytes, (seconds,) * 9, choice.algorithm, choice.params
        )
        for nbytes in (1024, 4096, 16384)
        for choice, seconds in times
    )
    return Measurements(replace(CLUSTER, nodes=4), "openmpi 5.0.11", {}, taken)
