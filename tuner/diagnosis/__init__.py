"""What the MPI of an interpreter can do here, what it cannot, and what to type about it."""

from tuner.diagnosis.examine import diagnose
from tuner.diagnosis.findings import Diagnosis, Finding, Problem

__all__ = ["Diagnosis", "Finding", "Problem", "diagnose"]
