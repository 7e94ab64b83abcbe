"""Signs of life of every host (rank side).

Whoever waits in MPI for a host whose link is down waits for ever, and says nothing more. So the
lowest rank of each host prints now and then that the host is there, from a thread of its own,
whatever its MPI is doing. The launcher carries that without any rank's help, and
`tuner.probe.monitor` notices who has not been heard of.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from contextlib import suppress

HEARTBEAT_INTERVAL_S = 5.0  # seconds between signs: so few disturb nobody
HEARTBEAT_EVENT = "host"


def start(host: str) -> None:
    """Give signs of life of this host until the program ends."""
    line = json.dumps({"event": HEARTBEAT_EVENT, "name": host}) + "\n"
    threading.Thread(target=_send_forever, args=(line.encode(),), daemon=True).start()


def _send_forever(line: bytes) -> None:
    while True:
        with suppress(OSError):  # nobody takes it; if all is over, its thread ends with the rank
            os.write(sys.stdout.fileno(), line)  # at once and whole, whatever else is printed
        time.sleep(HEARTBEAT_INTERVAL_S)
