"""NCCL 2.22 and later, and RCCL: the CSV that their example tuner plugin reads."""

from tuner.export.nccl.emitter import check, emit, otherwise_of, replaced
from tuner.export.nccl.rows import Call, Row, decide, parse

__all__ = ["Call", "Row", "check", "decide", "emit", "otherwise_of", "parse", "replaced"]
