"""Intel MPI: the variables I_MPI_ADJUST_<COLLECTIVE>."""

from tuner.export.intelmpi.adjust import Entry, decide, parse
from tuner.export.intelmpi.emitter import check, emit, otherwise_of, ranks_of

__all__ = ["Entry", "check", "decide", "emit", "otherwise_of", "parse", "ranks_of"]
