"""The report of a stored table is the page that a quickstart writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import httpx
import pytest

from tests.service.serving import a_table, good, problem, served
from tests.support.reported import store_result
from tuner.api.routes import reports
from tuner.api.settings import Settings


@pytest.fixture
def version(tmp_path: Path) -> int:
    return store_result(f"sqlite:///{tmp_path / 'tuner.sqlite'}")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with served(Settings(database=f"sqlite:///{tmp_path / 'tuner.sqlite'}")) as client:
        yield client


def test_a_stored_table_has_its_report(client: httpx.Client, version: int) -> None:
    answer = client.get(f"/v1/tables/{version}/report")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.text.count('<svg class="plot"') == 4
    assert "became 2.00 times as fast" in answer.text
    assert "1 of 3 rules is not confirmed" in answer.text  # allreduce, which was not validated


def test_a_worker_draws_many_series(client: httpx.Client, version: int) -> None:
    inline = client.get(f"/v1/tables/{version}/report").text
    with mock.patch.object(reports, "MAX_INLINE_SERIES", 5):
        assert client.get(f"/v1/tables/{version}/report").text == inline


def test_a_table_without_measurements_says_so(client: httpx.Client) -> None:
    version = good(client.post("/v1/tables", json=a_table()), 201)["version"]
    page = client.get(f"/v1/tables/{version}/report").text
    assert "No measurements are stored with this table, so the curves are left out." in page
    assert ">Rules<" in page


def test_more_series_than_can_be_drawn_are_left_out(client: httpx.Client, version: int) -> None:
    with mock.patch.object(reports, "MAX_SERIES", 5):
        page = client.get(f"/v1/tables/{version}/report").text
    assert "have 54 series, so the curves are left out" in page
    assert '<svg class="plot"' not in page


def test_an_unknown_table_has_no_report(client: httpx.Client) -> None:
    problem(client.get("/v1/tables/77/report"), 404)
