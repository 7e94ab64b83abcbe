"""Messages over one connection between two hosts, there and back.

    streams.py NAMESPACE NAMESPACE ADDRESS START NBYTES...

At START (on the monotonic clock) it begins to send so many bytes there and back, size by size, and
prints the seconds that each took, as JSON.
"""

import json
import socket
import sys
import threading
import time

from tests.emulation.programs.places import socket_in
from tests.support.waiting import be_slow

PIECE = 1 << 16


def pass_on(connection: socket.socket, nbytes: int) -> None:
    left = nbytes
    while left:
        left -= len(connection.recv(min(left, PIECE)))


def answer(listening: socket.socket, sizes: list[int]) -> None:
    connection, _ = listening.accept()
    for nbytes in sizes:
        pass_on(connection, nbytes)
        connection.sendall(bytes(nbytes))


def main() -> None:
    source, target, address, start, *words = sys.argv[1:]
    sizes = [int(word) for word in words]
    listening = socket_in(target, socket.SOCK_STREAM)
    listening.bind((address, 0))
    listening.listen()
    threading.Thread(target=answer, args=(listening, sizes), daemon=True).start()
    connection = socket_in(source, socket.SOCK_STREAM)
    connection.connect(listening.getsockname())
    be_slow(max(0.0, float(start) - time.monotonic()))
    took = []
    for nbytes in sizes:
        begun = time.monotonic()
        connection.sendall(bytes(nbytes))
        pass_on(connection, nbytes)
        took.append(time.monotonic() - begun)
    print(json.dumps(took))


if __name__ == "__main__":
    main()
