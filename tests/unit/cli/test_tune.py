"""`tuner tune`, and the options of verbs that start ranks on several hosts: what they refuse."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.base.errors import InputError
from tuner.cli.commands.tune import arguments, skipped_notes, stopping_rule
from tuner.cli.main import main
from tuner.cli.options import argument_types, host_options
from tuner.core.call_profile import CallProfile, ProfiledCall, read_call_profile, write_call_profile
from tuner.core.collective import Collective
from tuner.core.measurement import Measurements
from tuner.launch import LOCAL_HOST, LauncherTemplate, template
from tuner.probe import probe_spec
from tuner.probe.probed_machine import local_cluster
from tuner.probe.single_host import DEFAULT_COLLECTIVES
from tuner.select.constraints import Constraints, constraints_from_options
from tuner.workflows.active_tuning import StoppingRule

FLAT = "{name: flat, nodes: 4, latency: 2us, bandwidth: 1GB/s}"
WORDS = ["--measurements", "m.ndjson", "--out", "t.json"]
HOSTS = ["--hosts", "a:2,b:2"]


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    arguments(parser)
    return parser.parse_args([*WORDS, *words])


def stops(options: argparse.Namespace) -> tuple[float | None, float, bool]:
    return options.budget, options.target_regret, options.quick


def test_wishes_for_the_table() -> None:
    assert constraints_from_options(vars(parsed())) == Constraints()
    options = parsed(
        "--exclude-algorithms",
        "ring, bcast:chain",
        "--reproducible",
        "--max-rules",
        "7",
        "--commutative-only",
    )
    assert constraints_from_options(vars(options)) == Constraints(
        True, True, frozenset({"ring", "bcast:chain"}), 7
    )
    with pytest.raises(InputError, match="default cannot be excluded"):
        constraints_from_options(vars(parsed("--exclude-algorithms", "default")))


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of any job."""
    for name in (
        "SLURM_JOB_NODELIST",
        "SLURM_NODELIST",
        "LSB_MCPU_HOSTS",
        "LSB_HOSTS",
        "PBS_NODEFILE",
        "SLURM_JOB_ID",
        "LSB_JOBID",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("text", ["2%", "0.02", " 2.0 % ", "2e-2"])
def test_a_part_of_a_whole_is_a_percentage_or_a_number(text: str) -> None:
    assert argument_types.fraction(text) == pytest.approx(0.02)


@pytest.mark.parametrize(
    "text", ["", "%", "20", "0%", "0", "1001%", "-2%", "nan", "inf%", "two%", "2%%", "2% up"]
)
def test_no_percentage(text: str) -> None:
    with pytest.raises(InputError, match="write it like 2%"):
        argument_types.fraction(text)


def test_what_is_asked_of_hosts(tmp_path: Path) -> None:
    (tmp_path / "flat.yaml").write_text(FLAT)
    options = parsed(
        *HOSTS,
        "--shapes",
        "2x1,2x2",
        "--sizes",
        "1KiB,64KiB",
        "--collectives",
        "reduce,bcast",
        "--tuner-algorithms",
        "ring",
        "--repetitions",
        "5",
        "--topology",
        str(tmp_path / "flat.yaml"),
    )
    found = host_options.probe_spec_of(options, host_options.resolve_hosts(options))
    assert (found.hosts.names, found.ppn) == (("a", "b"), 2)
    assert found.shapes == (probe_spec.ProbeShape(2, 1), probe_spec.ProbeShape(2, 2))
    assert found.sizes == (1024, 65536)
    assert found.collectives == (Collective.REDUCE, Collective.BCAST)
    assert (found.schedules, found.min_repetitions) == (("ring",), 5)
    assert found.topology is not None
    assert found.topology.name == "flat"
    assert "collectives" not in found.parts  # those are chosen round by round


def test_a_profile_says_what_to_measure(tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    calls = (
        ProfiledCall("reduce", 2, 1, 1001, 3),
        ProfiledCall("reduce", 2, 1, 1020, 2),
        ProfiledCall("allreduce", 2, 2, 1 << 20, 1),
    )
    alone = ProfiledCall("bcast", 1, 1, 64, 1000)  # as on MPI_COMM_SELF
    write_call_profile(profile, CallProfile("made up", (*calls, alone)))
    options = parsed(*HOSTS, "--ppn", "2", "--profile", str(profile))
    found = host_options.probe_spec_of(options, options.hosts)
    assert found.collectives == (Collective.REDUCE, Collective.ALLREDUCE)
    assert found.sizes == (1000, 1 << 20)
    assert found.shapes == (probe_spec.ProbeShape(2, 1), probe_spec.ProbeShape(2, 2))
    assert found.profile == calls
    assert found.only_profile
    said = parsed(*HOSTS, "--profile", str(profile), "--sizes", "64", "--collectives", "bcast")
    asked = host_options.calls_to_measure(said)
    assert (asked.sizes, asked.collectives) == ((64,), (Collective.BCAST,))
    assert not asked.only_profile


def test_a_profile_says_which_library_to_measure(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    words = (*HOSTS, "--profile", str(path))
    profile = CallProfile("made up", (ProfiledCall("bcast", 1, 2, 8, 1),), "mpich 5.0.2")
    write_call_profile(path, profile)
    assert read_call_profile(path) == profile
    for asked in ((), ("--library", "mpich")):
        assert host_options.library_of(parsed(*words, *asked)) == "mpich"
    with pytest.raises(
        InputError, match=r"was recorded with MPICH 5\.0\.2: leave --library openmpi"
    ):
        host_options.library_of(parsed(*words, "--library", "openmpi"))
    write_call_profile(path, replace(profile, library="another 1.0"))
    with pytest.raises(InputError, match="tables cannot be made for 'another 1"):
        host_options.library_of(parsed(*words))


def test_what_there_was_no_time_for_is_told() -> None:
    skipped = "left out for want of time: 1 of 9 points (a); the same command measures them"
    notes = {"notes": ["the hosts are busy", skipped]}
    found = Measurements(local_cluster(), "openmpi 5.0.11", notes, ())
    assert skipped_notes(found) == [skipped]


def test_a_profile_without_calls_is_refused(tmp_path: Path) -> None:
    for calls in ((), (ProfiledCall("bcast", 1, 1, 64, 1000),)):
        write_call_profile(tmp_path / "none.json", CallProfile("made up", calls))
        with pytest.raises(InputError, match="expected a profile with calls of collectives on two"):
            host_options.calls_to_measure(parsed(*HOSTS, "--profile", str(tmp_path / "none.json")))


def test_what_is_asked_where_nothing_is_said() -> None:
    options = parsed("--hosts", "a,b")
    found = host_options.probe_spec_of(options, options.hosts)
    assert (found.ppn, found.shapes, found.topology) == (1, (), None)
    assert (found.collectives, found.sizes) == (DEFAULT_COLLECTIVES, probe_spec.ProbeSpec.sizes)
    assert stopping_rule(*stops(options)) == StoppingRule(600.0, 0.02)
    assert host_options.probe_spec_of(parsed(*HOSTS, "--ppn", "1"), options.hosts).ppn == 1


def test_a_quick_run_has_a_minute_unless_told_otherwise() -> None:
    asked = parsed(*HOSTS, "--quick")
    assert stopping_rule(*stops(asked)) == StoppingRule(60.0, 0.02, 0.5)
    asked = parsed(*HOSTS, "--quick", "--budget", "5min", "--target-regret", "1%")
    assert stopping_rule(*stops(asked)) == StoppingRule(300.0, 0.01, 0.5)


@pytest.mark.usefixtures("nowhere")
def test_hosts_are_those_named_else_those_of_the_job_else_this_computer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hosts").write_text("c slots=3\nd slots=3\n")
    listed = host_options.resolve_hosts(parsed("--hostfile", str(tmp_path / "hosts")))
    assert (listed.names, listed.slots) == (("c", "d"), 3)
    assert host_options.resolve_hosts(parsed()) == LOCAL_HOST
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-3]")
    assert host_options.resolve_hosts(parsed()).names == ("n1", "n2", "n3")
    assert host_options.resolve_hosts(parsed(*HOSTS)).names == ("a", "b")


def test_the_launcher_of_the_job_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    job = {"SLURM_JOB_ID": "7"}
    assert template.default_template("openmpi", job) == template.default_template("openmpi", {})
    (tmp_path / "srun").write_text("#!/bin/sh\n")
    (tmp_path / "srun").chmod(0o755)
    assert template.default_template("openmpi", job) != template.default_template("openmpi", {})
    assert template.default_template("openmpi", {}) == LauncherTemplate.parse("openmpi")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "m.ndjson: cannot be read as measurements"),
        (["--calibration", "none.json"], "m.ndjson: cannot be read"),
        (
            ["--calibration", "c.json", "--library", "mpich", "--target-regret", "5%"],
            "--library and --target-regret say what to measure on --hosts",
        ),
        (["--calibration", "c.json", "--quick"], "--quick says what to measure on --hosts"),
        (
            ["--calibration", "c.json", "--collectives", "bcast"],
            "name hosts, or leave --collectives out",
        ),
        ([*HOSTS, "--topology", "none.yaml"], "none.yaml: cannot be read"),
        ([*HOSTS, "--topology", "odd.yaml"], "odd.yaml"),
        ([*HOSTS, "--target-regret", "20"], "'20' is not a percentage"),
        ([*HOSTS, "--target-regret", "0%"], "'0%' is not a percentage"),
        ([*HOSTS, "--budget", "10"], "write it like 90s, 10min, 2h or 30d"),
        ([*HOSTS, "--shapes", "3x1"], "shape 3x1 does not fit 2 hosts"),
        (["--hosts", "a:2", "--shapes", "3x1"], "does not fit 1 host with 2 ranks each"),
        ([*HOSTS, "--shapes", "2"], "write HOSTSxRANKS"),
        ([*HOSTS, "--collectives", "shout"], "unknown collective 'shout'"),
        (["--hosts", "a", "--ppn", "1"], "one rank exchanges no messages"),
        ([*HOSTS, "--out", "folder"], "folder"),
    ],
)
def test_what_cannot_be_tuned_is_said_in_one_sentence_and_nothing_is_written(
    words: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.yaml").write_text("{name: odd, nodes: many}")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.rglob("*"))
    assert main(["tune", *WORDS, *words]) in (1, 2)
    said = capsys.readouterr()
    assert sentence in " ".join(said.err.split())
    assert "Traceback" not in said.err
    assert said.out == ""
    assert sorted(tmp_path.rglob("*")) == before
