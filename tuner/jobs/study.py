"""Answer a what-if study."""

from __future__ import annotations

from tuner import db
from tuner.cost import Calibration
from tuner.errors import InputError
from tuner.jobs.kinds import Spec, Store, Tell, counted
from tuner.sim.study import result_record, run, study_from
from tuner.table import TuningTable
from tuner.topology import Topology


def work(_engine: db.Engine, spec: Spec, tell: Tell) -> Store:
    """`spec` is the record of the study, the result that of its answer."""
    result = result_record(run(study_from(spec, _Nothing()), counted(tell, "simulating")))
    return lambda _session: result


class _Nothing:
    """What the record of a study refers to: it holds everything itself."""

    def topology(self, name: str) -> Topology:
        raise InputError(f"there is no topology {name} here")

    def calibration(self, name: str) -> Calibration:
        raise InputError(f"there is no calibration {name} here")

    def table(self, name: str) -> TuningTable:
        raise InputError(f"there is no table {name} here")
