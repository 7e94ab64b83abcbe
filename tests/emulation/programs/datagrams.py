"""Datagrams from one host to another; what the kernel stamped when they left and when they came.

    datagrams.py NAMESPACE NAMESPACE ADDRESS NBYTES HOW_MANY

prints the seconds between the two stamps of each, as JSON. Nothing of the time that programs take
is in them.
"""

import json
import socket
import struct
import sys

from tests.emulation.programs.places import socket_in
from tests.support.waiting import be_slow, patience

SO_TIMESTAMPNS = 35
SO_TIMESTAMPING = 37
TRANSMITTED = 1 << 1
BY_SOFTWARE = 1 << 4


def stamp(answer: list[tuple[int, int, bytes]]) -> float:
    stamps = (SO_TIMESTAMPNS, SO_TIMESTAMPING)
    found = next(data for level, name, data in answer if level == 1 and name in stamps)
    whole, rest = struct.unpack_from("=qq", found)
    return float(whole + rest * 1e-9)


def main() -> None:
    source, target, address, nbytes, how_many = sys.argv[1:]
    sending, receiving = (socket_in(place, socket.SOCK_DGRAM) for place in (source, target))
    sending.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, TRANSMITTED | BY_SOFTWARE)
    receiving.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    receiving.bind((address, 0))
    receiving.settimeout(patience(3))
    took = []
    for _ in range(int(how_many)):
        sending.sendto(bytes(int(nbytes)), receiving.getsockname())
        came = stamp(receiving.recvmsg(1 << 16, 512)[1])
        took.append(came - stamp(sending.recvmsg(1 << 16, 512, socket.MSG_ERRQUEUE)[1]))
        be_slow(0.002)
    print(json.dumps(took))


if __name__ == "__main__":
    main()
