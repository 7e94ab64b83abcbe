"""See `cupy.cuda.nccl`: over files that the ranks of one host see.

Calls are begun on a stream and done, when somebody waits for it, as soon as all ranks have come:
like NCCL's, they wait for ranks that never come.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np

from cupy import _driver

available = True
(
    NCCL_INT8,
    NCCL_UINT8,
    NCCL_INT32,
    NCCL_UINT32,
    NCCL_INT64,
    NCCL_UINT64,
    NCCL_FLOAT16,
    NCCL_FLOAT32,
    NCCL_FLOAT64,
) = range(9)
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
_DTYPES = ("i1", "u1", "i4", "u4", "i8", "u8", "f2", "f4", "f8")
_OPERATORS = (np.add, np.multiply, np.maximum, np.minimum)
_PLACE = Path("/dev/shm")
_LOOK = 0.0005  # seconds


class NcclError(RuntimeError):
    """An error of NCCL."""


def get_version() -> int:
    return int(os.environ.get("CUPY_STANDIN_NCCL", "23203"))


def get_unique_id() -> bytes:
    return uuid.uuid4().hex.encode().ljust(128, b"\0")


class NcclCommunicator:
    """Blocks until all ranks have called it."""

    def __init__(self, ndev: int, commId: bytes, rank: int) -> None:
        self._size, self._rank, self._number, self._aborted = ndev, rank, 0, False
        if os.environ.get("CUPY_STANDIN_NCCL_FAILS") == str(rank):
            raise NcclError("NCCL_ERROR_SYSTEM_ERROR: unhandled system error")
        self._place = _PLACE / f"nccl-{commId.rstrip(bytes(1)).decode()}"
        self._place.mkdir(exist_ok=True)
        self._exchange(b"")

    def rank_id(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def bcast(self, buff: int, count: int, datatype: int, root: int, stream: int) -> None:
        content = _content(buff, count, datatype)

        def move() -> None:
            given = self._exchange(content.tobytes() if self._rank == root else b"")
            content[...] = np.frombuffer(given[root], content.dtype)

        _driver.queue_at(stream).put(move)

    def allReduce(
        self, sendbuf: int, recvbuf: int, count: int, datatype: int, op: int, stream: int
    ) -> None:
        given, target = (_content(buffer, count, datatype) for buffer in (sendbuf, recvbuf))

        def reduce() -> None:
            parts = [np.frombuffer(part, given.dtype) for part in self._exchange(given.tobytes())]
            result = parts[0]
            with np.errstate(all="ignore"):
                for part in parts[1:]:
                    result = _OPERATORS[op](result, part)
            target[...] = result

        _driver.queue_at(stream).put(reduce)

    def check_async_error(self) -> None:
        """Nothing happens meanwhile."""

    def destroy(self) -> None:
        """Who is the last one to have seen all others tidies up."""
        self._exchange(b"")
        (self._place / f"gone.{self._rank}").touch()
        if len([*self._place.glob("gone.*")]) == self._size:
            shutil.rmtree(self._place, ignore_errors=True)

    def abort(self) -> None:
        self._aborted = True

    def _exchange(self, mine: bytes) -> list[bytes]:
        """What every rank gave."""
        self._number += 1
        own = self._place / f"{self._number}.{self._rank}"
        part = own.with_suffix(own.suffix + ".part")
        part.write_bytes(mine)
        part.rename(own)
        (self._place / f"{self._number - 2}.{self._rank}").unlink(missing_ok=True)
        return [self._read(rank) for rank in range(self._size)]

    def _read(self, rank: int) -> bytes:
        path = self._place / f"{self._number}.{rank}"
        while True:
            if self._aborted:
                raise NcclError("NCCL_ERROR_INTERNAL_ERROR: aborted")
            try:
                return path.read_bytes()
            except FileNotFoundError:
                time.sleep(_LOOK)


def _content(pointer: int, count: int, datatype: int) -> Any:
    dtype = np.dtype(_DTYPES[datatype])
    return _driver.content_at(pointer, count * dtype.itemsize).view(dtype)
