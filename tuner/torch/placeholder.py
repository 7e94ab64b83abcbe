"""Run by an MPI launcher in the place of a rank whose process somebody else has started.

    placeholder.py HOST PORT WORD

It sends its environment, by which MPI finds its launcher, to the process at HOST:PORT. The process
of the rank, on the same host, then connects to it; when this process ends, so does the placeholder.
Only Python's own library is imported.
"""

from __future__ import annotations

import json
import os
import socket
import sys

PREFIXES = ("PMIX_", "PMI_", "OMPI_", "PRTE_", "MPI_", "MPIR_", "I_MPI_")
PORT_VARIABLE = "TUNER_PLACEHOLDER_PORT"
TIMEOUT_S = 60.0  # for the other process to answer


def main(host: str, port: str, word: str) -> None:
    """Send the environment to HOST:PORT, and wait for the end of the process of the rank."""
    found = {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}
    with socket.create_server(("127.0.0.1", 0)) as server:
        found[PORT_VARIABLE] = str(server.getsockname()[1])
        with socket.create_connection((host, int(port)), timeout=TIMEOUT_S) as connection:
            connection.sendall(json.dumps({"word": word, "environment": found}).encode() + b"\n")
        server.settimeout(TIMEOUT_S)
        process, _ = server.accept()
    process.settimeout(None)
    process.recv(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
