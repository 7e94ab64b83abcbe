"""Sockets on emulated hosts for programs outside them: one program, one clock, both ends."""

import ctypes
import os
import socket
from pathlib import Path

from tests.support.waiting import patience

LIBC = ctypes.CDLL(None, use_errno=True)


def socket_in(namespace: str, kind: socket.SocketKind) -> socket.socket:
    """A socket of that network, to which the caller belongs from now on."""
    with Path("/run/netns", namespace).open() as file:
        if LIBC.setns(file.fileno(), 0):
            reason = ctypes.get_errno()
            raise OSError(reason, os.strerror(reason), namespace)
    made = socket.socket(socket.AF_INET, kind)
    made.settimeout(patience(3))
    return made
