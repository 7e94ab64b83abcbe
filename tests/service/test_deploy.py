"""The systemd unit and the Containerfile: checked by systemd's own program and a parser of
Containerfiles, and what they start is started.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest

from tests.service.serving import SOURCES, end, good, said
from tests.support.waiting import patience, until
from tuner.cli.main import build_parser
from tuner.cli.options.database import retention_of

UNIT = SOURCES / "deploy" / "tuner.service"
CONTAINERFILE = SOURCES / "deploy" / "Containerfile"
PROGRAM = "/opt/tuner/bin/tuner"
TUNER = f"{sys.executable} -m tuner.cli.main"
MOST_EXPOSED = 20  # tenths of the points of `systemd-analyze security`: below 2.0 is its "OK"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def unit_in(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the unit with a program that exists; systemd-analyze looks for it."""
    text = UNIT.read_text().replace(PROGRAM, sys.executable)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / UNIT.name
    path.write_text(text)
    return path


def verified(unit: Path) -> str:
    """Return what systemd has to say about a unit; nothing is good."""
    command = ["systemd-analyze", "verify", "--man=no", str(unit)]
    return subprocess.run(command, capture_output=True, text=True, timeout=patience()).stderr


def started(words: Sequence[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(SOURCES), **environment},
    )


def address_of(process: subprocess.Popen[str]) -> str:
    line = said(process)
    assert line.startswith("tuner answers at http://"), process.communicate()
    return line.split()[3]


@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    assert verified(unit_in(tmp_path)) == ""
    assert "Unknown key" in verified(unit_in(tmp_path, ("Restart=", "Restarts=")))


@needs_systemd
def test_systemd_rates_the_unit_as_hardly_exposed(tmp_path: Path) -> None:
    def rating(unit: Path) -> subprocess.CompletedProcess[str]:
        command = ["systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSED}"]
        return subprocess.run([*command, str(unit)], capture_output=True, text=True)

    sound = rating(unit_in(tmp_path))
    assert sound.returncode == 0, sound.stdout
    assert rating(unit_in(tmp_path, ("SystemCallFilter=@system-service", ""))).returncode != 0


def test_the_command_of_the_unit_starts_a_service(tmp_path: Path) -> None:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # the documented way
    parser.read_string(UNIT.read_text().replace("\\\n", ""))
    unit = parser["Service"]
    command = unit["ExecStart"].replace("$TUNER_SERVE_OPTIONS", "--port 0")
    command = command.replace(PROGRAM, TUNER)
    command = command.replace("/var/lib", str(tmp_path)).replace("/var/log", str(tmp_path))
    (tmp_path / unit["StateDirectory"]).mkdir()
    process = started(shlex.split(command))
    good(httpx.get(f"{address_of(process)}/v1/health", trust_env=False, timeout=patience()))
    until(lambda: (tmp_path / "tuner" / "access.log").read_text().count("\n") == 1)
    assert stat.S_IMODE((tmp_path / "tuner" / "tuner.sqlite").stat().st_mode) == 0o600
    process.send_signal(signal.SIGTERM)
    assert end(process) == 0


def test_the_unit_deletes_nothing_unasked() -> None:
    text = UNIT.read_text().replace("\\\n", "")
    (command,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    words = shlex.split(command.partition("=")[2].replace("$TUNER_SERVE_OPTIONS", ""))[1:]
    assert retention_of(build_parser(words).parse_args(words)).keeps_all


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage of the Containerfile: (name, value)."""
    reason = "dockerfile-parse is not installed: pip install dockerfile-parse"
    parse = pytest.importorskip("dockerfile_parse", reason=reason)
    parser = parse.DockerfileParser(fileobj=BytesIO(CONTAINERFILE.read_bytes()))
    parsed: list[Mapping[str, Any]] = parser.structure
    found: list[list[tuple[str, str]]] = []
    for each in parsed:
        if each["instruction"] == "FROM":
            found.append([])
        if each["instruction"] != "COMMENT":
            found[-1].append((each["instruction"], each["value"]))
    return found


def last(stage: list[tuple[str, str]], instruction: str) -> str:
    return [value for name, value in stage if name == instruction][-1]


def test_the_image_has_build_stages_and_one_that_runs_without_root(
    stages: list[list[tuple[str, str]]],
) -> None:
    build, image = stages
    assert build[0][1].split()[::2] == [image[0][1], "build"]
    assert ("COPY", "--from=build /opt/tuner /opt/tuner") in image
    assert int(last(image, "USER")) > 0
    home = last(image, "VOLUME")
    assert home == last(image, "WORKDIR")
    assert f"{home}/tuner.sqlite" in last(image, "CMD")


def test_what_the_image_copies_is_enough_to_build_the_wheel(
    stages: list[list[tuple[str, str]]], tmp_path: Path
) -> None:
    for name, value in stages[0]:
        if name == "COPY":
            *sources, target = value.split()
            for source in sources:
                name = Path(source).name if target.endswith("/") else ""
                copy(SOURCES / source, tmp_path / target / name)
    assert (tmp_path / "requirements.lock").exists()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "built"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=patience())
    (wheel,) = (tmp_path / "built").iterdir()
    members = set(ZipFile(wheel).namelist())
    versions = [file.name for file in (SOURCES / "db" / "versions").glob("*.py")]
    assert versions
    assert members >= {f"tuner/_data/db/versions/{name}" for name in versions}
    assert members >= {"tuner/cli/main.py", "tuner/studio/pages/studio.js"}


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


@pytest.mark.extended
def test_the_command_of_the_image_starts_a_service_that_its_health_check_finds(
    stages: list[list[tuple[str, str]]], tmp_path: Path
) -> None:
    image = stages[-1]
    home = last(image, "WORKDIR")
    serve, check = json.loads(last(image, "CMD")), last(image, "HEALTHCHECK").partition("CMD ")[2]
    assert json.loads(last(image, "ENTRYPOINT")) == ["tuner"]
    words = [word.replace(home, str(tmp_path)) for word in serve]
    refused = started([*TUNER.split(), *words])
    assert "tuner token create" in refused.communicate(timeout=patience())[1]
    url = words[words.index("--db") + 1]
    create = ["token", "create", "admin", "--scope", "read", "--db", url]
    assert started([*TUNER.split(), *create]).wait(patience()) == 0
    process = started([*TUNER.split(), *words, "--port", "0"])
    port = address_of(process).rpartition(":")[2]
    check = check.replace(last(image, "EXPOSE"), port)
    python = json.loads(re.sub(r"timeout=\d+", f"timeout={patience()}", check))
    assert python[0] == "python"
    probe = [sys.executable, *python[1:]]
    assert subprocess.run(probe, timeout=patience()).returncode == 0
    assert end(process) == 0
    assert subprocess.run(probe, timeout=patience(), capture_output=True).returncode == 1
