"""A service has loaded only what its first answer needs when that arrives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.support.waiting import patience

LISTING_MODULES = """
import os, signal, sys, threading
from tuner.cli.main import main

def list_modules():
    sys.stdin.readline()
    print(*sys.modules, flush=True)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=list_modules, daemon=True).start()
sys.exit(main(sys.argv[1:]))
"""
# Compilers and engines, drawing, the schemas of older databases, readers of results.
NOT_LOADED = {
    *("alembic", "dask", "mako", "matplotlib", "mpi4py", "numba", "psycopg", "scipy", "simpy"),
    *("sklearn", "tuner.emulation", "tuner.importers", "tuner.rank_programs", "tuner.sim"),
}


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (("serve", "--port", "0", "--no-jobs"), "/v1/ready"),
        (("studio", "--no-browser"), "/studio/"),
    ],
    ids=["serve", "studio"],
)
def test_the_first_answer_waits_for_nothing_that_it_does_not_need(
    tmp_path: Path, words: tuple[str, ...], path: str
) -> None:
    database = f"sqlite:///{tmp_path}/new.sqlite"
    service = subprocess.Popen(
        [sys.executable, "-P", "-c", LISTING_MODULES, *words, "--db", database],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert service.stdout is not None
    announced = service.stdout.readline()
    address = next(word.strip(";") for word in announced.split() if word.startswith("http"))
    answer = httpx.get(httpx.URL(address).join(path), timeout=patience(), trust_env=False)
    assert answer.status_code == 200
    listed, _ = service.communicate("answered\n", timeout=patience())
    assert service.returncode == 0
    loaded = set(listed.split())
    assert "tuner.api.app" in loaded
    assert not NOT_LOADED & loaded
