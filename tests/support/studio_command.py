"""`tuner studio` as a user starts it, and the files that its pages name."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support.waiting import patience

SAID = re.compile(r"the studio is at (\S+); Ctrl-C ends it")
NAMED = re.compile(r'(?:src|href)="([^"]+)"')


@contextmanager
def started_studio(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], *options: str
) -> Iterator[tuple[str, str]]:
    """Start `COMMAND studio` in a folder; yield the address that it says, and all before that."""
    words = [*command, "studio", "--no-browser", *options]
    with subprocess.Popen(
        words, cwd=folder, env=dict(environment), stdout=subprocess.PIPE, text=True
    ) as studio:
        try:
            assert studio.stdout is not None
            before = ""
            for line in studio.stdout:
                if found := SAID.search(line):
                    yield found[1], before
                    break
                before += line
            else:
                raise AssertionError(f"the studio did not say where it is: {before}")
        finally:
            studio.send_signal(signal.SIGINT)
        assert studio.wait(patience()) == 0


def read_page_and_files(address: str) -> list[str]:
    """Read a page and every file that it names; return the addresses of the files."""
    with httpx.Client(timeout=patience(), trust_env=False) as client:
        page = client.get(address)
        assert page.status_code == 200, page.text
        files = sorted(set(NAMED.findall(page.text)))
        for file in files:
            assert client.get(page.url.join(file)).status_code == 200, file
    return files
