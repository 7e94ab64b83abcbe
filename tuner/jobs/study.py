"""The job that runs a what-if study."""

from __future__ import annotations

from tuner import db
from tuner.base.errors import InputError
from tuner.core.calibration import Calibration
from tuner.core.table import TuningTable
from tuner.jobs.kinds import JobReport, JobSpec, StoreResult
from tuner.machines import Machine
from tuner.machines.loader import load_machine
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.whatif.executors import make_parallel_executor
from tuner.whatif.study_result import result_record
from tuner.whatif.study_runner import run_study
from tuner.whatif.study_spec import study_from_record


def work(_engine: db.Engine, spec: JobSpec, report: JobReport) -> StoreResult:
    """Run the study whose record is `spec`.

    The result of the job is the record of the study's result.
    """
    result = result_record(
        run_study(
            study_from_record(spec, _NoResources()),
            report.progress,
            executor=make_parallel_executor(),
        )
    )
    return lambda _session: result


class _NoResources:
    """Resources for the record of a study, which contains all it needs except machine presets."""

    def machine(self, name: str) -> Machine:
        """Return a machine preset; raise InputError for any other name."""
        if not name.startswith(PRESET_PREFIX):
            raise InputError(f"topology: expected a preset or a whole one, not the name {name}")
        return load_machine(name)

    def calibration(self, name: str) -> Calibration:
        raise InputError(f"calibration: expected a whole calibration, not the name {name}")

    def table(self, name: str) -> TuningTable:
        raise InputError(f"table: expected a whole table, not the name {name}")
