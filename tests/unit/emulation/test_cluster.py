"""Emulated clusters without root: topologies that they accept or refuse, and error messages."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tuner.base.errors import InputError
from tuner.cli.main import main
from tuner.emulation import (
    EmulatedCluster,
    EmulatedNetwork,
    build_c,
    cluster_id_for,
    emulated_network,
    launch,
    take_down,
)
from tuner.emulation.counters import N_BINS, read_counters
from tuner.emulation.environment import host_environment
from tuner.machines.topology_files import load_topology, parse_topology
from tuner.topology import Link

EXAMPLES = ROOT / "docs" / "examples"
TREE = """
name: tree
nodes: [a, b, c]
switches: [s, t]
links:
  - {between: [a, s], latency: 10us, bandwidth: 10MB/s}
  - {between: [b, s], latency: 20us, bandwidth: 20MB/s}
  - {between: [s, t], latency: 300us, bandwidth: 5MB/s}
  - {from: t, to: c, latency: 40us, bandwidth: 40MB/s}
  - {from: c, to: t, latency: 50us, bandwidth: 1MB/s}
"""


def emulated(text: str) -> EmulatedNetwork:
    return emulated_network(parse_topology(text)[1])


def test_routes_rates_and_latencies_are_those_of_the_topology() -> None:
    made = emulated(TREE)
    assert made.hosts == ("a", "b", "c")
    assert made.latency(0, 1) == pytest.approx(30e-6)
    assert made.latency(0, 2) == pytest.approx(350e-6)
    assert made.latency(2, 0) == pytest.approx(360e-6)
    assert (made.capacity(0, 1), made.capacity(0, 2), made.capacity(2, 0)) == (10e6, 5e6, 1e6)


def test_the_table_of_the_switch() -> None:
    lines = emulated(TREE).switch_table.splitlines()
    assert lines[0] == "3 8"
    assert lines[1:9] == ["100.0 10000"] * 2 + ["50.0 20000"] * 2 + ["200.0 300000"] * 2 + [
        "25.0 40000",
        "1000.0 50000",
    ]
    assert lines[9:] == [
        "0 1 2 0 3",
        "0 2 3 0 4 6",
        "1 0 2 2 1",
        "1 2 3 2 4 6",
        "2 0 3 7 5 1",
        "2 1 3 7 5 3",
    ]


def test_several_spines_are_shared_as_the_topology_says() -> None:
    made = emulated(
        "{name: f, nodes: 8, fabric: {kind: fat_tree, per_leaf: 4, taper: 2,"
        " latency: 100us, bandwidth: 100Mbit/s}}"
    )
    up = {made.routes[0, other][1] for other in range(4, 8)}
    assert len(up) == 2
    assert {len(made.routes[0, other]) for other in range(4, 8)} == {4}


@pytest.mark.parametrize("name", ["flat8.yaml", "racks.yaml"])
def test_examples_can_be_emulated_without_a_warning(name: str) -> None:
    made = emulated_network(load_topology(EXAMPLES / name))
    assert len(made.hosts) == 8
    assert made.warnings == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{preset: dgx-a100, nodes: 4}", "the devices inside .* cannot be emulated; leave out"),
        (
            "{name: x, nodes: 1, latency: 1ms, bandwidth: 1MB/s}",
            "1 nodes; an emulated cluster has 2 to 64 hosts",
        ),
        (
            "{name: x, nodes: 65, latency: 1ms, bandwidth: 1MB/s}",
            "65 nodes; an emulated cluster has 2 to 64",
        ),
        ("{name: x, nodes: [a, b_c], latency: 1ms, bandwidth: 1MB/s}", "'b_c' cannot be the name"),
        ("{name: x, nodes: [a, b/../c], latency: 1ms, bandwidth: 1MB/s}", "cannot be the name"),
        ("{name: x, nodes: 2, latency: 1ms, bandwidth: 1kB/s}", "link node0 -> switch: .* 100kB/s"),
        ("{name: x, nodes: 2, latency: 30s, bandwidth: 1MB/s}", "latencies from 0s to 10s"),
        ("{name: x, nodes: 2, latency: 1ms, bandwidth: 1MB/s, offers: [multicast]}", "multicast"),
    ],
)
def test_what_cannot_be_emulated_is_said(text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        emulated(text)


def test_what_this_computer_will_hardly_keep_up_with_is_said() -> None:
    fast, close = emulated("{name: x, nodes: 2, latency: 2us, bandwidth: 10Gb/s}").warnings
    assert fast.startswith("hosts have links of 10000 Mbit/s: above 400")
    assert close.startswith("some hosts are 2us apart: below 50us")


def test_only_what_ends_at_hosts_is_too_fast() -> None:
    text = TREE.replace("300us, bandwidth: 5MB/s", "300us, bandwidth: 500MB/s")
    assert [warning[:10] for warning in emulated(text).warnings] == ["some hosts"]


def test_a_file_has_a_cluster_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cluster_id_for(Path("a.yaml")) == cluster_id_for(tmp_path / "a.yaml")
    assert cluster_id_for(Path("a.yaml")) != cluster_id_for(Path("b.yaml"))
    assert (
        EmulatedCluster(cluster_id_for(Path("a.yaml")), emulated(TREE)).directory.parent.name
        == "tuner-emulation"
    )


@pytest.mark.parametrize("prefix", ["", "tl", "eth0", "tl../x", "tlABC", "tl-a", "tl12345678901"])
def test_prefixes_that_could_be_something_else(prefix: str) -> None:
    with pytest.raises(InputError, match="cannot be the prefix of an emulated cluster"):
        EmulatedCluster(prefix, emulated(TREE))
    with pytest.raises(InputError, match="cannot be the prefix of an emulated cluster"):
        take_down(prefix)


def test_counters_are_read_as_the_switch_writes_them(tmp_path: Path) -> None:
    lags = [6, 3, 0, 1] + [0] * (N_BINS - 4)
    data = struct.pack("=5Q", 1, 2, 10, 7_500, 20_000) + struct.pack(f"={N_BINS}Q", *lags)
    (tmp_path / "counters").write_bytes(data + struct.pack("=6Q", 900, 3, 4_000, 0, 0, 0))
    wires = (Link("a", "s", 1e6, 0.0), Link("s", "a", 1e6, 0.0))
    read = read_counters(tmp_path / "counters", wires)
    assert (read.real_time, read.dropped_frames, read.frames) == (True, 2, 10)
    assert [read.max_lateness, read.lead_time] == pytest.approx([7.5e-6, 20e-6])
    assert [
        read.lateness_quantile(0.5),
        read.lateness_quantile(0.9),
        read.lateness_quantile(1.0),
    ] == pytest.approx([1e-6, 2e-6, 7.5e-6])
    assert (read.nbytes("a", "s"), read.nbytes("s", "a")) == (900, 0)
    assert read.links[0].max_queue_time == pytest.approx(4e-6)
    with pytest.raises(InputError, match="not the counters of this cluster"):
        read_counters(tmp_path / "counters", wires[:1])


@pytest.fixture
def programs_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they were compiled."""
    monkeypatch.setattr("tuner.emulation.build_c.build_programs", lambda: tmp_path)


@pytest.mark.usefixtures("programs_there")
def test_words_that_start_ranks() -> None:
    cluster = EmulatedCluster("tlx", emulated(TREE))
    words = launch.launch_command(cluster, "openmpi", Path("/x/mpirun"), 3, 2)
    assert words[1:4] == ["--cluster", "/run/tuner-emulation/tlx", "a"]
    assert words[4:] == ["/x/mpirun", "--host", "a:2,b:2", "--map-by", "ppr:2:node", "-np", "3"]
    words = launch.launch_command(cluster, "mpich", Path("/x/mpiexec"), 3)
    assert words[4:] == ["/x/mpiexec", "-hosts", "a,b,c", "-ppn", "1", "-n", "3"]
    with pytest.raises(InputError, match="7 ranks, 2 on each host, need more hosts than the 3"):
        launch.launch_command(cluster, "openmpi", Path("/x/mpirun"), 7, 2)
    with pytest.raises(InputError, match="has no host z; it has a, b, c"):
        launch.host_command(cluster, "z")


def test_the_environment_sends_launchers_through_netns_exec(tmp_path: Path) -> None:
    made = host_environment(Path("/run/tuner-emulation/tlx"), tmp_path)
    enter = str(tmp_path / "netns_exec")
    assert made["PRTE_MCA_plm_ssh_agent"] == made["HYDRA_LAUNCHER_EXEC"] == enter
    assert made["TUNER_EMULATED_CLUSTER"] == "/run/tuner-emulation/tlx"
    assert not any("\n" in value for value in made.values())


@pytest.mark.skipif(build_c.find_compiler() is None, reason="there is no C compiler")
def test_programs_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_CACHE", str(tmp_path))
    made = build_c.build_programs()
    assert sorted(path.name for path in made.iterdir()) == ["netns_exec", "netns_hold.so", "switch"]
    monkeypatch.setenv("PATH", "")  # no compiler
    assert build_c.build_programs() == made
    (made / "netns_exec").unlink()
    with pytest.raises(
        InputError, match="an emulated cluster needs a C compiler: install gcc or clang"
    ):
        build_c.build_programs()


@pytest.mark.parametrize("action", [["up"], ["down"], ["run"]])
def test_without_root_it_says_so(
    action: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    words = [
        "emulate",
        *action,
        str(EXAMPLES / "flat8.yaml"),
        *(["true"] if action == ["run"] else []),
    ]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert said.startswith("tuner: an emulated cluster needs root")
    assert said.count("\n") == 1


def test_a_command_comes_after_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "flat8.yaml")
    remedy = "write the command after --: tuner emulate run FILE -- mpirun -n 8 ./program"
    for words, said in (
        ([], "the following arguments are required: COMMAND"),
        (["--"], "the following arguments are required: COMMAND"),
        (["mpirun", "-n", "8", "./program"], "unrecognized arguments: -n 8 ./program"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["emulate", "run", file, *words])
        assert ended.value.code == 2
        assert f"{said}: {remedy}" in capsys.readouterr().err


def test_a_cluster_that_is_not_up(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tree.yaml"
    path.write_text(TREE, encoding="utf-8")
    assert main(["emulate", "status", str(path)]) == 0
    assert f"cluster {cluster_id_for(path)} (tree, 3 hosts) is not up" in capsys.readouterr().out
    assert main(["emulate", "run", str(path), "--ppn", "0", "--", "true"]) == 2
    assert "'0' is not a whole number from 1 on" in capsys.readouterr().err
