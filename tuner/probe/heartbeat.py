"""Send heartbeats of every host (rank side).

A rank that waits in MPI for a host whose link is down waits for ever, and prints nothing more. So
the lowest rank of each host regularly prints that the host is alive, from a thread of its own,
whatever its MPI is doing. The launcher forwards that without any rank's help, and
`tuner.probe.monitor` notices which hosts fall silent.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress

HEARTBEAT_INTERVAL_S = 5.0  # seconds between heartbeats, rare enough not to disturb
HEARTBEAT_EVENT = "host"


def start(host: str) -> None:
    """Send heartbeats of this host until the program ends."""
    line = json.dumps({"event": HEARTBEAT_EVENT, "name": host}) + "\n"
    threading.Thread(target=_send_forever, args=(line.encode(),), daemon=True).start()


def _send_forever(line: bytes) -> None:
    while True:
        with suppress(OSError):  # nobody reads it; the thread ends with the rank
            os.write(sys.stdout.fileno(), line)  # unbuffered and in one piece
        time.sleep(HEARTBEAT_INTERVAL_S)
