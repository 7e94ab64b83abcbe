"""The whole way from measurements and their calibration to a tuning table."""

from __future__ import annotations

from collections.abc import Sequence

from tuner import libraries
from tuner.cost import Calibration
from tuner.errors import InputError
from tuner.measurement import Measurements
from tuner.select.dataset import Progress, Row, label, quietly
from tuner.select.predict import simulator
from tuner.select.selector import train
from tuner.select.tabulate import tabulate
from tuner.table import TuningTable
from tuner.topologies import single_node
from tuner.topology import Topology


def make_table(
    measurements: Measurements,
    calibration: Calibration,
    progress: Progress = quietly,
    topology: Topology | None = None,
) -> tuple[Sequence[Row], TuningTable]:
    """The labelled rows and the table, of choices that the library's rules can say.

    topology    of the cluster that was measured; one node of its cores unless it is given

    Raises InputError when calibration and measurements do not belong together, and when the ranks
    do not fit on the topology.
    """
    theirs = (calibration.cluster, calibration.library)
    if theirs != (measurements.cluster.name, measurements.library):
        raise InputError(
            f"the calibration is of {theirs[1]} on {theirs[0]}, the measurements of"
            f" {measurements.library} on {measurements.cluster.name}: calibrate these measurements"
        )
    library = libraries.named(measurements.library)
    shape = topology or single_node(measurements.cluster, calibration)
    simulate = simulator(calibration, shape)
    rows = [
        row
        for row in label(measurements, simulate, progress)
        if library.in_rules(row.point.key().collective, row.choice)
    ]
    return rows, tabulate(measurements, rows, train(rows, simulate), library.order_safe)
