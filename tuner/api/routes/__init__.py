"""The resources of version 1 of the API, one module each."""

from fastapi import APIRouter

from tuner.api.routes import (
    calibrations,
    clusters,
    feedback,
    health,
    jobs,
    measurements,
    predictions,
    publications,
    select,
    studies,
    tables,
    topologies,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    clusters.router,
    topologies.router,
    measurements.router,
    calibrations.router,
    predictions.router,
    tables.router,
    publications.router,
    select.router,
    studies.router,
    jobs.router,
    feedback.router,
)
