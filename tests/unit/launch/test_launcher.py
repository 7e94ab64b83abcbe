"""Hosts, launcher templates, and launchers that behave as batch systems do."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.support.waiting import expiring, until
from tuner.base.errors import InputError, LaunchTimeoutError, ProbeError
from tuner.launch import LOCAL_HOST, Hosts, Launcher, LauncherTemplate, hosts_from_environment
from tuner.launch.failures import CompletedRun, explain_failure
from tuner.launch.hosts import expand_host_list, parse_hosts, read_hosts
from tuner.launch.template import connection_environment

TWO = Hosts(("a", "b"), 2)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[01-03,7],login", ("node01", "node02", "node03", "node7", "login")),
        ("a,b", ("a", "b")),
        ("r[1-2]-ib", ("r1-ib", "r2-ib")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
    ],
)
def test_slurm_lists_are_expanded(text: str, names: tuple[str, ...]) -> None:
    assert expand_host_list(text) == names


@pytest.mark.parametrize("text", ["node[a-b]", "node[1-999999999]", "a;rm", ""])
def test_a_list_that_names_no_hosts_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="host list"):
        expand_host_list(text)


@pytest.mark.parametrize(
    ("environ", "hosts"),
    [
        ({"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "4(x2)"}, Hosts(("n1", "n2"), 4)),
        ({"LSB_MCPU_HOSTS": "batch1 1 h1 42 h2 42"}, Hosts(("h1", "h2"), 42)),
        ({"LSB_HOSTS": "h1 h1 h2 h2"}, Hosts(("h1", "h2"), 2)),
        ({"PATH": "/bin"}, LOCAL_HOST),
    ],
)
def test_the_batch_system_names_the_hosts(environ: dict[str, str], hosts: Hosts) -> None:
    assert hosts_from_environment(environ) == hosts


def test_a_host_file_gives_names_and_slots(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# rack 1\nnode1 slots=4\nnode2:2  # half\n\n")
    assert read_hosts(file) == Hosts(("node1", "node2"), 2)
    file.write_text("n1\nn1\nn2\nn2\n")  # as PBS_NODEFILE is
    assert hosts_from_environment({"PBS_NODEFILE": str(file)}) == Hosts(("n1", "n2"), 2)
    file.write_text("node1\nnode 2 3\n")
    with pytest.raises(InputError, match="line 2"):
        read_hosts(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_hosts(tmp_path / "missing")


def test_hosts_on_a_command_line() -> None:
    assert parse_hosts("a:2,b:2") == TWO
    assert parse_hosts("a,b").slots == 0
    assert parse_hosts("n[08-10], x") == Hosts(("n08", "n09", "n10", "x"), 0)
    assert parse_hosts("n[0-511]:4") == Hosts(tuple(f"n{i}" for i in range(512)), 4)
    for odd in ("a,,b", "a,", "", " , ", "n[0-", "n[3-1]", "n[0-99999999]", "a b", "a:x", "-x"):
        with pytest.raises(InputError, match=r"^--hosts"):
            parse_hosts(odd)
    with pytest.raises(InputError, match="'n2' twice"):
        parse_hosts("n[0-3],n2")
    with pytest.raises(InputError, match="'a' twice: name a host once, with its ranks as a:2"):
        parse_hosts("b,a:3,a")


def test_a_template_is_filled_in() -> None:
    template = LauncherTemplate.parse("start -n {n} -N {nodes} --per={ppn} -H {slots} {program}")
    words = template.command(["python", "-c", "print({n})"], {"A": "x y"}, TWO, 3)
    assert words[:7] == ["start", "-n", "6", "-N", "2", "--per=3", "-H"]
    assert words[7:] == ["a:3,b:3", "/usr/bin/env", "A=x y", "python", "-c", "print({n})"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mpirun -n {n}", r"\{program\}"),
        ("x {cores} {program}", r"\{cores\}"),
        ("a 'b", "--launcher"),
    ],
)
def test_a_template_that_cannot_work_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        LauncherTemplate.parse(text)


STAND_IN = """#!/bin/sh
# Prints a banner, drops its own options, starts the program as often as it was told.
echo "{name}: job 4711 on 2 nodes" ; echo "{name}: warning" >&2
printf 'no newline before '
count=1
while [ $# -gt 0 ]; do
    case $1 in
        --ntasks=*) count=${{1#--ntasks=}} ;;
        --nrs=*) nodes=${{1#--nrs=}} ;;
        --tasks_per_rs=*) count=$((nodes * ${{1#--tasks_per_rs=}})) ;;
        -*) ;;
        *) break ;;
    esac
    shift
done
for rank in $(seq "$count"); do RANK=$rank "$@"; done
"""


@pytest.mark.parametrize("name", ["srun", "jsrun"])
def test_the_launchers_of_batch_systems_start_the_program_with_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    script = tmp_path / name
    script.write_text(STAND_IN.format(name=name))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    launcher = Launcher("openmpi", Path(sys.executable), LauncherTemplate.parse(name))
    code = (
        "import json, os, tuner; print(json.dumps([os.environ['RANK'],"
        " os.environ['OMPI_MCA_x'], os.environ['WISH'], tuner.__name__]))"
    )
    seen: list[str] = []

    def on_line(line: str) -> None:
        seen.append(line)

    run = launcher.run(
        4,
        ["-c", code],
        hosts=TWO,
        settings={"x": "1"},
        environment={"WISH": "a b"},
        on_line=on_line,
    )
    assert seen[0].startswith(f"{name}: job")
    found = [json.loads(line[line.index("[") :]) for line in seen[1:]]
    assert found == [[str(rank), "1", "a b", "tuner"] for rank in (1, 2, 3, 4)]
    assert f"{name}: warning" in run.stderr


def _script(path: Path, text: str) -> LauncherTemplate:
    path.write_text(text)
    path.chmod(0o755)
    return LauncherTemplate.parse(f"{path} {{hosts}} {{program}}")


@pytest.mark.parametrize("child", ["sleep 60", "setsid sleep 60"])
def test_what_a_launcher_started_ends_with_it(tmp_path: Path, child: str) -> None:
    """The launcher ignores the polite request, and its child would live for a minute, perhaps in a
    session of its own, as the ssh of real launchers does."""
    template = _script(
        tmp_path / "stubborn",
        f"#!/bin/sh\necho why >&2\n{child} & echo $! > {tmp_path}/pid\necho started\nwait\n",
    )
    launcher = Launcher("openmpi", Path(sys.executable), template)
    with pytest.raises(LaunchTimeoutError, match="fell silent") as late:
        launcher.run(2, ["-c", ""], hosts=TWO, on_line=lambda _: 0.3)
    assert late.value.stderr == "why\n"
    stat = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    until(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")


def test_a_launcher_that_says_nothing_is_ended(tmp_path: Path) -> None:
    template = _script(tmp_path / "mute", "#!/bin/sh\nexec sleep 60\n")
    launcher = Launcher("openmpi", Path(sys.executable), template)
    with pytest.raises(ProbeError, match="ranks on a, b fell silent"):
        launcher.run(2, ["-c", ""], hosts=TWO, silence_timeout=expiring(0.3))


def test_only_ssh_is_told_how_long_a_connection_may_take() -> None:
    """Slurm's srun, which MPICH's mpiexec uses in jobs, would take the word for another option."""
    assert set(connection_environment({"HOME": "/"}).values()) == {"-oConnectTimeout=20"}
    assert connection_environment({"SLURM_JOB_ID": "1"}) == {"SLURM_OVERLAP": "1"}
    for name in ("LSB_JOBID", "HYDRA_LAUNCHER_EXEC", "PRTE_MCA_plm_ssh_agent"):
        assert connection_environment({name: "1"}) == {}


def test_a_launcher_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    launcher = Launcher(
        "openmpi", Path(sys.executable), LauncherTemplate.parse("/no/launcher {program}")
    )
    with pytest.raises(ProbeError, match="/no/launcher cannot be started"):
        launcher.run(2, ["-c", ""], hosts=TWO)


def test_ranks_must_fit_the_hosts() -> None:
    launcher = Launcher("openmpi", Path(sys.executable), LauncherTemplate.parse("x {program}"))
    with pytest.raises(InputError, match="5 ranks"):
        launcher.run(5, ["-c", ""], hosts=TWO)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "A daemon failed to report back after being\nspawned.\n  Local host:    w20\n"
            "  Remote host:   w22\n",
            "host w22 was lost",
        ),
        (
            "PRTE has lost communication with a remote daemon.\n  HNP daemon   : [p-1@0,0]"
            " on node a\n"
            "  Remote daemon: [p-1@0,2] on node c\n",
            "host c was lost",
        ),
        ("srun: error: Node failure on n17\n", "host n17 was lost"),
        ("ssh: connect to host b port 22: No route to host", "host b cannot be reached"),
        ("me@b: Permission denied (publickey,password).\nHNP daemon lost", "ssh HOST true"),
        ("PermissionError: [Errno 13] Permission denied: '/dev/shm/x'", "^a rank failed: Permiss"),
        (
            "/usr/bin/env: '/opt/py/bin/python': Permission denied\n",
            "^permission denied for /opt/py/bin/python: the user",
        ),
        (
            "srun: error: Unable to create step for job 5: Access/permission denied\n",
            "^srun refused: Unable to create step",
        ),
        ("[1,3]<stderr>: tuner.base.errors.ProbeError: too hot", "^too hot$"),
        ("", "before the ranks were done"),
    ],
)
def test_what_launchers_print_about_hosts_becomes_one_sentence(text: str, sentence: str) -> None:
    told = explain_failure(
        CompletedRun(0, "", text),
        executable="mpirun",
        python="python",
        library="openmpi",
        ranks=4,
        multi_host=True,
    )
    assert "\n" not in told
    assert re.search(sentence, told), told


def test_srun_starts_ranks_of_one_node_with_words_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Use it as the only launcher: it knows nothing of mpirun's options."""
    srun = tmp_path / "srun"
    monkeypatch.setattr("tuner.launch.launcher.find_launcher_executable", lambda _: srun)
    command = Launcher("mpich", Path(sys.executable)).command(3, ["x.py"], {"MPIR_CVAR_A": "1"})
    assert command == [
        str(srun),
        "--nodes=1",
        "--ntasks=3",
        "--overcommit",
        "--kill-on-bad-exit=1",
        "/usr/bin/env",
        "MPIR_CVAR_A=1",
        sys.executable,
        "x.py",
    ]
