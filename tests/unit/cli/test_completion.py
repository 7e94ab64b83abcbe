"""`tuner completion`: what real shells make of the scripts when TAB is pressed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminals import Typist
from tuner.cli.commands.completion import SHELLS
from tuner.cli.main import COMMANDS, main

START = {  # how a shell begins without anybody's settings, and how it loads the script
    "bash": (["bash", "--norc", "--noprofile", "-i"], "source {}"),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -D -u; eval "$(<{})"'),
    "fish": (["fish", "--no-config", "-i"], "source {}"),
}
ECHO = "#!/bin/sh\nprintf '<%s>\\n' \"$*\"\n"  # stands where `tuner` is, and shows what it is given


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    program = folder / "bin" / "tuner"
    program.parent.mkdir()
    program.write_text(ECHO)
    program.chmod(0o755)
    (folder / "table.json").touch()
    (folder / "trained").mkdir()
    return folder


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: pytest.FixtureRequest, place: Path) -> Iterator[Typist]:
    """An interactive shell that has loaded the script."""
    words, load = START[request.param]
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    script = place / f"tuner.{request.param}"
    with script.open("w") as file, pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdout", file)
        assert main(["completion", request.param]) == 0
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    with Typist(words, place, {"PATH": path, "HISTFILE": "", "HOME": str(place)}) as typist:
        typist.type(f"{load.format(script)}\ntuner ready\n", "<ready>")
        yield typist


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("tok", "token"),
        ("table che", "table check"),
        ("table export --format nc", "table export --format nccl"),
        ("evaluate --poo", "evaluate --pooled"),
        ("simulate --collective bc", "simulate --collective bcast"),
        ("tune --collectives bcast,allr", "tune --collectives bcast,allreduce"),
        ("simulate --algorithm ring,rabens", "simulate --algorithm ring,rabenseifner"),
        ("simulate --topology preset:sum", "simulate --topology preset:summit"),
        ("topology show preset:kes", "topology show preset:kesch"),
        ("table show tab", "table show table.json"),
        ("train table.json --out tra", "train table.json --out trained"),
        ("tune --repro", "tune --reproducible"),
    ],
)
def test_tab_completes(shell: Typist, typed: str, completed: str) -> None:
    shown = shell.type(f"tuner {typed}\t\n", "<[^>]*>")
    assert f"<{completed}>" in re.sub("[ /]+>", ">", shown)


def test_tab_lists_what_is_possible(shell: Typist) -> None:
    every = "".join(f"(?=.*{action})" for action in ("check", "diff", "export", "show", "validate"))
    shell.type("tuner table \t\t", every)
    shell.type("\x15tuner done\n", "<done>")  # leaves an empty line to the next test


def test_every_verb_is_completed(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert [verb for verb in COMMANDS if verb not in script] == []


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["completion", "tcsh"])
    assert "cannot be 'tcsh': choose from bash, zsh, fish" in capsys.readouterr().err
