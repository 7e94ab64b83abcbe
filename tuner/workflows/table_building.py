"""Make the calibration, the simulator and the table of a tuning run."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from tuner.base.errors import InputError
from tuner.calibrate import calibrate
from tuner.core.calibration import Calibration
from tuner.core.call_profile import ProfiledCall
from tuner.core.collective import PROBE_ELEMENT_BYTES
from tuner.core.measurement import Measurements
from tuner.core.table import RUNNER_OF_KIND, Rule, TuningTable
from tuner.mpi_libraries.default_algorithms import DefaultAlgorithms
from tuner.select.build_table import default_table, make_table
from tuner.select.constraints import Constraints
from tuner.select.dataset import Observation
from tuner.select.simulated_times import Simulator
from tuner.topology import Topology
from tuner.topology.readers import topology_for
from tuner.validation.acceptance import part_of_rule, withdraw_rules
from tuner.workflows.time_limit import TimeLimit

MAX_LATE_SHARE = 0.05  # share of the budget by which the last table may be late


@dataclass
class TableBuilder:
    """Makes the tables of one run, each from everything that was measured so far.

    on_step         called with the present step
    on_note         called with what cannot be simulated, and why
    calls           calls to whose sizes rules are limited; none: all sizes have rules
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
    calls: Sequence[ProfiledCall] = ()
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
            self.observations, made = make_table(
                measurements,
                self.calibration,
                topology=self.topology,
                constraints=self.constraints,
                simulator=simulator,
            )
        limit = self.constraints.max_rules
        self.table = rules_for_calls(made, self.calls, limit) if self.calls else made

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


def rules_for_calls(
    table: TuningTable, calls: Sequence[ProfiledCall], max_rules: int | None = None
) -> TuningTable:
    """Return the table with the default instead of its rules at sizes that these calls lack.

    A rule for some of the calls holds from the smallest to the largest of them, and of the sizes
    nearest to them that its evidence has, so that each rule keeps what it was chosen by.

    max_rules   largest number of rules, for which rules may keep further sizes
    """
    parts = [part for rule in table.rules for part in _parts_without_calls(rule, calls)]
    cut = withdraw_rules(table, parts)
    if max_rules is None or len(cut.rules) <= max_rules:
        return cut
    return withdraw_rules(table, [part for part in parts if part in table.rules])


def _parts_without_calls(rule: Rule, calls: Sequence[ProfiledCall]) -> Iterator[Rule]:
    """Yield what a rule has below and above its calls, or the rule if it has none.

    Calls without data and ragged ones, whose sizes vary, belong to all rules for them. Of others
    whole elements were measured, in equal shares.
    """
    key = rule.key
    varies = key.collective.is_ragged or not key.collective.has_data
    own = [
        call.nbytes
        for call in calls
        if (call.collective, call.nodes, call.ppn) == (key.collective, key.nodes, key.ppn)
        if varies or rule.start_bytes <= call.nbytes < rule.stop_bytes
    ]
    if rule.choice.is_default or (own and varies):
        return
    if not own:
        yield rule
        return
    own += _evidence_for(own, rule)
    least, stop = min(own), max(*own, PROBE_ELEMENT_BYTES) + 1
    start = key.collective.rounded_down(least - least % PROBE_ELEMENT_BYTES, key.p)
    if rule.start_bytes < start:
        yield part_of_rule(rule, rule.start_bytes, start)
    if stop < rule.stop_bytes:
        yield part_of_rule(rule, stop, rule.stop_bytes)


def _evidence_for(sizes: Sequence[int], rule: Rule) -> list[int]:
    """Return the size of a rule's evidence that is nearest to each of some sizes, in bytes."""
    known = rule.evidence.nbytes
    return [min(known, key=lambda each: abs(math.log(each / n))) for n in sizes if known]


def has_collectives(measurements: Measurements) -> bool:
    """Return whether any call was measured."""
    return any(one.kind == "collective" for one in measurements.series)
