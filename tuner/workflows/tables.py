"""Make the calibration, the simulator and the table of a tuning run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.base.errors import InputError
from tuner.calibrate import calibrate
from tuner.core.calibration import Calibration
from tuner.core.measurement import Measurements
from tuner.core.table import TuningTable
from tuner.mpi_libraries.default_algorithms import Decisions
from tuner.select.build_table import default_table, make_table
from tuner.select.constraints import Constraints
from tuner.select.simulated_times import Simulator
from tuner.topology import Topology
from tuner.topology.readers import described
from tuner.workflows.time_limit import TimeLimit

LATE = 0.05  # share of the budget by which the last table may be late


@dataclass
class Tables:
    """Makes the tables of one run, each from everything that was measured so far.

    tell            reports the present step
    note            reports what there was no time for
    simulator       of the calls; None if nothing is simulated
    calibration     of the latest table
    """

    topology: Topology | None
    constraints: Constraints
    limit: TimeLimit
    tell: Callable[[str], None]
    note: Callable[[str], None]
    simulator: Simulator | None = None
    calibration: Calibration | None = None
    table: TuningTable | None = None

    def simulate_by(self, measurements: Measurements, decisions: Sequence[Decisions]) -> None:
        """Make the simulator from the measured messages and borrowed costs.

        Without a topology file the cluster is described from the messages. If there can be no
        simulator, report why.
        """
        first = tuple(one for one in measurements.series if one.launch == 0)
        self.tell("calibrating")
        try:
            found = self._calibrated(replace(measurements, series=first))
            where = described(measurements.cluster, found, self.topology)
        except InputError as reason:
            self.note(f"nothing is simulated: {reason}")
            return
        for sentence in found.borrowed.values():
            self.note(sentence)
        self.simulator = Simulator(found, where, decisions)

    def make(self, measurements: Measurements) -> None:
        """Make the table of these measurements."""
        self.tell("making the table")
        simulator = self.simulator
        if simulator is not None:
            found = self.calibration = self._calibrated(measurements)
            where = described(measurements.cluster, found, self.topology)
            simulator = simulator.like(found, where)
            simulator.until = time.monotonic() + max(self.limit.unspent, self.limit.slowdown)
        with self.limit.timed("table"):
            _, self.table = make_table(
                measurements,
                self.calibration,
                topology=self.topology,
                constraints=self.constraints,
                simulator=simulator,
            )

    def last(self, measurements: Measurements) -> TuningTable:
        """Return the table of everything measured, or the earlier one if there is no time for that.

        If no call was measured, the table leaves all calls to the library's default.
        """
        if has_collectives(measurements):
            needed = self.limit.expected("calibrate") + self.limit.latest("table")
            if self.table is None or self.limit.unspent + LATE * self.limit.seconds > needed:
                self.make(measurements)
        return self.table or default_table(measurements, self.constraints.rules)

    def _calibrated(self, measurements: Measurements) -> Calibration:
        with self.limit.timed("calibrate"):
            return calibrate(measurements, self.topology)


def has_collectives(measurements: Measurements) -> bool:
    """Return whether any call was measured."""
    return any(one.kind == "collective" for one in measurements.series)
