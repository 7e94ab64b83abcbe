"""Run all stages for one library: measure, select, accept, compare, export, validate."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import dropwhile
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.base.progress import StageCallback, StageDisplay
from tuner.calibrate import calibrate, empty_calibration
from tuner.core.calibration import Calibration, write_calibration
from tuner.core.measurement import MIN_LAUNCHES, Measurements, read_measurements
from tuner.core.table import TuningTable, read_table, write_table
from tuner.launch import Launcher
from tuner.mpi_libraries.products import title_of
from tuner.mpi_libraries.profiles import profile_of
from tuner.probe.monitor import forward_progress
from tuner.probe.probe_spec import ProbeSpec
from tuner.probe.probed_machine import local_cluster
from tuner.report import LibraryResult
from tuner.select.simulated_times import prediction_records
from tuner.validation.libraries import TUNED_LIBRARIES
from tuner.workflows import acceptance, following, native_files, validation
from tuner.workflows.active_tuning import Callbacks, StoppingRule, TuningResult, run_active_tuning
from tuner.workflows.checkpoint import StageCheckpoint

MEASURE = "measure"  # the first stage, which takes the budget
VERDICT_SHARE = 2.0  # of the budget: what `accept` and `compare` take at most
STAGE_SHARES = {  # of the budget: what these stages take at most, and the estimate
    MEASURE: 1.0,
    "accept": VERDICT_SHARE * acceptance.TRYING_SHARE,
    "compare": VERDICT_SHARE * (1.0 - acceptance.TRYING_SHARE),
}
VALIDATION_S = 4.0  # on two cores, for the estimate
STAGE_FILES = {  # files that a stage reads, and files that it writes
    MEASURE: ((), ("measurements.ndjson", "calibration.json", "simulated.json", "candidates.json")),
    "accept": (("candidates.json",), ("accepted.json",)),
    "compare": (("accepted.json",), ("table.json", "heldout.json")),
    "validate": (("table.json",), ("validation.json",)),
}
TARGET_REGRET = 0.02  # mean regret of the table below which nothing more is measured


@dataclass(frozen=True)
class LibraryPipeline:
    """The stages of one library, whose files are in `stages.out / name`.

    spec            what is measured
    budget          seconds of measuring and selecting
    """

    spec: ProbeSpec
    budget: float
    python: Path
    stages: StageCheckpoint
    display: StageDisplay

    @property
    def name(self) -> str:
        return self.spec.library

    @property
    def expected_seconds(self) -> float:
        """Return the expected seconds of the stages that are not finished yet."""
        return sum(map(self._seconds_of, dropwhile(self._is_done, STAGE_FILES)))

    @property
    def title(self) -> str:
        return title_of(self.name)

    @cached_property
    def _launcher(self) -> Launcher:
        return Launcher.find(self.name, self.python)

    def path_of(self, name: str) -> Path:
        return self.stages.out / self.name / name

    @property
    def native_file(self) -> Path:
        return self.path_of(profile_of(self.name).tuning_file)

    @cached_property
    def measurements(self) -> Measurements:
        """The measurements of the probe, read once it is complete."""
        return read_measurements(self.path_of("measurements.ndjson"))

    @cached_property
    def table(self) -> TuningTable:
        return read_table(self.path_of("table.json"))

    def make_accepted_table(self) -> None:
        """Measure, and make a table of rules that win; finished stages are skipped."""
        self._measure()
        self._accept()

    def compare_and_validate(self) -> LibraryResult:
        """Compare with the default, which withdraws rules, and validate the others.

        The longer after `make_accepted_table`, the better: a machine does not always behave alike.
        """
        self._compare()
        self._export()
        self._validate()
        return LibraryResult(
            self.name,
            self.measurements,
            self.table,
            self.read_records("simulated.json"),
            self.read_records("validation.json"),
            self.read_records("heldout.json"),
            following.launch_settings(self.name, self.native_file),
        )

    def _measure(self) -> None:
        def make(report: StageCallback) -> None:
            found = run_active_tuning(
                self.path_of("measurements.ndjson"),
                self.spec,
                self._launcher,
                StoppingRule(self.budget, TARGET_REGRET, min_launches=MIN_LAUNCHES),
                callbacks=Callbacks(forward_progress(report), on_note=self.display.note),
            )
            if not self.path_of("measurements.ndjson").exists():
                raise InputError(
                    f"nothing was measured in {self.budget:g} s: give a larger --budget"
                )
            write_calibration(_calibration_of(found), self.path_of("calibration.json"))
            self._write("simulated.json", prediction_records(found.observations))
            write_table(found.table, self.path_of("candidates.json"))
            if found.regret_bound is not None:
                self.display.note(f"the rules to try have {found.regret_bound}")

        self._stage(MEASURE, f"measuring {self.title}", make)

    def _accept(self) -> None:
        def make(report: StageCallback) -> None:
            candidates = read_table(self.path_of("candidates.json"))
            launcher = validation.local_launcher(candidates, self.python)
            accepted = acceptance.accept_winning_rules(
                candidates, launcher, report, budget=self._seconds_of("accept")
            )
            write_table(accepted, self.path_of("accepted.json"))

        self._stage("accept", f"trying the rules in a C program, {self.title}", make)

    def _compare(self) -> None:
        def make(report: StageCallback) -> None:
            accepted = read_table(self.path_of("accepted.json"))
            if all(rule.choice.is_default for rule in accepted.rules):  # nothing to compare
                write_table(accepted, self.path_of("table.json"))
                self._write("heldout.json", [])
                return
            launcher = validation.local_launcher(accepted, self.python)
            table, records = acceptance.withdraw_losing_rules(
                accepted,
                launcher,
                report,
                on_note=self.display.note,
                budget=self._seconds_of("compare"),
            )
            write_table(table, self.path_of("table.json"))
            self._write("heldout.json", records)

        self._stage("compare", f"timing tuned against default, {self.title}", make)

    def _export(self) -> None:
        text, lost = native_files.export_table(self.table, self.name, self.python)
        for rule in lost:
            self.display.note(f"left to the default, {self.title} lacks it: {rule}")
        write_atomically(self.native_file, text)
        library = TUNED_LIBRARIES[self.name]
        library.write_further_file(self.table, self.native_file, self.python)
        limitation = library.limitation(self.python)
        if limitation:
            self.display.note(limitation)

    def _validate(self) -> None:
        def make(report: StageCallback) -> None:
            validations = validation.validate_file(
                self.table, self.python, self.native_file, report
            )
            self._write("validation.json", validations)

        self._stage("validate", f"validating what {self.title} executes", make)

    def _stage(self, name: str, title: str, make: Callable[[StageCallback], None]) -> None:
        def shown() -> None:
            with self.display.stage(title, self._seconds_of(name)) as report:
                make(report)

        if not self.stages.run(f"{self.name}/{name}", self.inputs(name), self.outputs(name), shown):
            self.display.note(f"kept  {title}: nothing changed since it was done")

    def _seconds_of(self, name: str) -> float:
        """Return the seconds that a stage takes at most, or is expected to take."""
        return self.budget * STAGE_SHARES[name] if name in STAGE_SHARES else VALIDATION_S

    def _is_done(self, name: str) -> bool:
        inputs = self.inputs(name)
        there = all(one.is_file() for one in inputs if isinstance(one, Path))
        return there and self.stages.is_done(f"{self.name}/{name}", inputs, self.outputs(name))

    def inputs(self, name: str) -> list[Path | str]:
        """Return what the result of a stage depends on: files, and what is to be measured."""
        if name == MEASURE:
            return [repr((self.spec, self.budget, self._launcher.version(), local_cluster()))]
        return [self.path_of(entry) for entry in STAGE_FILES[name][0]]

    def outputs(self, name: str) -> list[Path]:
        """Return the files that a stage writes."""
        return [self.path_of(entry) for entry in STAGE_FILES[name][1]]

    def _write(self, name: str, records: list[dict[str, Any]]) -> None:
        write_atomically(self.path_of(name), json.dumps(records, indent=1) + "\n")

    def read_records(self, name: str) -> list[dict[str, Any]]:
        """Return what an earlier stage wrote; raise InputError if that is damaged."""
        try:
            return list(json.loads(self.path_of(name).read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError) as reason:
            raise InputError(
                f"{self.path_of(name)}: cannot be read ({reason}); delete it"
            ) from None


def _calibration_of(found: TuningResult) -> Calibration:
    """Return the calibration, without costs where too few messages were measured."""
    try:
        return found.calibration or calibrate(found.measurements)
    except InputError as reason:
        return empty_calibration(found.measurements, None, [str(reason)])
