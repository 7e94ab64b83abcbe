"""Names, addresses and files of others that would do harm: all are shown as text or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.service.serving import served, token
from tests.studio.browsing import COMPLETE
from tuner.api.settings import Settings

pytestmark = [pytest.mark.extended, pytest.mark.slow]

SMALL = "collective=bcast&nodes=2&ppn=1&from=1024&to=4096"
MARKUP = "<img src=x onerror=document.body.dataset.harm=1><script>harm()</script>"
ELSEWHERE = ("https://example.org/", "//example.org/", "javascript:document.body.dataset.harm=1")


def is_harmed(page: Any) -> bool:
    """Return whether markup became elements or script ran."""
    selector = "main img, main script, main iframe, body[data-harm]"
    return bool(page.locator(selector).count())


def upload(page: Any, folder: Path, name: str, content: bytes) -> None:
    file = folder / name
    file.write_bytes(content)
    page.locator("#upload").set_input_files(str(file))


def test_a_machine_with_markup_for_a_name_is_shown_as_text(
    page: Any, address: str, tmp_path: Path
) -> None:
    page.goto(f"{address}/studio/what-if?topology=preset:comet&{SMALL}")
    page.wait_for_selector(COMPLETE)
    machine = {"name": MARKUP, "nodes": 2, "latency": "2us", "bandwidth": "12.5GB/s"}
    upload(page, tmp_path, "m.yaml", json.dumps(machine).encode())
    page.locator("#machine", has_text=MARKUP).wait_for()
    page.get_by_role("button", name="Pin this machine").click()
    page.get_by_label("Machine", exact=True).select_option("preset:comet")
    page.locator(".pins", has_text=MARKUP).wait_for()
    page.wait_for_selector(COMPLETE)
    assert not is_harmed(page)


@pytest.mark.parametrize(
    "query",
    [
        f"topology={quote(MARKUP)}",
        f"topology=preset:comet&{SMALL}&incumbent={quote(MARKUP)}&hide={quote(MARKUP)}",
        f"topology=preset:comet&{SMALL}&pin={quote(f'topology={MARKUP}&nodes={MARKUP}')}",
        f"topology=preset:comet&{SMALL}&gpu={quote(MARKUP)}&placement={quote(MARKUP)}",
        f"topology=preset:comet&collective={quote(MARKUP)}&nodes=__proto__&ppn=NaN&from=-1&to=0",
        "topology=../../v1/jobs&constructor=1&__proto__=1&toString=1",
    ],
)
def test_an_address_with_markup_does_no_harm(page: Any, address: str, query: str) -> None:
    page.goto(f"{address}/studio/what-if?{query}")
    page.locator(COMPLETE).or_(page.get_by_role("alert")).first.wait_for()
    assert not is_harmed(page)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bomb.yaml", b"a: &a [x]\nb: [" + b"*a," * 9 + b"]\nname: x\nnodes: 1\n"),
        ("nested.yaml", b"[" * 100_000),
        ("python.yaml", b"!!python/object/apply:os.system ['touch /tmp/harm']\n"),
        ("entity.xml", b'<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/passwd">]><topology>&e;'),
        ("zeros.txt", bytes(1024)),
        ("huge.yaml", b"name: m\nnodes: 999999999999\nlatency: 1us\nbandwidth: 1GB/s\n"),
        ("<b>.svg", b"<svg onload='document.body.dataset.harm=1'/>"),
    ],
)
def test_a_file_that_would_do_harm_is_refused_in_one_sentence(
    page: Any, address: str, tmp_path: Path, name: str, content: bytes
) -> None:
    page.goto(f"{address}/studio/what-if?topology=preset:comet&{SMALL}")
    page.wait_for_selector(COMPLETE)
    upload(page, tmp_path, name, content)
    page.get_by_role("alert").wait_for()
    assert page.get_by_role("alert").inner_text().endswith((".", "!", "?"))
    assert "root:" not in page.locator("body").inner_text()
    assert not is_harmed(page)


@pytest.mark.parametrize("target", ELSEWHERE)
def test_after_the_log_in_one_stays_here(page: Any, database: str, target: str) -> None:
    made = token(database, "reader", "read")["Authorization"].split()[1]
    with served(Settings(database=database, require_tokens=True)) as client:
        here = str(client.base_url).rstrip("/")
        page.goto(f"{here}/studio/login?next={quote(target, safe='')}")
        page.get_by_label("Token").fill(made)
        page.keyboard.press("Enter")
        page.locator(".client").wait_for()
        assert page.url.startswith(f"{here}/studio")
        assert not is_harmed(page)
        page.goto("about:blank")  # before the service ends


def test_a_page_of_another_site_can_neither_send_nor_frame(browser: Any, database: str) -> None:
    """Another origin of the same host, to which a browser sends even SameSite=Strict cookies."""
    made = token(database, "owner", "read", "submit")["Authorization"].split()[1]
    with (
        served(Settings(database=database, require_tokens=True)) as client,
        served(Settings(database=database)) as other,
    ):
        page = browser.new_page()
        page.goto(f"{client.base_url}/studio/login")
        page.get_by_label("Token").fill(made)
        page.keyboard.press("Enter")
        page.locator(".client").wait_for()
        page.goto(f"{other.base_url}/v1/health")
        sent = page.evaluate(
            """async (url) => {
                const send = (headers) => fetch(url, {method: "POST", credentials: "include",
                    headers, body: "{name: x, nodes: 1}"}).then((r) => r.status, () => "blocked");
                return [await send({"Content-Type": "text/plain"}),
                        await send({"X-Tuner-Studio": "1"})];
            }""",
            f"{client.base_url}/v1/topologies",
        )
        assert sent == ["blocked", "blocked"]
        page.context.close()
        own = {"Authorization": f"Bearer {made}"}
        assert client.get("/v1/topologies", headers=own).json()["items"] == []
