"""The resources of version 1 of the API, one module each."""

from fastapi import APIRouter

from tuner.api.routes import (
    calibrations,
    clusters,
    evidence,
    feedback,
    health,
    jobs,
    measurements,
    overviews,
    probes,
    publications,
    reports,
    select,
    studies,
    tables,
    topologies,
    training,
    what_if,
    what_if_call,
)

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    clusters.router,
    topologies.router,
    measurements.router,
    calibrations.router,
    tables.router,
    evidence.router,
    reports.router,
    publications.router,
    select.router,
    overviews.router,
    studies.router,
    what_if.router,
    what_if_call.router,
    training.router,
    jobs.router,
    probes.router,
    feedback.router,
)
