"""Checks of the MPI of an interpreter: what works, what does not, and how to fix it."""

from tuner.diagnosis.examine import diagnose
from tuner.diagnosis.findings import Diagnosis, Finding, Problem

__all__ = ["Diagnosis", "Finding", "Problem", "diagnose"]
