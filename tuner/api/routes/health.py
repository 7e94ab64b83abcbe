"""Health and readiness of the service."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from tuner import __version__
from tuner.api.problems import problem_responses
from tuner.api.schemas import API_PREFIX
from tuner.api.service import ServiceDep

router = APIRouter(prefix=API_PREFIX, tags=["service"], responses=problem_responses())


class Health(BaseModel):
    """An answer is all there is to it."""

    status: Literal["ok"] = "ok"
    version: str = __version__


@router.get("/health")
async def get_health() -> Health:
    """The process answers; says nothing about the database."""
    return Health()


@router.get("/ready")
def get_readiness(service: ServiceDep) -> Health:
    """The database can be written to and is at the newest schema; 503 otherwise."""
    service.readiness.require()
    return Health()
