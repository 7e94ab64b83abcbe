"""One simulated call from inside: the times of all its transfers, and the same as a trace."""

from __future__ import annotations

import json
from typing import Any, Literal

from anyio import to_thread
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from tuner.api.live_answers import run_long
from tuner.api.problems import problem_responses
from tuner.api.resolve import with_stored_topology
from tuner.api.routes.jobs import JSON_MEDIA_TYPE
from tuner.api.routes.what_if import AxisValue, Reference
from tuner.api.schemas import (
    API_PREFIX,
    AlgorithmParams,
    CollectiveName,
    Identifier,
    RequestBody,
    SizeInBytes,
)
from tuner.api.service import Service, ServiceDep

router = APIRouter(
    prefix=f"{API_PREFIX}/what-if/call", tags=["what-if"], responses=problem_responses()
)
NAME = "inside a call"  # of the study that a call is


class CallQuestion(RequestBody):
    """A call of one algorithm on a machine with its axes at certain values."""

    topology: Reference = Field(description="`preset:NAME`, or the id of a topology")
    axes: dict[Identifier, AxisValue] = Field(
        {},
        max_length=20,
        description="values of axes as in the `vary` of a study, one each",
        examples=[{"nodes": 2, "ppn": 2}],
    )
    collective: CollectiveName
    algorithm: Identifier = Field(examples=["ring"])
    params: AlgorithmParams = Field({}, description="the algorithm's own defaults, if left out")
    nbytes: SizeInBytes = Field(examples=[1048576])

    def study(self) -> dict[str, Any]:
        """Return the record of the study that has this call alone."""
        return {
            "name": NAME,
            "topology": self.topology,
            "vary": {name: [value] for name, value in self.axes.items()},
            "collectives": [self.collective.value],
            "sizes": [self.nbytes],
            "algorithms": [self.algorithm],
        }


Column = list[int]


class Transfers(BaseModel):
    """One number for each transfer, in the order of rounds.

    started     both ports were free and both ranks ready
    flowing     its first byte left
    released    its last byte left, and the ports were free again
    arrived     its last byte arrived
    """

    src: Column = Field(examples=[[0, 1]], description="rank that sends")
    dst: Column = Field(examples=[[1, 0]], description="rank that receives")
    round: Column = Field(examples=[[0, 0]])
    src_chunk: Column = Field(examples=[[0, 1]], description="first chunk at the sender")
    dst_chunk: Column = Field(examples=[[0, 1]], description="first chunk at the receiver")
    count: Column = Field(examples=[[1, 1]], description="consecutive chunks")
    reduce: Column = Field(examples=[[2, 2]], description="0: overwrites, 1 and 2: is combined")
    nbytes: Column = Field(examples=[[524288, 524288]])
    path: Column = Field(examples=[[0, 1]], description="number of the path of links")
    started: Column = Field(examples=[[0, 0]], description="ticks")
    flowing: Column = Field(examples=[[120, 120]], description="ticks")
    released: Column = Field(examples=[[4200, 4200]], description="ticks")
    arrived: Column = Field(examples=[[6200, 6200]], description="ticks")


class LocalRows(BaseModel):
    """Copies and reductions between chunks of one rank."""

    src: Column = Field(examples=[[0]], description="rank")
    round: Column = Field(examples=[[0]])
    src_chunk: Column = Field(examples=[[0]])
    dst_chunk: Column = Field(examples=[[2]])
    count: Column = Field(examples=[[1]])
    reduce: Column = Field(examples=[[0]])


class LinkPaths(BaseModel):
    """Path i crosses the links start[i] to start[i + 1] - 1 of the lists."""

    start: Column = Field(examples=[[0, 2, 4]])
    links: Column = Field(examples=[[0, 3, 2, 1]], description="numbers of links of the machine")
    load: list[float] = Field(examples=[[1.0, 1.0, 1.0, 1.0]], description="bytes for each sent")


class Work(BaseModel):
    """Copies and reductions that ranks do by themselves, one number for each."""

    rank: Column = Field(examples=[[0]])
    kind: Column = Field(examples=[[1]], description="0: copying, 1: reducing")
    begin: Column = Field(examples=[[6200]], description="ticks")
    end: Column = Field(examples=[[6900]], description="ticks")


class CriticalPath(BaseModel):
    """Critical path: the work and transfers that the last rank waited for, without gaps."""

    component: Column = Field(examples=[[0]], description="number of a name of `components`")
    rank: Column = Field(examples=[[0]])
    transfer: Column = Field(examples=[[0]], description="-1: work of the rank alone")
    begin: Column = Field(examples=[[0]], description="ticks")
    end: Column = Field(examples=[[4200]], description="ticks")


class Ranks(BaseModel):
    """Placement of the ranks: a node, and the device of that node that holds the buffers."""

    node: Column = Field(examples=[[0, 1]])
    device: Column = Field(examples=[[0, 0]])


class CallColumns(BaseModel):
    """A call with the times of all its transfers.

    tick            seconds of one tick
    holders         who holds a chunk at first: its owner (of p equal runs of chunks), all, the root
    nccl_seconds    what NCCL's own model predicts instead, where it is known
    machine         nodes, switches and links, from which a picture can be drawn
    """

    collective: str = Field(examples=["allreduce"])
    candidate: str = Field(examples=["segmented_ring(segment=32KiB)"])
    nbytes: int = Field(examples=[1048576])
    memory: str = Field(examples=["cuda"])
    root: int = Field(examples=[0])
    chunks: int = Field(examples=[2], description="into which the buffer is cut")
    holders: Literal["owner", "all", "root"] = Field(examples=["all"])
    seconds: float = Field(examples=[1.2e-4])
    nccl_seconds: float | None = Field(examples=[None])
    components: dict[str, float] = Field(
        examples=[{"latency": 2e-5, "bandwidth": 1e-4}], description="seconds of the critical path"
    )
    tick: float = Field(examples=[1e-12])
    ranks: Ranks
    transfers: Transfers
    local: LocalRows
    paths: LinkPaths
    work: Work
    critical_path: CriticalPath
    machine: dict[str, Any] = Field(examples=[{"name": "flat2", "nodes": ["n0", "n1"]}])


@router.post("", response_model=CallColumns)
async def trace_one_call(service: ServiceDep, call: CallQuestion) -> Response:
    """The times of all transfers of one call, as columns of numbers. Nothing is stored."""
    key = json.dumps(["call", call.model_dump(mode="json")], sort_keys=True)
    known = service.answers.get(key)
    if known is None:
        known = await _on_worker(service, _call_json, call)
        service.answers.add(key, known)
    return Response(known, media_type=JSON_MEDIA_TYPE)


@router.post("/trace", response_model=dict[str, Any])
async def download_trace(service: ServiceDep, call: CallQuestion) -> Response:
    """The same as a trace of Chrome's format, for Perfetto: a process for each rank."""
    content = await _on_worker(service, _chrome_trace, call)
    headers = {"Content-Disposition": 'attachment; filename="call.json"'}
    return Response(content, media_type=JSON_MEDIA_TYPE, headers=headers)


async def _on_worker(service: Service, function: Any, call: CallQuestion) -> bytes:
    study = await to_thread.run_sync(with_stored_topology, service.engine, call.study())
    content: bytes = await run_long(service, function, study, call.params)
    return content


def _call_json(study: Any, params: dict[str, int]) -> bytes:
    from tuner.whatif.traced_call import call_record, trace_call

    return json.dumps(call_record(trace_call(study, params)), separators=(",", ":")).encode()


def _chrome_trace(study: Any, params: dict[str, int]) -> bytes:
    from tuner.whatif.call_trace import call_trace_text
    from tuner.whatif.traced_call import trace_call

    return call_trace_text(trace_call(study, params)).encode()
