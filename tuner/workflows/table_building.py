"""Make the calibration, the simulator and the table of a tuning run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.base.errors import InputError
from tuner.calibrate import calibrate
from tuner.core.calibration import Calibration
from tuner.core.measurement import Measurements
from tuner.core.table import RUNNER_OF_KIND, TuningTable
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.select.build_table import default_table, make_table
from tuner.select.constraints import Constraints
from tuner.select.dataset import Observation
from tuner.select.simulated_times import Simulator
from tuner.topology import Topology
from tuner.topology.readers import topology_for
from tuner.workflows.time_limit import TimeLimit

MAX_LATE_SHARE = 0.05  # share of the budget by which the last table may be late


@dataclass
class TableBuilder:
    """Makes the tables of one run, each from everything that was measured so far.

    on_step         called with the present step
    on_note         called with what cannot be simulated, and why
    simulator       simulator of the calls; None if nothing is simulated
    calibration     calibration of the latest table
    table           latest table
    observations    what that table was made from
    """

    topology: Topology | None
    constraints: Constraints
    limit: TimeLimit
    on_step: Callable[[str], None]
    on_note: Callable[[str], None]
    simulator: Simulator | None = None
    calibration: Calibration | None = None
    table: TuningTable | None = None
    observations: Sequence[Observation] = ()

    def set_up_simulator(
        self, measurements: Measurements, decisions: Sequence[DefaultAlgorithms]
    ) -> None:
        """Make the simulator from the measured messages and borrowed costs.

        Without a topology file the cluster is described from the messages. If no simulator can be
        made, report why.
        """
        messages = tuple(one for one in measurements.series if one.kind not in RUNNER_OF_KIND)
        self.on_step("calibrating")
        try:
            found = self._calibrate(replace(measurements, series=messages))
            where = topology_for(measurements.cluster, found, self.topology)
        except InputError as reason:
            self.on_note(f"nothing is simulated: {reason}")
            return
        for sentence in found.borrowed_costs.values():
            self.on_note(sentence)
        self.simulator = Simulator(found, where, decisions)

    def build(self, measurements: Measurements) -> None:
        self.on_step("making the table")
        simulator = self.simulator
        if simulator is not None:
            found = self.calibration = self._calibrate(measurements)
            where = topology_for(measurements.cluster, found, self.topology)
            simulator = simulator.with_calibration(found, where)
            simulator.deadline = time.monotonic() + max(
                self.limit.remaining_this_run, self.limit.slowdown
            )
        with self.limit.measure_step("table"):
            self.observations, self.table = make_table(
                measurements,
                self.calibration,
                topology=self.topology,
                constraints=self.constraints,
                simulator=simulator,
            )

    def final_table(self, measurements: Measurements) -> TuningTable:
        """Return the table of everything measured, or the earlier one if there is no time for that.

        If no call was measured, the table leaves all calls to the library's default.
        """
        if has_collectives(measurements):
            needed = self.limit.expected_duration("calibrate") + self.limit.latest_duration("table")
            if (
                self.table is None
                or self.limit.remaining_this_run + MAX_LATE_SHARE * self.limit.seconds > needed
            ):
                self.build(measurements)
        return self.table or default_table(measurements, self.constraints.max_rules)

    def _calibrate(self, measurements: Measurements) -> Calibration:
        with self.limit.measure_step("calibrate"):
            return calibrate(measurements, self.topology)


def has_collectives(measurements: Measurements) -> bool:
    """Return whether any call was measured."""
    return any(one.kind == "collective" for one in measurements.series)
