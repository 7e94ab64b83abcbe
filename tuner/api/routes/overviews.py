"""Overviews of files that a client sends: what they are, what is slow in them, what to type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from pydantic import Base64Bytes, BaseModel, Field

from tuner.api.large_requests import LargeBodyRoute
from tuner.api.problems import problem_responses
from tuner.api.schemas import API_PREFIX, CollectiveName, RequestBody
from tuner.api.service import ServiceDep

MAX_FILES = 8
MAX_COUNT = 2**31 - 1  # ranks and nodes, as of measurements
RESULTS = "IyBPU1UgTVBJIEFsbHJlZHVjZSBMYXRlbmN5IFRlc3QgdjcuNAo4IDEuMAo="

router = APIRouter(
    prefix=f"{API_PREFIX}/overviews",
    tags=["overviews"],
    responses=problem_responses(),
    route_class=LargeBodyRoute,
)


class SentFile(RequestBody):
    """A file and its content in Base64."""

    name: str = Field(pattern=r"^[\w+@=,-][\w.+@=,-]{0,59}$", examples=["osu.txt"])
    content: Base64Bytes = Field(strict=False, examples=[RESULTS])


class OverviewQuestion(RequestBody):
    """Files, and what these do not say of the results in them."""

    files: list[SentFile] = Field(min_length=1, max_length=MAX_FILES)
    machine: str | None = Field(
        None,
        pattern=r"^preset:[\w.:-]{1,100}$",
        examples=["preset:dgx-h100"],
        description="a machine to compare results with",
    )
    ranks: int | None = Field(None, ge=1, le=MAX_COUNT)
    nodes: int | None = Field(None, ge=1, le=MAX_COUNT)
    ppn: int | None = Field(None, ge=1, le=MAX_COUNT)
    collective: CollectiveName | None = None


class OverviewCommand(BaseModel):
    """A command that takes a file."""

    purpose: str = Field(examples=["show it:"])
    text: str = Field(examples=["tuner topology show flat8.yaml"])


class FileOverview(BaseModel):
    """The contents of a file in a few sentences."""

    file: str = Field(examples=["osu.txt"])
    kind: str = Field(examples=["benchmark results (osu)"])
    facts: list[str] = Field(examples=[["allreduce of 8B on 64 ranks of 8 nodes"]])
    slow: list[str] = Field(examples=[[]])
    commands: list[OverviewCommand]


class ComparedTimes(BaseModel):
    """A call with a time and the one that it is compared with, in seconds."""

    collective: str = Field(examples=["allreduce"], description="or another benchmark")
    nbytes: int = Field(examples=[8])
    call: str = Field(examples=["allreduce of 8B on 64 ranks"])
    reference: float = Field(examples=[3.04e-6])
    seconds: float = Field(examples=[1.13e-5])
    algorithm: str = Field(examples=["recursive_multiplying"], description="of a prediction")
    ratio: float = Field(examples=[3.72])


class ComparedFiles(BaseModel):
    """Times of the same calls in two files, or predicted and measured."""

    title: str = Field(examples=["after.txt against before.txt"])
    columns: list[str] = Field(examples=[["before", "after"]])
    summary: str = Field(examples=["1.09 times as long (geometric mean of 14 calls)"])
    note: str = Field(examples=[""], description="what to know, or why nothing is compared")
    calls: list[ComparedTimes]
    commands: list[OverviewCommand]


class Overviews(BaseModel):
    """An overview of each file, and what files tell together."""

    files: list[FileOverview]
    comparisons: list[ComparedFiles]


@router.post("", response_model=Overviews)
def create_overviews(service: ServiceDep, question: OverviewQuestion) -> Any:
    """Describe files; nothing of them is stored."""
    asked = (
        [(one.name, one.content) for one in question.files],
        [question.machine] if question.machine else [],
        (question.ranks, question.nodes, question.ppn, question.collective or ""),
    )
    return _open(*asked) if service.workers is None else service.workers.run(_open, *asked)


def _open(
    files: Sequence[tuple[str, bytes]],
    machines: Sequence[str],
    told: tuple[int | None, int | None, int | None, str],
) -> dict[str, Any]:
    # These load what a service needs for nothing else.
    from tuner.importers import UserMetadata
    from tuner.overview import open_sent_files

    return open_sent_files(files, machines, UserMetadata(*told))
