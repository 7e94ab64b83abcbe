"""Run all stages for one library: probe, calibrate, select, accept, compare, export, validate."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import dropwhile
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError
from tuner.base.processes import available_cores
from tuner.base.progress import ProgressCallback, StageCallback, StageDisplay, progress_from_counts
from tuner.calibrate import calibrate, empty_calibration
from tuner.core.calibration import Calibration, read_calibration, write_calibration
from tuner.core.measurement import REQUESTED_CALLS_KEY, Measurements, read_measurements
from tuner.core.path_classes import HOST
from tuner.core.table import TuningTable, read_table, write_table
from tuner.mpi_libraries import library_module
from tuner.mpi_libraries.products import title_of
from tuner.mpi_libraries.profiles import profile_of
from tuner.probe.driver import SingleHostSpec, probe
from tuner.probe.monitor import forward_progress
from tuner.report import LibraryResult
from tuner.select.build_table import default_table, make_table
from tuner.select.dataset import CallPoint, Observation
from tuner.select.simulated_times import prediction_records
from tuner.validation.libraries import TUNED_LIBRARIES
from tuner.workflows import acceptance, following, native_files, validation
from tuner.workflows.checkpoint import StageCheckpoint
from tuner.workflows.table_building import has_collectives

STAGE_SECONDS = {  # on two cores, for the estimate
    "start": 3,
    "calibrate": 1,
    "tune": 15,
    "accept": 45,
    "compare": 35,
    "validate": 4,
}
STAGE_FILES = {  # files that a stage reads, and files that it writes
    "calibrate": (("measurements.ndjson",), ("calibration.json",)),
    "tune": (("measurements.ndjson", "calibration.json"), ("simulated.json", "candidates.json")),
    "accept": (("candidates.json",), ("accepted.json",)),
    "compare": (("accepted.json",), ("table.json", "heldout.json")),
    "validate": (("table.json",), ("validation.json",)),
}


@dataclass(frozen=True)
class LibraryPipeline:
    """The stages of one library, whose files are in `stages.out / name`.

    spec            what the probe measures
    budget          seconds of measuring in the probe
    """

    spec: SingleHostSpec
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
        rest = dropwhile(self._is_done, STAGE_FILES)
        return self._probe_seconds + sum(STAGE_SECONDS[name] for name in rest)

    @property
    def _probe_seconds(self) -> float:
        """Return the seconds that the probe still takes."""
        return 0.0 if self._is_done("calibrate") else self.budget + STAGE_SECONDS["start"]

    @property
    def title(self) -> str:
        return title_of(self.name)

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
        self._probe()
        self._calibrate()
        self._tune()
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

    def _probe(self) -> None:
        with self.display.stage(f"probing {self.title}", self._probe_seconds) as report:
            probe(
                self.path_of("measurements.ndjson"),
                self.spec,
                python=self.python,
                budget=self.budget,
                on_progress=forward_progress(report),
            )

    def _calibrate(self) -> None:
        def make(_: StageCallback) -> None:
            write_calibration(self._fit_calibration(), self.path_of("calibration.json"))

        self._stage("calibrate", f"calibrating {self.title}", make)

    def _fit_calibration(self) -> Calibration:
        """Return the calibration, without costs where too few messages were measured."""
        try:
            return calibrate(self.measurements)
        except InputError as reason:
            self.display.note(f"nothing is simulated: {reason}")
            return empty_calibration(self.measurements, None, [str(reason)])

    def _tune(self) -> None:
        def make(report: StageCallback) -> None:
            rows, table = self._make_table(progress_from_counts(report))
            self._write("simulated.json", prediction_records(rows))
            write_table(table, self.path_of("candidates.json"))

        self._stage("tune", f"simulating and selecting for {self.title}", make)

    def _make_table(self, progress: ProgressCallback) -> tuple[Sequence[Observation], TuningTable]:
        """Return the observations and the table, which every probe gives."""
        calibration = read_calibration(self.path_of("calibration.json"))
        if not has_collectives(self.measurements):
            self.display.note(
                f"no call was measured in {self.budget:g} s, so the table of {self.title} leaves"
                " all calls to its default: a larger --budget measures some"
            )
            return (), default_table(self._with_requested_calls())
        known = calibration if calibration.paths else None
        return make_table(self.measurements, known, progress, cores=available_cores())

    def _with_requested_calls(self) -> Measurements:
        """Return the measurements with the calls that the probe was to measure."""
        ranks = int(self.measurements.provenance["ranks"])
        wanted = [
            asdict(CallPoint(collective, 1, ranks, HOST, 0))
            for collective in library_module(self.name).ALGORITHMS
        ]
        provenance = {**self.measurements.provenance, REQUESTED_CALLS_KEY: wanted}
        return replace(self.measurements, provenance=provenance)

    def _accept(self) -> None:
        def make(report: StageCallback) -> None:
            candidates = read_table(self.path_of("candidates.json"))
            launcher = validation.local_launcher(candidates, self.python)
            write_table(
                acceptance.accept_winning_rules(candidates, launcher, report),
                self.path_of("accepted.json"),
            )

        self._stage("accept", f"trying the rules in a C program, {self.title}", make)

    def _compare(self) -> None:
        def make(report: StageCallback) -> None:
            accepted = read_table(self.path_of("accepted.json"))
            if not has_collectives(self.measurements):  # the default alone: nothing to compare
                write_table(accepted, self.path_of("table.json"))
                self._write("heldout.json", [])
                return
            launcher = validation.local_launcher(accepted, self.python)
            table, records = acceptance.withdraw_losing_rules(
                accepted, launcher, report, on_note=self.display.note
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
            with self.display.stage(title, STAGE_SECONDS[name]) as report:
                make(report)

        if not self.stages.run(f"{self.name}/{name}", *self._files(name), shown):
            self.display.note(f"kept  {title}: nothing changed since it was done")

    def _is_done(self, name: str) -> bool:
        read, written = self._files(name)
        return all(path.is_file() for path in read) and self.stages.is_done(
            f"{self.name}/{name}", read, written
        )

    def _files(self, name: str) -> tuple[list[Path], list[Path]]:
        """Return the files that a stage reads, and those that it writes."""
        read, written = (
            [self.path_of(entry) for entry in entries] for entries in STAGE_FILES[name]
        )
        return read, written

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
