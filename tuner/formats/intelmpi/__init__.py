"""The environment variables I_MPI_ADJUST_<COLLECTIVE> of Intel MPI."""

from tuner.formats.intelmpi.adjust import DIALECT, fallback_of

__all__ = ["DIALECT", "fallback_of"]
