"""Checks of the MPI of an interpreter: what works, what does not, and how to fix it."""

from tuner.diagnosis.examine import diagnose
from tuner.diagnosis.findings import Diagnosis, Finding, SetupProblem

__all__ = ["Diagnosis", "Finding", "SetupProblem", "diagnose"]
