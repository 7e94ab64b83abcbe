"""What `tuner simulate` lists: what the machine can do, the best of each algorithm, in order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.nodes import computer
from tuner.cli.main import main
from tuner.core.calibration import Calibration, PathCost, write_calibration
from tuner.mpi_libraries import schedules

pytestmark = pytest.mark.slow

FLAT = "name: flat16\nnodes: 16\nlatency: 2us\nbandwidth: 12.5GB/s\n"
STUDY = """
name: one
topology: flat.yaml
collectives: [allreduce]
sizes: [64KiB, 1MiB]
"""
GPUS = """
interior:
  devices: [{name: cpu, kind: cpu}, {name: gpu, kind: gpu, count: 4}, {name: nic, kind: nic}]
  links:
    - {between: [cpu, gpu0], bandwidth: 10GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, gpu1], bandwidth: 10GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, gpu2], bandwidth: 10GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, gpu3], bandwidth: 10GB/s, latency: 0us, kind: pcie}
    - {between: [cpu, nic], bandwidth: 10GB/s, latency: 0us, kind: pcie}
"""


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    path = tmp_path / "flat.yaml"
    path.write_text(FLAT)
    return path


def simulated(
    capsys: pytest.CaptureFixture[str], flat: Path, *words: str, collective: str = "allreduce"
) -> list[dict[str, Any]]:
    asked = ["--topology", str(flat), "--collective", collective, "--json", *words]
    assert main(["simulate", *asked]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.extended
def test_simulate_and_whatif_agree_on_the_best(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = simulated(capsys, flat, "--sizes", "64KiB,1MiB")
    study = flat.with_name("study.yaml")
    study.write_text(STUDY)
    assert main(["study", str(study), "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    for point in points:
        own = [record for record in found if record["nbytes"] == point["nbytes"]]
        times: dict[str, float] = {}
        for timing in point["candidates"]:
            best = times.get(timing["algorithm"], timing["seconds"])
            times[timing["algorithm"]] = min(best, timing["seconds"])
        assert {one["algorithm"]: one["seconds"] for one in own} == pytest.approx(times, rel=1e-9)
        assert own[0]["seconds"] == pytest.approx(point["candidates"][0]["seconds"], rel=1e-9)
    assert "two_level_rabenseifner" in times


def test_the_fastest_comes_first(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(capsys, flat, "--sizes", "1MiB,1KiB")
    assert list(dict.fromkeys(one["nbytes"] for one in found)) == [2**20, 2**10]
    for nbytes in (2**20, 2**10):
        seconds = [one["seconds"] for one in found if one["nbytes"] == nbytes]
        assert seconds == sorted(seconds)


def test_a_named_algorithm_is_tuned_unless_parameters_are_given(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--sizes", "16MiB", "--algorithm", "pipeline")
    (tuned,) = simulated(capsys, flat, *words, collective="bcast")
    (asked,) = simulated(capsys, flat, *words, "--param", "segment=0", collective="bcast")
    assert tuned["params"]["segment"] > asked["params"]["segment"] == 0
    assert tuned["seconds"] < asked["seconds"] / 3  # fifteen hops at once, not one by one


def test_a_named_algorithm_without_variants_has_its_own_parameters(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--sizes", "1MiB", "--ranks", "4", "--algorithm", "hierarchical")
    (only,) = simulated(capsys, flat, *words)
    assert only["params"]["group"] == 4


@pytest.mark.parametrize(
    ("machine", "words", "says"),
    [
        (FLAT, "--algorithm nvls", "needs buffers in GPU memory"),
        (FLAT, "--algorithm ring,collnet_direct", "collnet_direct needs buffers in GPU memory"),
        (FLAT, "--algorithm nccl_ring", "nccl_ring needs buffers in GPU memory"),
        (
            FLAT + GPUS,
            "--algorithm nvls --memory cuda --ppn 4",
            (
                "needs NVSwitches that reduce: where flat16 has that, say `offers:"
                " [nvswitch_reduction]`"
            ),
        ),
        (
            FLAT + GPUS + "offers: [nvswitch_reduction]",
            "--algorithm nvls --memory cuda --ppn 4",
            "needs switches that reduce between all ranks: take one node, or a network with",
        ),
        (
            FLAT + GPUS + "offers: [nvswitch_reduction]",
            "--algorithm nvls_tree --memory cuda",
            "needs several ranks on each of several nodes",
        ),
    ],
)
def test_what_the_machine_cannot_do_has_no_price(
    machine: str, words: str, says: str, flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flat.write_text(machine)
    asked = ["--topology", str(flat), "--collective", "allreduce", "--sizes", "1MiB"]
    assert main(["simulate", *asked, *words.split()]) == 1
    told = capsys.readouterr()
    assert says in told.err
    assert told.out == ""


def test_what_a_machine_offers_is_listed(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flat.write_text(FLAT + GPUS + "offers: [nvswitch_reduction]\n")
    words = ("--sizes", "1MiB", "--memory", "cuda", "--ppn", "4")
    one = {r["algorithm"] for r in simulated(capsys, flat, *words, "--ranks", "4")}
    assert "nvls" in one
    assert "nvls_tree" not in one
    two = {r["algorithm"] for r in simulated(capsys, flat, *words, "--ranks", "8")}
    assert "nvls_tree" in two
    assert "nvls" not in two


def test_nvls_is_one_answer_where_the_network_reduces(capsys: pytest.CaptureFixture[str]) -> None:
    """NCCL with SHARP chooses it on 32 nodes, and simulations have its time there."""
    call = ["--topology", "preset:dgx-h100:32", "--ppn", "8", "--sizes", "64MiB"]
    call += ["--collective", "allreduce"]
    main(["nccl", "estimate", *call, "--collnet", "--json"])
    (chosen,) = [one for one in json.loads(capsys.readouterr().out) if one["chosen"]]
    assert chosen["algorithm"] == "nvls"
    main(["simulate", *call, "--algorithm", "nvls", "--json"])
    (one,) = json.loads(capsys.readouterr().out)
    assert one["seconds"] == pytest.approx(chosen["predicted_seconds"], rel=1e-9)
    main(["simulate", *call, "--algorithm", "nvls"])
    said = " ".join(capsys.readouterr().out.split())
    assert "NCCL uses nvls on several nodes only with NCCL_COLLNET_ENABLE=1 and SHARP" in said


def test_host_memory_needs_no_price_where_no_message_is_there(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only what goes through the hosts is left out, and says what it lacks when it is named."""
    flat.write_text(FLAT + GPUS)
    words = ("--sizes", "1MiB", "--memory", "cuda", "--ppn", "4", "--ranks", "8")
    known = {record["algorithm"] for record in simulated(capsys, flat, *words)}
    assert {"ring", "nccl_ring", "rabenseifner"} <= known
    assert "ring_staged" not in known
    study = flat.with_name("study.yaml")
    study.write_text(STUDY.replace("64KiB, ", ""))
    assert main(["study", str(study), "--json"]) == 0
    (point,) = json.loads(capsys.readouterr().out)["points"]
    names = {timing["algorithm"] for timing in point["candidates"]}
    assert "ring" in names
    assert "ring_staged" not in names
    asked = ["--topology", str(flat), "--collective", "allreduce", *words]
    for more in (["--algorithm", "ring_staged"], ["--memory", "host"]):
        assert main(["simulate", *asked, *more]) == 1
        assert "does not say what a message inside a node costs" in capsys.readouterr().err


def test_latencies_that_no_file_says_are_assumed_with_a_caution(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "short messages take on slurm, so latencies of other machines are assumed (1.5us"
    flat.write_text("SwitchName=l1 Nodes=n[1-4]\n")
    words = ["simulate", "--collective", "bcast", "--sizes", "8B", "--topology"]
    told = flat.with_name("told.yaml")
    told.write_text("combine: {fabric: flat.yaml, latency: 1us}")
    assert main([*words, str(flat)]) == 0
    assert said in capsys.readouterr().err
    assert main(["topology", "show", str(flat)]) == 0
    assert said in capsys.readouterr().err
    study = flat.with_name("study.yaml")
    study.write_text(STUDY)
    assert main(["study", str(study), "--json"]) == 0
    assert said in capsys.readouterr().err
    assert main([*words, str(told)]) == 0
    assert said not in capsys.readouterr().err


@pytest.mark.extended
def test_more_ranks_than_gpus_of_a_node_are_cautioned_of(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", "--topology", "preset:summit:2", "--collective", "allreduce"]
    words += ["--algorithm", "ring", "--sizes", "1KiB"]
    said = "7 ranks share the 6 GPUs of a node of summit, which NCCL refuses unless"
    for options, cautioned in (
        (["--ppn", "7", "--memory", "cuda"], True),
        (["--ppn", "6", "--memory", "cuda"], False),
        (["--ppn", "7", "--ranks", "6", "--memory", "cuda"], False),
        (["--ppn", "7"], False),
    ):
        assert main([*words, *options]) == 0
        assert (said in " ".join(capsys.readouterr().err.split())) == cautioned
    study, asked = flat.with_name("study.yaml"), "algorithms: [ring]\nvary: {ppn: [6, 7], memory: "
    for memory, cautioned in (("[host, cuda]", True), ("[host]", False)):
        text = STUDY.replace("flat.yaml", "preset:summit:2")
        study.write_text(f"{text}{asked}{memory}}}\n")
        assert main(["study", str(study), "--json"]) == 0
        assert (said in capsys.readouterr().err) == cautioned


@pytest.mark.extended
def test_costs_that_nobody_measured_are_cautioned_of(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A linear broadcast of 8 bytes to 16 ranks takes as long as one message."""
    words = ["--sizes", "8B", "--algorithm", "linear"]
    (found,) = simulated(capsys, flat, *words, collective="bcast")
    assert found["seconds"] == pytest.approx(2e-6, rel=0.01)
    asked = ["simulate", "--topology", str(flat), "--collective", "bcast", *words]
    said = "messages have no overhead of their own here"
    assert main(asked) == 0
    assert said in capsys.readouterr().err
    study, costs = flat.with_name("study.yaml"), flat.with_name("c.json")
    study.write_text(STUDY)
    assert main(["study", str(study), "--json"]) == 0
    assert said in capsys.readouterr().err
    paths = {("network", "host"): PathCost.from_alpha_beta(2e-6, 8e-11)}
    write_calibration(Calibration("x", "any", paths), costs)
    assert main([*asked, "--calibration", str(costs)]) == 0
    study.write_text(f"{STUDY}calibration: {costs}\n")
    assert main(["study", str(study), "--json"]) == 0
    assert said not in capsys.readouterr().err


def test_what_takes_long_says_how_far_it_is(
    flat: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated(capsys, flat, "--sizes", "64KiB")
    assert "simulating" not in capsys.readouterr().err
    monkeypatch.setattr("tuner.cli.terminal.progress.LINE_INTERVAL_S", 0.0)
    asked = ["--topology", str(flat), "--collective", "bcast", "--sizes", "1KiB,1MiB"]
    assert main(["simulate", *asked]) == 0
    said = capsys.readouterr().err.splitlines()
    assert "simulating:   0%" in said[0]
    assert "binomial, 1MiB" in "".join(said)


def test_what_is_too_large_is_left_out_unless_it_was_asked_for(
    flat: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that share ports are never played round by round."""
    paths = {("network", "host"): PathCost.from_alpha_beta(2e-6, 8e-11)}
    shared, large = flat.with_name("c.json"), "at most 100 can be played"
    write_calibration(Calibration("x", "any", paths, port_sharing_threshold=0.0), shared)
    words = ("--sizes", "64KiB", "--calibration", str(shared), "--runner", "schedule")
    every = simulated(capsys, flat, *words)
    monkeypatch.setattr("tuner.sim.fast_engine.MAX_EVENT_TRANSFERS", 100)
    some = simulated(capsys, flat, *words)
    assert {record["algorithm"] for record in every if record not in some} >= {"ring"}
    asked = ["simulate", "--topology", str(flat), "--collective", "allreduce", *words]
    assert main(asked) == 0
    assert "left out, too large to be simulated: " in capsys.readouterr().err
    assert main([*asked, "--algorithm", "ring"]) == 1
    assert large in capsys.readouterr().err
    monkeypatch.setattr("tuner.sim.fast_engine.MAX_EVENT_TRANSFERS", 0)
    assert main(asked) == 1
    assert "nothing is left to be simulated: ask for fewer ranks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--root", "99"], "--root 99: expected a rank from 0 to 15"),
        (["--root", "-1"], "--root -1: expected a rank from 0 to 15"),
        (["--param", "segmnt=4KiB"], "has no parameter 'segmnt'"),
    ],
)
def test_what_no_algorithm_can_do_is_refused(
    words: list[str], said: str, flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["simulate", "--topology", str(flat), "--collective", "bcast", "--sizes", "1KiB"]
    assert main([*asked, *words]) == 1
    assert said in capsys.readouterr().err


def test_variants_that_are_too_large_leave_the_others_of_a_named_algorithm(
    flat: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that share ports are never played round by round."""
    costs = flat.with_name("c.json")
    paths = {("network", "host"): PathCost.from_alpha_beta(2e-6, 8e-11)}
    write_calibration(Calibration("x", "any", paths, port_sharing_threshold=0.0), costs)
    words = ("--sizes", "1MiB", "--algorithm", "binomial", "--calibration", str(costs))
    monkeypatch.setattr("tuner.sim.fast_engine.MAX_EVENT_TRANSFERS", 20)
    monkeypatch.setattr("tuner.prediction.call_predictor.PART_RANKS", 8)
    (plain,) = simulated(capsys, flat, *words, "--param", "segment=0", collective="bcast")
    built = list[int]()

    def schedule_of(*arguments: Any) -> Any:
        built.append(arguments[3])
        return schedules.schedule_of(*arguments)

    monkeypatch.setattr("tuner.prediction.call_predictor.schedule_of", schedule_of)
    asked = ["simulate", "--topology", str(flat), "--collective", "bcast", *words, "--json"]
    assert main(asked) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [plain]
    assert built.count(16) == 1  # the plain one alone is built for all ranks
    said = "left out, too large to be simulated: binomial(segment=8KiB) at 1MiB: the order of"
    assert f"{said} at least 1792 transfers" in err  # 128 segments, 7 messages of 8 ranks, twice
    assert "at most 20 can be played event by event" in err


def test_a_calibrated_library_is_simulated_as_it_is(
    tmp_path: Path, flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Open MPI sends a long message to two children in turns."""
    paths = {("network", "host"): PathCost.from_alpha_beta(1e-6, 1e-9)}
    write_calibration(Calibration("any", "openmpi 5.0.11", paths), tmp_path / "c.json")
    words = ["--calibration", str(tmp_path / "c.json"), "--sizes", "1MiB"]
    tree = [*words, "--algorithm", "binary", "--param", "segment=0"]
    library, ours = (
        simulated(capsys, flat, *tree, *via, collective="bcast")[0]["seconds"]
        for via in ([], ["--runner", "schedule"])
    )
    assert library > 1.05 * ours
    other = ["--collective", "allreduce", "--algorithm", "nonoverlapping"]
    assert main(["simulate", "--topology", str(flat), *words, *other]) == 1
    assert "--runner schedule" in capsys.readouterr().err


def test_ranks_with_a_gpu_each_have_their_buffers_there(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--collective", "allreduce", "--algorithm", "ring", "--sizes", "1MiB"]
    for machine, ppn, more, memory in (
        ("preset:dgx-h100:2", "8", [], "GPU memory"),
        ("preset:dgx-h100:2", "8", ["--memory", "host"], "host memory"),
        ("preset:dgx-h100:2", "16", [], "host memory"),
    ):
        main([*words, "--topology", machine, "--ppn", ppn, *more])
        assert f", in {memory}" in capsys.readouterr().out


def test_a_barrier_has_one_time_in_host_memory(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--topology", "preset:dgx-a100:2", "--ppn", "8", "--collective", "barrier"]
    assert main(["simulate", *asked, "--sizes", "8,1MiB", "--itemsize", "8"]) == 0
    said = capsys.readouterr().out
    assert "barrier of 16 ranks on dgx-a100, in host memory" in said
    assert "4B" in said
    assert "1MiB" not in said


def test_the_name_of_a_machine_is_not_taken_for_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--collective", "bcast", "--sizes", "1KiB", "--topology", "dgx-h100"]
    assert main(words) == 1
    assert "write preset:dgx-h100 for the machine of this name" in capsys.readouterr().err


def test_counts_of_a_file_are_simulated(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rank 1 sends 1,000,000 bytes to rank 0 in 2 us and at 12.5 GB/s, and nobody anything else."""
    counts = flat.with_name("counts")
    counts.write_text("0 0\n1000000 0\n")
    words = ("--ranks", "2", "--counts", str(counts))
    found = simulated(capsys, flat, *words, collective="alltoallv")
    times = {one["algorithm"]: one["seconds"] for one in found}
    assert times["linear"] == times["pairwise"] == pytest.approx(2e-6 + 1e6 / 12.5e9)
    assert {one["nbytes"] for one in found} == {500_000}


def test_blocks_of_a_file_are_gathered(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The only block, of 1,000,000 bytes, passes two of three ranks of a ring."""
    counts = flat.with_name("counts")
    counts.write_text("0 1000000 0\n")
    words = ("--ranks", "3", "--counts", str(counts), "--algorithm", "ring")
    (found,) = simulated(capsys, flat, *words, collective="allgatherv")
    assert found["nbytes"] == 1_000_000
    assert found["seconds"] == pytest.approx(2 * (2e-6 + 1e6 / 12.5e9))


def test_uneven_counts_take_longer(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def seconds(*words: str) -> float:
        asked = ("--algorithm", "linear", "--sizes", "1MiB,64KiB", *words)
        return float(simulated(capsys, flat, *asked, collective="alltoallv")[0]["seconds"])

    assert seconds() < seconds("--counts", "zipf:1:2") < seconds("--counts", "zipf:1")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            ("alltoall", "--counts", "uniform", "--sizes", "1KiB"),
            "--counts is for allgatherv, alltoallv, not for alltoall",
        ),
        (("alltoallv",), "give --sizes, such as"),
        (("alltoallv", "--counts", "uniform"), "give --sizes, such as"),
        (("allreduce",), "give --sizes, such as"),
        (("alltoall", "--sizes", "8", "--root", "0"), "--root is for bcast, reduce, gather"),
        (("allreduce", "--sizes", "8", "--root", "3"), ", not for allreduce"),
    ],
)
def test_options_that_do_not_fit_the_collective_are_refused(
    words: tuple[str, ...], reason: str, flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", "--topology", str(flat), "--collective", *words]) == 2
    assert reason in capsys.readouterr().err


def test_a_file_of_counts_is_drawn(flat: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts = flat.with_name("counts")
    counts.write_text("0 9\n9 0\n")
    words = ("--ranks", "2", "--counts", str(counts), "--algorithm", "linear")
    assert simulated(capsys, flat, *words, "--gantt", f"{flat}.svg", collective="alltoallv")
    assert Path(f"{flat}.svg").stat().st_size > 1000


def test_a_message_that_is_too_long_is_named(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--counts", "uniform", "--sizes", "1TiB", "--algorithm", "linear")
    asked = ("simulate", "--topology", str(flat), "--collective", "alltoallv", *words)
    assert main([*asked]) == 1
    assert "and at most 2147483647 can be sent: take a smaller size" in capsys.readouterr().err


def test_memory_of_gpus_is_refused_where_there_are_none_also_for_one_rank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "node.xml").write_text(computer("", ""))
    words = ["--collective", "allreduce", "--sizes", "1MiB", "--ppn", "1", "--memory", "cuda"]
    assert main(["simulate", "--topology", str(tmp_path / "node.xml"), *words]) == 1
    assert "node computer of topology computer has no GPU" in capsys.readouterr().err
