"""Commands whose ranks get variables; the launchers here are only asked for their version."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tuner.preload.command import program_of, rank_command, unpreloadable_reason

OURS, TOOL = "/opt/libtuner.so", "/opt/tool.so"
VARIABLES = {"LD_PRELOAD": OURS, "TUNER_FLAT_TABLE": "/a b/x,y.flat"}
X = ["-x", f"LD_PRELOAD={OURS}", "-x", "TUNER_FLAT_TABLE=/a b/x,y.flat"]
GENV = ["-genv", "LD_PRELOAD", OURS, "-genv", "TUNER_FLAT_TABLE", "/a b/x,y.flat"]
VERSIONS = {
    "ompi4": "mpirun (Open MPI) 4.1.4",
    "ompi5": "mpirun (Open MPI) 5.0.11",
    "hydra": "HYDRA build details:\n    Version:   4.0.2",
    "intel": "Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626",
}


@pytest.fixture
def launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory for each launcher, and `solver`, a program, and `job.sh`, a script, on PATH."""
    for name, said in VERSIONS.items():
        script = tmp_path / name / "mpirun"
        script.parent.mkdir()
        script.write_text(f"#!/bin/sh\necho '{said}'\n", encoding="utf-8")
        script.chmod(0o755)
    (tmp_path / "job.sh").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "job.sh").chmod(0o755)
    shutil.copy("/bin/true", tmp_path / "solver")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


def words_of(
    launchers: Path, kind: str, *typed: str, variables: dict[str, str] | None = None, **given: str
) -> list[str]:
    """The words after the launcher; the environment must be as it was given."""
    command = [str(launchers / kind / "mpirun"), *typed]
    made = rank_command(command, variables or VARIABLES, given)
    assert made.environment == given
    assert made.words[0] == command[0]
    return list(made.words[1:])


@pytest.mark.parametrize("kind", ["ompi4", "ompi5"])
def test_open_mpi_gets_options(launchers: Path, kind: str) -> None:
    assert words_of(launchers, kind, "-n", "2", "solver") == [*X, "-n", "2", "solver"]


@pytest.mark.parametrize("kind", ["hydra", "intel"])
def test_hydra_gets_names_and_values(launchers: Path, kind: str) -> None:
    typed = ["-hosts", "a,b", "-n", "2", "solver", ":", "-n", "1", "solver"]
    assert words_of(launchers, kind, *typed) == [*GENV, *typed]


def test_contexts_of_open_mpi_4_have_options_of_their_own(launchers: Path) -> None:
    one, two = ["-n", "1", "solver"], ["-n", "1", "other"]
    assert words_of(launchers, "ompi4", *one, ":", *two) == [*X, *one, ":", *X, *two]
    assert words_of(launchers, "ompi5", *one, ":", *two) == [*X, *one, ":", *two]


@pytest.mark.parametrize(
    ("kind", "typed", "made"),
    [
        ("ompi5", ["-x", f"LD_PRELOAD={TOOL}"], ["-x", f"LD_PRELOAD={OURS}:{TOOL}"]),
        ("ompi4", ["-x", "LD_PRELOAD"], ["-x", f"LD_PRELOAD={OURS}:/exported.so"]),
        ("hydra", ["-genv", "LD_PRELOAD", TOOL], ["-genv", "LD_PRELOAD", f"{OURS}:{TOOL}"]),
        ("intel", ["-genv", f"LD_PRELOAD={TOOL}"], ["-genv", f"LD_PRELOAD={OURS}:{TOOL}"]),
    ],
)
def test_a_preload_of_the_command_is_kept(
    launchers: Path, kind: str, typed: list[str], made: list[str]
) -> None:
    only = {"LD_PRELOAD": OURS}
    rest = ["-n", "2", "solver", "-x", "LD_PRELOAD=of-the-program"]
    given = words_of(launchers, kind, *typed, *rest, variables=only, LD_PRELOAD="/exported.so")
    assert given == [*made, *rest]


def test_a_local_preload_of_hydra_is_kept_beside_that_of_all(launchers: Path) -> None:
    only = {"LD_PRELOAD": OURS}
    typed = ["-env", "LD_PRELOAD", TOOL, "-n", "1", "solver"]
    made = words_of(launchers, "hydra", *typed, variables=only)
    assert made == [*GENV[:3], "-env", "LD_PRELOAD", f"{OURS}:{TOOL}", "-n", "1", "solver"]


def test_a_preload_of_the_environment_is_kept(launchers: Path) -> None:
    made = words_of(launchers, "ompi5", "solver", LD_PRELOAD=TOOL)
    assert made[:2] == ["-x", f"LD_PRELOAD={OURS}:{TOOL}"]


def test_other_variables_of_the_command_keep_their_values(launchers: Path) -> None:
    typed = ["-x", "TUNER_FLAT_TABLE=mine", "solver"]
    assert words_of(launchers, "ompi4", *typed) == [*X[:2], *typed]


def test_a_list_of_variables_is_extended(launchers: Path) -> None:
    """Open MPI 4 ends with an error where it gets both this list and -x."""
    made = f"A=1;LD_PRELOAD={OURS};TUNER_FLAT_TABLE=/a b/x,y.flat"
    setting = ["--mca", "mca_base_env_list"]
    assert words_of(launchers, "ompi4", *setting, "A=1", "solver") == [*setting, made, "solver"]
    launcher = str(launchers / "ompi4" / "mpirun")
    given = {"OMPI_MCA_mca_base_env_list": f"LD_PRELOAD={TOOL}"}
    listed = rank_command([launcher, "solver"], {"LD_PRELOAD": OURS}, given)
    assert listed.words == (launcher, "solver")
    assert listed.environment == {"OMPI_MCA_mca_base_env_list": f"LD_PRELOAD={OURS}:{TOOL}"}


@pytest.mark.parametrize(
    ("typed", "given", "option", "changed"),
    [
        ([], {}, f"ALL,LD_PRELOAD={OURS}", {}),
        ([], {"SLURM_EXPORT_ENV": "NONE"}, f"LD_PRELOAD={OURS}", {}),
        ([], {"LD_PRELOAD": TOOL}, "", {"LD_PRELOAD": f"{OURS}:{TOOL}"}),
        (["--export=A,B=1"], {}, f"A,B=1,LD_PRELOAD={OURS}", {}),
        (["--export", "NIL"], {}, f"LD_PRELOAD={OURS}", {}),
        (["--export=LD_PRELOAD"], {"LD_PRELOAD": TOOL}, f"LD_PRELOAD={OURS}:{TOOL}", {}),
        (["--export=LD_PRELOAD=/t.so"], {"LD_PRELOAD": TOOL}, f"LD_PRELOAD={OURS}:/t.so", {}),
    ],
)
def test_srun_exports(
    typed: list[str], given: dict[str, str], option: str, changed: dict[str, str]
) -> None:
    made = rank_command(["srun", *typed, "-n64", "./x"], {"LD_PRELOAD": OURS}, given)
    options = [f"--export={option}"] if option else []
    assert made.words == ("srun", *options, "-n64", "./x")
    assert made.environment == {**given, **changed}


def test_values_with_commas_reach_srun_through_its_environment() -> None:
    made = rank_command(["srun", "--export=A", "./x"], {"B": "1,2"}, {})
    assert (made.words, made.environment) == (("srun", "--export=A,B", "./x"), {"B": "1,2"})


@pytest.mark.parametrize("typed", [["job.sh"], ["jsrun", "-n2", "solver"], ["solver"]])
def test_other_commands_get_an_environment(launchers: Path, typed: list[str]) -> None:
    made = rank_command(typed, VARIABLES, {"A": "1", "LD_PRELOAD": TOOL})
    assert made.words == tuple(typed)
    assert made.environment == {"A": "1", **VARIABLES, "LD_PRELOAD": f"{OURS}:{TOOL}"}


def test_without_variables_the_command_stays_as_it_is() -> None:
    for typed in (["env", "A=1", "./x"], ["srun", "--export=NONE", "./x"], ["mpirun", "./x"]):
        made = rank_command(typed, {}, {"B": "1"})
        assert (made.words, made.environment) == (tuple(typed), {"B": "1"})


def test_commands_in_front_of_the_launcher_stay(launchers: Path) -> None:
    launcher = str(launchers / "ompi5" / "mpirun")
    made = rank_command(["timeout", "9", launcher, "solver"], VARIABLES, {})
    assert made.words == ("timeout", "9", launcher, *X, "solver")
    made = rank_command(["env", "A=1", f"LD_PRELOAD={TOOL}", launcher, "x"], {"LD_PRELOAD": OURS})
    assert made.words == (launcher, "-x", f"LD_PRELOAD={OURS}:{TOOL}", "x")
    assert made.environment == {**os.environ, "A": "1", "LD_PRELOAD": TOOL}


@pytest.mark.parametrize(
    ("kind", "typed"),
    [
        ("ompi5", "--allow-run-as-root --mca btl self,tcp --map-by=node -n 2 solver -x true"),
        ("ompi4", "--bind-to none -H a,b -x A=1 --oversubscribe solver : -n 1 true"),
        ("hydra", "-l -genv A 1 -genv B=2 -hosts a,b -ppn 2 solver"),
        ("intel", "-print-rank-map -perhost 2 -n 4 solver"),
    ],
)
def test_the_program_follows_the_options(launchers: Path, kind: str, typed: str) -> None:
    command = [str(launchers / kind / "mpirun"), *typed.split()]
    assert program_of(command) == launchers / "solver"


def test_programs_of_other_commands(launchers: Path) -> None:
    solver = launchers / "solver"
    assert program_of(["srun", "-n64", "-l", "--mpi", "pmix", "--label", "solver"]) == solver
    assert program_of(["srun", "--", "solver"]) == solver
    assert program_of(["env", "A=1", "solver", "-n"]) == solver
    assert program_of([str(launchers / "ompi5" / "mpirun"), "job.sh"]) == launchers / "job.sh"
    for unknown in (["job.sh"], ["nice", "solver"], ["nothing-there"], ["srun", "-n", "2"]):
        assert program_of(unknown) is None


def test_dynamic_programs_and_scripts_can_be_preloaded(launchers: Path) -> None:
    assert unpreloadable_reason(launchers / "solver") == ""
    assert unpreloadable_reason(launchers / "job.sh") == ""


@pytest.mark.slow
def test_what_cannot_be_preloaded_says_why(tmp_path: Path) -> None:
    source, static, script = tmp_path / "x.c", tmp_path / "static", tmp_path / "script"
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    subprocess.run(["cc", "-static", "-o", static, source], check=True)
    script.write_text(f"#!{static} -u\n", encoding="utf-8")
    for program in (static, script):
        assert unpreloadable_reason(program) == f"{static} is statically linked"
    for other in (source, tmp_path / "empty"):
        other.touch()
        expected = f"{other} is neither a program of 64 bits nor a script"
        assert unpreloadable_reason(other) == expected
    assert unpreloadable_reason(tmp_path / "none").endswith(
        "none cannot be read: No such file or directory"
    )
    script.write_text(f"#!{script}\n", encoding="utf-8")
    assert unpreloadable_reason(script) == f"{script} is a script whose interpreter is a script"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(("mode", "kind"), [(0o4755, "user (setuid)"), (0o2755, "group (setgid)")])
def test_programs_of_other_users_say_why(tmp_path: Path, mode: int, kind: str) -> None:
    program = tmp_path / "program"
    shutil.copy("/bin/true", program)
    os.chown(program, 12345, 12345)
    program.chmod(mode)
    assert unpreloadable_reason(program) == f"{program} runs as another {kind}"
