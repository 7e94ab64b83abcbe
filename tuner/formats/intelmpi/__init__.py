"""Intel MPI: the variables I_MPI_ADJUST_<COLLECTIVE>."""

from tuner.formats.intelmpi.adjust import DIALECT, otherwise_of

__all__ = ["DIALECT", "otherwise_of"]
