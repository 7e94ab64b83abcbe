"""Lines as NCCL's Inspector plugin writes them, version by version, made after its source."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

SELF_CONTAINED = ("v4.0", "v4.1", "v4.2")
BATCHED = ("v4.3", "v4.4")
VERSIONS = (*SELF_CONTAINED, *BATCHED)


def header(rank: int = 0, p: int = 4, nodes: int = 2, comm: str = "0x7f8c") -> dict[str, Any]:
    return {"id": comm, "rank": rank, "n_ranks": p, "nnodes": nodes}


def metadata(version: str = "v4.0") -> dict[str, Any]:
    return {
        "inspector_output_format_version": version,
        "git_rev": "",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": 1748030377748202,
        "hostname": "node1",
        "pid": 1639,
    }


def call(
    sequence: int = 1,
    micros: float = 50,
    size: int = 1024,
    function: str = "AllReduce",
    **other: Any,
) -> dict[str, Any]:
    return {
        "coll": function,
        "coll_sn": sequence,
        "coll_msg_size_bytes": size,
        "coll_exec_time_us": micros,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": 1.5,
        "coll_busbw_gbs": 2.25,
        **other,
    }


def ran(algorithm: str = "RING", protocol: str = "LL") -> dict[str, Any]:
    return {"coll_algo": algorithm, "coll_proto": protocol}


def line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":")) + "\n"


def own(
    version: str = "v4.0",
    rank: int = 0,
    p: int = 4,
    nodes: int = 2,
    comm: str = "0x7f8c",
    **kinds: Any,
) -> str:
    """A line with its own header."""
    head = header(rank, p, nodes, comm)
    return line({"header": head, "metadata": metadata(version), **kinds})


def dump(
    calls: Iterable[Mapping[str, Any]],
    version: str = "v4.4",
    *,
    rank: int = 0,
    p: int = 4,
    nodes: int = 2,
    comm: str = "0x7f8c",
    dropped: int = 0,
    p2p: int = 0,
) -> str:
    """The lines that a version writes of calls that one rank of a communicator has made."""
    calls = list(calls)
    place: dict[str, Any] = {"rank": rank, "p": p, "nodes": nodes, "comm": comm}
    stats = {
        "coll_records": len(calls),
        "coll_dropped_total": 9,
        "coll_dropped_since_last_dump": dropped,
        "p2p_records": p2p,
    }
    other = {"p2p": "Send", "p2p_sn": 1, "p2p_peer": 1, "p2p_msg_size_bytes": 8}
    kinds: list[dict[str, Any]] = [
        *({"coll_perf": each} for each in calls),
        *[{"p2p_perf": other}] * p2p,
    ]
    begin = "" if version == "v4.0" else own(version, **place, dump_stats=stats)
    if version in BATCHED:
        return begin + "".join(map(line, kinds))
    return begin + "".join(own(version, **place, **kind) for kind in kinds)


def metric(
    value: str = "61", name: str = "nccl_collective_exec_time_microseconds", **labels: str
) -> str:
    """A line for Prometheus as the first versions write it, with other labels where given."""
    told = {
        "comm_id": "0xd152",
        "hostname": "node1",
        "rank": "0",
        "slurm_job": "unknown",
        "nranks": "4",
        "n_nodes": "2",
        "gpu_device_id": "GPU0",
        "collective": "AllReduce",
        "coll_sn": "7",
        "timestamp": "2025-10-17T03:31:47Z",
        "message_size": "2.00MB",
        **labels,
    }
    inside = ",".join(f'{key}="{words}"' for key, words in told.items())
    return f"{name}{{{inside}}} {value}\n"
