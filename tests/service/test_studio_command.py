"""`tuner studio`: which database it shows, and which page first."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx
import pytest

from tests.conftest import ROOT
from tests.support.reported import store_result
from tests.support.studio_command import started_studio
from tests.support.waiting import patience
from tuner.cli.quickstart_files import DATABASE, OUT

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "tuner.cli.main"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def stored_versions(address: str) -> list[int]:
    sent = httpx.get(
        httpx.URL(address).join("/v1/tables"), timeout=patience(), trust_env=False
    ).json()
    return [table["version"] for table in sent["items"]]


def test_after_a_quickstart_its_report_is_what_opens(tmp_path: Path) -> None:
    (tmp_path / OUT).mkdir()
    version = store_result(f"sqlite:///{tmp_path / OUT / DATABASE}")
    with started_studio(COMMAND, tmp_path, ENVIRONMENT) as (address, said):
        assert httpx.URL(address).path == "/studio/report"
        assert stored_versions(address) == [version]
        assert said == "what is shown is stored in tuner-out/tuner.sqlite\n"


def test_without_a_quickstart_nothing_is_kept(tmp_path: Path) -> None:
    with started_studio(COMMAND, tmp_path, ENVIRONMENT) as (address, said):
        assert httpx.URL(address).path == "/studio/"
        assert stored_versions(address) == []
        assert said == ""
    assert list(tmp_path.iterdir()) == []


def test_a_named_database_counts_more_than_a_quickstart(tmp_path: Path) -> None:
    (tmp_path / OUT).mkdir()
    store_result(f"sqlite:///{tmp_path / OUT / DATABASE}")
    other = f"sqlite:///{tmp_path / 'other.sqlite'}"
    with started_studio(COMMAND, tmp_path, ENVIRONMENT, "--db", other) as (address, said):
        assert httpx.URL(address).path == "/studio/"
        assert stored_versions(address) == []
        assert said == ""
