"""`tuner nccl install --service`: the plugin follows what a real service publishes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.serving import served
from tests.support.nccl import on_shapes
from tuner.api.settings import Settings
from tuner.cli.main import main
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, write_table
from tuner.formats.nccl.plugin import RULES_FILE

LIBRARY = "nccl 2.30.7"
PLACE = (Collective.ALLREDUCE, (2, 8))


@pytest.mark.extended
def test_the_published_table_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "out"
    write_table(
        on_shapes({PLACE: [(0, AlgorithmChoice("ring_ll"))]}, LIBRARY), tmp_path / "table.json"
    )
    with served(Settings(database=f"sqlite:///{tmp_path / 'tuner.sqlite'}")) as client:
        url = str(client.base_url)
        words = ["nccl", "install", "--service", url, "--library", LIBRARY, "--out", str(folder)]
        assert main(words) == 1
        assert "answered with status 404" in capsys.readouterr().err
        assert not folder.exists()
        assert main(["publish", str(tmp_path / "table.json"), "--service", url]) == 0
        assert main([*words, "--cluster", "elsewhere"]) == 1
        assert not folder.exists()
        assert main(words) == 0
    rows = (folder / RULES_FILE).read_text().splitlines()
    assert rows[2:] == ["allreduce,0,18446744073709551615,ring,ll,-1,2,16"]
    # Without the service the copy that was kept is used, which is said.
    capsys.readouterr()
    assert main([*words[:-1], str(tmp_path / "again")]) == 0
    assert "is used instead" in capsys.readouterr().err
    assert (tmp_path / "again" / RULES_FILE).read_text().splitlines() == (
        folder / RULES_FILE
    ).read_text().splitlines()
