"""The loop for one MPI library: probe, calibrate, select, accept, export, compare, prove."""

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
from tuner.base.progress import Report, StageDisplay, counted
from tuner.calibrate import calibrate
from tuner.core.calibration import read_calibration, write_calibration
from tuner.core.measurement import Measurements, read_measurements
from tuner.core.table import TuningTable, read_table, write_table
from tuner.mpi_libraries.products import title_of
from tuner.probe.driver import probe
from tuner.probe.monitor import forwarded
from tuner.report import LibraryResult
from tuner.select.build_table import make_table
from tuner.select.simulated_times import predictions
from tuner.sim.process_pool import usable
from tuner.workflows import acceptance, following, native_files, validation
from tuner.workflows.checkpoint import Stages

SECONDS = {  # on two cores, for the estimate
    "start": 3,
    "calibrate": 1,
    "tune": 15,
    "accept": 45,
    "compare": 35,
    "prove": 4,
}
FILES = {  # that a stage reads, and that it writes
    "calibrate": (("measurements.ndjson",), ("calibration.json",)),
    "tune": (("measurements.ndjson", "calibration.json"), ("simulated.json", "candidates.json")),
    "accept": (("candidates.json",), ("accepted.json",)),
    "compare": (("accepted.json",), ("table.json", "heldout.json")),
    "prove": (("table.json",), ("proofs.json",)),
}


@dataclass(frozen=True)
class LibraryLoop:
    """Everything about one library lives in `stages.out / name`.

    ranks       None: as many as the probe takes by itself
    sizes       bytes of the collectives' buffers; None: the probe's own ladder
    budget      seconds of measuring in the probe
    thread_level    with which the programs initialise MPI
    """

    name: str
    python: Path
    stages: Stages
    display: StageDisplay
    ranks: int | None
    sizes: tuple[int, ...] | None
    budget: float
    thread_level: str

    @property
    def expected(self) -> float:
        """Return the seconds that the loop of this library still takes: all of it, or the stages
        that an earlier run has not finished.
        """
        rest = dropwhile(self._finished, FILES)
        return self._probing + sum(SECONDS[name] for name in rest)

    @property
    def _probing(self) -> float:
        """Return the seconds that the probe still takes."""
        return 0.0 if self._finished("calibrate") else self.budget + SECONDS["start"]

    @property
    def title(self) -> str:
        """How people write the library's name."""
        return title_of(self.name)

    def file(self, name: str) -> Path:
        """A file of this library."""
        return self.stages.out / self.name / name

    @property
    def native_file(self) -> Path:
        """What the library itself reads."""
        return self.file(following.TUNING_FILES[self.name])

    @cached_property
    def measurements(self) -> Measurements:
        """Read once the probe is complete."""
        return read_measurements(self.file("measurements.ndjson"))

    @cached_property
    def table(self) -> TuningTable:
        """Read once it was made."""
        return read_table(self.file("table.json"))

    def propose(self) -> None:
        """Measure, and make a table; stages that are finished are left out."""
        self._probe()
        self._calibrate()
        self._tune()
        self._accept()

    def conclude(self) -> LibraryResult:
        """Compare, which withdraws rules, and prove what is left.

        The longer after `propose`, the better: a machine does not always behave alike.
        """
        self._compare()
        self._export()
        self._prove()
        return LibraryResult(
            self.name,
            self.measurements,
            self.table,
            self.records("simulated.json"),
            self.records("proofs.json"),
            self.records("heldout.json"),
            following.use_of(self.name, self.native_file),
        )

    def _probe(self) -> None:
        with self.display.stage(f"probing {self.title}", self._probing) as report:
            probe(
                self.file("measurements.ndjson"),
                library=self.name,
                python=self.python,
                ranks=self.ranks,
                sizes=self.sizes,
                budget=self.budget,
                thread_level=self.thread_level,
                on_progress=forwarded(report),
            )

    def _calibrate(self) -> None:
        def make(_: Report) -> None:
            write_calibration(calibrate(self.measurements), self.file("calibration.json"))

        self._stage("calibrate", f"calibrating {self.title}", make)

    def _tune(self) -> None:
        def make(report: Report) -> None:
            calibration = read_calibration(self.file("calibration.json"))
            rows, table = make_table(
                self.measurements, calibration, counted(report), cores=usable()
            )
            self._write("simulated.json", predictions(rows))
            write_table(table, self.file("candidates.json"))

        self._stage("tune", f"simulating and selecting for {self.title}", make)

    def _accept(self) -> None:
        def make(report: Report) -> None:
            candidates = read_table(self.file("candidates.json"))
            launcher = validation.launcher(candidates, self.python)
            write_table(acceptance.accept(candidates, launcher, report), self.file("accepted.json"))

        self._stage("accept", f"trying the rules in a C program, {self.title}", make)

    def _compare(self) -> None:
        def make(report: Report) -> None:
            accepted = read_table(self.file("accepted.json"))
            launcher = validation.launcher(accepted, self.python)
            table, records = acceptance.settle(accepted, launcher, report, tell=self.display.note)
            write_table(table, self.file("table.json"))
            self._write("heldout.json", records)

        self._stage("compare", f"timing tuned against default, {self.title}", make)

    def _export(self) -> None:
        text, lost = native_files.export(self.table, self.name, self.python)
        for rule in lost:
            self.display.note(f"left to the default, {self.title} lacks it: {rule}")
        write_atomically(self.native_file, text)
        if self.name == "mpich":
            following.write_device_file(self.table, self.python, self.native_file)
        limitation = following.limitation(self.name, self.python)
        if limitation:
            self.display.note(limitation)

    def _prove(self) -> None:
        def make(report: Report) -> None:
            proofs = validation.prove(self.table, self.python, self.native_file, report)
            self._write("proofs.json", proofs)

        self._stage("prove", f"proving what {self.title} executes", make)

    def _stage(self, name: str, title: str, make: Callable[[Report], None]) -> None:
        def shown() -> None:
            with self.display.stage(title, SECONDS[name]) as report:
                make(report)

        if not self.stages.run(f"{self.name}/{name}", *self._files(name), shown):
            self.display.note(f"kept  {title}: nothing changed since it was done")

    def _finished(self, name: str) -> bool:
        read, written = self._files(name)
        return all(path.is_file() for path in read) and self.stages.finished(
            f"{self.name}/{name}", read, written
        )

    def _files(self, name: str) -> tuple[list[Path], list[Path]]:
        """Return the files that a stage reads, and those that it writes."""
        read, written = ([self.file(entry) for entry in entries] for entries in FILES[name])
        return read, written

    def _write(self, name: str, records: list[dict[str, Any]]) -> None:
        write_atomically(self.file(name), json.dumps(records, indent=1) + "\n")

    def records(self, name: str) -> list[dict[str, Any]]:
        """What an earlier stage wrote; raises InputError when that is damaged."""
        try:
            return list(json.loads(self.file(name).read_text(encoding="utf-8")))
        except (OSError, TypeError, ValueError) as reason:
            raise InputError(f"{self.file(name)}: cannot be read ({reason}); delete it") from None
