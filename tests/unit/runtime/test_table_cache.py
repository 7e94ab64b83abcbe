"""The last good table of a service: when it is used, and when it is not trusted."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ladders import CLUSTER
from tests.support.services import GOOD, Reply, Service, always, good, serving, wanted
from tuner.base.errors import InputError
from tuner.runtime import service_client, table_cache
from tuner.runtime.table_source import sha256_hex

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.slow]


@pytest.fixture
def known() -> Iterator[Service]:
    """A service from which a good table was fetched before."""
    with serving(good) as service:
        service_client.fetch_table(wanted(service.url))
        yield service


def test_a_service_that_is_down_is_replaced_by_its_last_good_table(known: Service) -> None:
    known.stop()
    fetched = service_client.fetch_table(wanted(known.url))
    assert (fetched.text.encode(), fetched.version) == (GOOD, 7)
    assert fetched.note.startswith(f"nothing answers at {known.url}; the copy in ")
    assert str(table_cache.cache_directory()) in fetched.note
    for other in (wanted(known.url, cluster="test"), wanted(known.url + "/elsewhere")):
        with pytest.raises(InputError, match=f"nothing answers at {known.url}"):
            service_client.fetch_table(other)


def test_a_refusal_is_not_glossed_over_by_a_copy(known: Service) -> None:
    for reply in (Reply(status=404), Reply(b"garbage")):
        known.reply = always(reply)
        with pytest.raises(InputError):
            service_client.fetch_table(wanted(known.url))


def damage_text(record: dict[str, Any]) -> str:
    return json.dumps({**record, "text": record["text"].replace("ring", "chain")})


def outdate(record: dict[str, Any]) -> str:
    """Kept whole, but by a program whose tables were others."""
    text = record["text"].replace('"version": 1', '"version": 0')
    return json.dumps({**record, "text": text, "digest": sha256_hex(text)})


@pytest.mark.parametrize(
    "damage",
    [
        damage_text,
        outdate,
        lambda record: json.dumps({**record, "service": "http://other"}),
        lambda record: json.dumps(record)[:-5],
        lambda record: "",
        lambda record: "[]",
        lambda record: "\0" * 100,
    ],
)
def test_a_damaged_copy_is_ignored_and_replaced(
    known: Service, damage: Callable[[dict[str, Any]], str]
) -> None:
    path = table_cache.cache_path(wanted(known.url))
    path.write_text(damage(json.loads(path.read_text())))
    with pytest.raises(InputError, match=f"the copy in {path} is damaged"):
        table_cache.load(wanted(known.url))
    elsewhere = table_cache.cache_path(wanted("http://127.0.0.1:9"))
    elsewhere.write_text(path.read_text())
    with pytest.raises(InputError, match=f"nothing answers at .*; the copy in {elsewhere} is dam"):
        service_client.fetch_table(wanted("http://127.0.0.1:9"))
    service_client.fetch_table(wanted(known.url))
    assert "If-None-Match" not in known.seen[-1].headers
    copy = table_cache.load(wanted(known.url))
    assert copy is not None
    assert copy.text.encode() == GOOD


def test_copies_are_private_and_their_names_nobodys_text(known: Service) -> None:
    service_client.fetch_table(wanted(known.url, cluster=CLUSTER.name))
    files = list(table_cache.cache_directory().iterdir())
    assert len(files) == 2
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert len(path.stem) == 64
        assert set(path.name) <= set("0123456789abcdef.json")
    assert stat.S_IMODE(table_cache.cache_directory().stat().st_mode) == 0o700
    assert (
        table_cache.cache_path(wanted("http://x", cluster="../../a")).parent
        == table_cache.cache_directory()
    )


def test_a_cache_that_cannot_be_written_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path / "file" / "inside"))
    with serving(good) as service:
        assert service_client.fetch_table(wanted(service.url)).version == 7


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(table_cache.cache_directory()) == os.environ["TUNER_CACHE"]
    monkeypatch.delenv("TUNER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert table_cache.cache_directory() == Path("/x/tuner")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert table_cache.cache_directory() == Path("/home/me/.cache/tuner")


def test_a_user_without_a_home_does_without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers that run under a number nobody has an account for."""

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.delenv("TUNER_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with serving(good) as service:
        for _ in range(2):
            assert service_client.fetch_table(wanted(service.url)).version == 7
    assert ["If-None-Match" in seen.headers for seen in service.seen] == [False, False]
