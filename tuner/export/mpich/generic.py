"""The rules that an MPICH library decides with by itself, found in its binary."""

from __future__ import annotations

import re
from pathlib import Path

from tuner.errors import InputError
from tuner.export.mpich.selection import Tree, parse


def generic_tuning(libmpi: Path) -> Tree:
    """The complete tree that an MPICH library decides with by itself, read from its binary.

    The library holds several such texts as C strings (one per layer); the one whose leaves are
    `MPIR_` algorithms is wanted. Raises InputError when there is none.
    """
    try:
        binary = libmpi.read_bytes()
    except OSError as reason:
        raise InputError(f"{libmpi}: cannot be read: {reason.strerror}") from None
    for match in re.finditer(rb'\{\s*"collective=[^\0]*', binary):
        if b"algorithm=MPIR_Bcast_intra_" in match[0]:
            return parse(match[0].decode(errors="replace"))
    raise InputError(
        f"{libmpi}: holds no collective selection rules; give the libmpi of MPICH 4.1 or later"
    )
