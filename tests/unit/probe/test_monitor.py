"""What a probe of several hosts measures, and what it makes of what the ranks report."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.base.errors import InputError, ProbeError
from tuner.cli.main import main
from tuner.core.measurement import (
    Cluster,
    Measurement,
    end_line,
    header_line,
    read_measurements,
    series_line,
)
from tuner.core.path_classes import CYCLIC
from tuner.launch import Hosts
from tuner.probe import monitor as watching
from tuner.probe.all_pairs import MAX_SEQUENTIAL_HOSTS, describe_slow_pairs, round_robin
from tuner.probe.driver import SingleHostSpec, plan_single_host
from tuner.probe.heartbeat import HEARTBEAT_INTERVAL_S
from tuner.probe.merge import merge_files
from tuner.probe.monitor import SILENCE_TIMEOUT_S, STARTING_TEXT, ProbeMonitor, ProbeProgress
from tuner.probe.multi_host import plan_cluster
from tuner.probe.p2p_points import BACK_TO_BACK_EXCHANGES, EXCHANGE_SIZES
from tuner.probe.probe_plan import ProbePlan, read_plan, write_plan
from tuner.probe.probe_spec import (
    PARTS,
    ProbeShape,
    ProbeSpec,
    default_cluster_name,
    parse_shape,
    shapes_to_measure,
)
from tuner.probe.rank_layout import RankLayout
from tuner.probe.sentinels import describe_instability

EIGHT = Hosts(tuple(f"node{n}" for n in range(8)))
REQUEST = ProbeSpec("openmpi", EIGHT, 2, sizes=(1024, 2**18))


@pytest.fixture(scope="module")
def plan() -> ProbePlan:
    return plan_cluster(REQUEST)


def test_every_point_of_a_plan_is_one_and_survives_the_way_to_the_ranks(
    plan: ProbePlan, tmp_path: Path
) -> None:
    assert max(Counter(point.key for point in plan.points).values()) == 1
    write_plan(plan, tmp_path / "plan.json")
    assert read_plan(tmp_path / "plan.json") == plan


def test_one_launch_measures_every_shape_and_size(plan: ProbePlan) -> None:
    found = {(q.nodes, q.ppn, q.nbytes) for q in plan.points if q.kind == "collective"}
    wanted = {(s.nodes, s.ppn, m) for s in shapes_to_measure(REQUEST) for m in REQUEST.sizes}
    assert found == wanted
    assert {(2, 1), (8, 1), (8, 2), (1, 2)} <= {(n, k) for n, k, _ in found}
    assert {point.launch for point in plan.points} == {0}


def test_all_radices_are_offered_where_they_differ(plan: ProbePlan) -> None:
    radices = {
        (q.nodes * q.ppn, arm.params["radix"])
        for q in plan.points
        for arm in q.candidates
        if arm.algorithm == "knomial"
    }
    assert {(16, 2), (16, 4), (16, 8), (2, 4)} <= radices
    assert (2, 8) not in radices


@pytest.mark.parametrize(
    ("hosts", "manners"),
    [(2, {2: {0}}), (3, {2: {0}, 3: {1}}), (5, {2: {0}, 4: {0}, 5: {1}}), (8, {2: {0}, 8: {0, 1}})],
)
def test_exchanges_go_in_pairs_and_in_a_ring(hosts: int, manners: dict[int, set[int]]) -> None:
    request = ProbeSpec("openmpi", Hosts(EIGHT.names[:hosts]), 1, parts=("messages",))
    points = [point for point in plan_cluster(request).points if point.kind == "exchange"]
    found = {q.nodes: {arm.params.get("ring", 0) for arm in q.candidates} for q in points}
    assert found == manners
    arms = [arm for point in points for arm in point.candidates if "ring" in arm.params]
    rows = {
        n: {arm.nbytes for arm in arms if arm.params["rows"] == n}
        for n in (1, BACK_TO_BACK_EXCHANGES)
    }
    assert rows[1] == rows[BACK_TO_BACK_EXCHANGES] == (set(EXCHANGE_SIZES) if arms else set())


def test_points_of_one_group_lie_on_disjoint_hosts(plan: ProbePlan) -> None:
    groups: dict[int, dict[int, int]] = {}
    for point in plan.points:
        if point.concurrency_group:
            groups.setdefault(point.concurrency_group, {})[point.first_host] = point.nodes
    assert any(len(firsts) == 4 for firsts in groups.values())
    for firsts in groups.values():
        hosts = [first + n for first, nodes in firsts.items() for n in range(nodes)]
        assert len(hosts) == len(set(hosts))
        assert max(hosts) < 8


def test_a_layout_finds_the_ranks_of_a_place_however_ranks_are_numbered() -> None:
    layout = RankLayout(("a", "b", "c"), ((0, 3), (1, 4), (2, 5)))
    assert layout.host_of_rank == [0, 1, 2, 0, 1, 2]
    assert layout.select_ranks((2, 2, 1, (), "")) == [1, 4, 2, 5]
    assert layout.select_ranks((2, 2, 0, (), CYCLIC)) == [0, 1, 3, 4]  # pairs between the hosts
    assert layout.select_ranks((2, 1, 0, (2, 0), CYCLIC)) == [2, 0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"hosts": Hosts(("a",)), "ppn": 1}, "one rank exchanges no messages"),
        ({"shapes": (ProbeShape(9, 1),)}, "9x1 does not fit"),
        ({"sizes": (6,)}, "multiples of 4"),
        ({"parts": ("gpus",)}, "unknown part 'gpus'"),
    ],
)
def test_requests_that_cannot_be_measured(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        plan_cluster(replace(REQUEST, **change))


def test_names_of_shapes_and_clusters() -> None:
    assert parse_shape("4x2") == ProbeShape(4, 2)
    with pytest.raises(InputError, match="HOSTSxRANKS"):
        parse_shape("4")
    assert default_cluster_name(EIGHT, {}) == "node"
    assert default_cluster_name(EIGHT, {"SLURM_CLUSTER_NAME": "big"}) == "big"
    assert default_cluster_name(Hosts(("ash", "oak")), {}) == "ash"


def test_the_plan_is_shown_without_measuring(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["probe", "plan", "--hosts", "a,b,c,d", "--sizes", "1KiB", "--budget", "60s"]
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["launches"] == 1
    assert sum(row["seconds"] for row in record["points"]) == pytest.approx(60, rel=0.01)
    assert main(words) == 0
    every, _, of_gpus = capsys.readouterr().out.partition("more where hosts have GPUs")
    assert "collective bcast 4x1 1KiB" in every
    assert ", 1 launch, " in every
    assert "cuda" not in every + of_gpus
    assert re.search(r"^ +2 +pingpong network", every, re.MULTILINE)  # numbered as listed
    assert "`--measure devices` lists them" in of_gpus
    assert main([*words, "--measure", "collectives,devices"]) == 0
    every, _, of_gpus = capsys.readouterr().out.partition("more where hosts have GPUs")
    assert "copy h2d_pinned 1x1 cuda" in of_gpus
    assert "1024 B" not in of_gpus.replace("1024 B cuda", "")
    assert main([*words, "--measure", "collectives"]) == 0
    assert "GPU" not in capsys.readouterr().out


@pytest.mark.parametrize("there", [True, False])
def test_the_plan_for_this_computer_has_what_can_be_measured_on_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    monkeypatch.setattr("tuner.cli.commands.probe.has_driver", lambda: there)
    words = ["probe", "plan", "--ranks", "2", "--sizes", "1KiB", "--budget", "60s"]
    assert main([*words, "--json"]) == 0
    printed = capsys.readouterr()
    shown = json.loads(printed.out)
    points = shown["points"]
    whole = plan_single_host(SingleHostSpec(ranks=2, sizes=(1024,), parts=PARTS))
    assert shown["fingerprint"] == whole.fingerprint  # as in the file
    assert sum(row["seconds"] for row in points) == pytest.approx(60, rel=0.01)
    assert {row["memory"] for row in points} == ({"host", "cuda"} if there else {"host"})
    assert ("no NVIDIA driver on this computer" in printed.err) is not there
    assert main([*words, "--measure", "devices"]) == (0 if there else 1)
    printed = capsys.readouterr()
    assert ("of GPUs nothing can be measured" in printed.err) is not there


def test_the_collectives_asked_for_are_measured_on_this_computer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["probe", "plan", "--ranks", "3", "--collectives", "alltoall,barrier", "--json"]
    assert main([*words, "--sizes", "1000,8"]) == 0
    points = [row["point"] for row in json.loads(capsys.readouterr().out)["points"]]
    assert {name for name in points if name.startswith("collective") and "cuda" not in name} == {
        "collective alltoall p=2 8 B",
        "collective alltoall p=2 1000 B",
        "collective alltoall p=3 996 B",  # whole elements for each of three ranks
        "collective barrier p=2 4 B",
        "collective barrier p=3 4 B",
    }
    assert main([*words, "--sizes", "8"]) == 1
    assert "no size of --sizes gives each of 3 ranks 4 bytes" in capsys.readouterr().err


def test_reports_are_found_among_banners(plan: ProbePlan) -> None:
    seen: list[ProbeProgress] = []
    watch = ProbeMonitor(plan, 10.0, seen.append)
    watch.start(plan)
    begin = json.dumps({"event": "begin", "point": "x {"})
    done = json.dumps({"event": "done", "points": 3})
    assert watch.handle_line("Welcome to the machine {}") is None
    assert watch.handle_line(f"[1,0]<stdout>: {begin}{done} goodbye") == SILENCE_TIMEOUT_S
    assert (watch.current_point, watch.finished_points) == ("x {", 3)
    assert watch.handle_line('{"event": "beg*** maintenance at noon ***') is None
    assert (
        watch.handle_line(f'{{"event": "be{json.dumps({"event": "note", "text": "hm"})}')
        == SILENCE_TIMEOUT_S
    )
    assert watch.notes == ["hm"]
    assert [one.text for one in seen] == [STARTING_TEXT, "x {"]


def sign(host: str) -> str:
    return json.dumps({"event": "host", "name": host})


def signs_of(host: str, times: int, watch: ProbeMonitor, now: list[float]) -> None:
    """Of this one alone, as often as they come."""
    for _ in range(times):
        now[0] += HEARTBEAT_INTERVAL_S
        watch.handle_line(sign(host))


@pytest.fixture
def listening(plan: ProbePlan, monkeypatch: pytest.MonkeyPatch) -> tuple[ProbeMonitor, list[float]]:
    """A watch over ranks that run, and the time that it is."""
    now = [100.0]
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = ProbeMonitor(plan, 10.0, lambda _: None)
    watch.start(plan)
    return watch, now


def test_a_report_that_a_sign_of_life_cut_in_two_is_put_together(
    listening: tuple[ProbeMonitor, list[float]],
) -> None:
    watch, _ = listening
    begin = json.dumps({"event": "begin", "point": "x"})
    assert watch.handle_line(begin[:20] + sign("a")) is None
    assert watch.handle_line(begin[20:]) == SILENCE_TIMEOUT_S
    assert watch.current_point == "x"
    assert watch.handle_line(sign("a") + sign("b")) is None  # no word of the first rank


def test_a_report_on_the_line_of_a_sign_of_life_counts_at_once(
    listening: tuple[ProbeMonitor, list[float]],
) -> None:
    """It may be the last one: no other line comes then."""
    watch, _ = listening
    note = json.dumps({"event": "note", "text": "hm"})
    done = json.dumps({"event": "done", "points": 3})
    assert watch.handle_line(note + sign("a") + done[:9]) == SILENCE_TIMEOUT_S
    assert watch.notes == ["hm"]
    assert watch.handle_line(done[9:] + sign("b")) == SILENCE_TIMEOUT_S
    assert watch.finished_points == 3


def test_the_time_left_is_what_the_budget_leaves_and_never_grows(
    plan: ProbePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not there, such as GPUs, is done in no time; what is slow takes more than its own."""
    now, seen = [100.0], list[ProbeProgress]()
    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = ProbeMonitor(plan, 10.0, seen.append)

    def begin(seconds: float, done: int) -> ProbeProgress:
        now[0] += seconds
        watch.handle_line(json.dumps({"event": "done", "points": done}))
        watch.handle_line(json.dumps({"event": "begin", "point": "x"}))
        return seen[-1]

    watch.later_plan = plan.drop_points([point.key for point in plan.points])
    watch.start(plan)
    assert begin(0.0, 0).remaining == pytest.approx(10.0)
    early = begin(0.1, len(plan.points) // 2)
    assert early.remaining == pytest.approx(9.9)
    assert early.fraction == pytest.approx(0.01)
    assert begin(6.0, len(plan.points) // 2).remaining == pytest.approx(3.9)
    watch.start(plan)  # again, after a failure: what was there for it is spent
    assert begin(0.0, 0).remaining == pytest.approx(3.9)
    late = begin(20.0, 1)
    assert (late.remaining, late.fraction) == (0.0, 1.0)


def test_a_host_that_gives_no_sign_of_life_is_named(
    listening: tuple[ProbeMonitor, list[float]],
) -> None:
    watch, now = listening
    for _ in range(6):
        watch.handle_line(sign("a"))
        watch.handle_line(sign("b"))
        now[0] += HEARTBEAT_INTERVAL_S
    watch.handle_line(sign("a"))
    assert not watch.describe_unresponsive_hosts(3 * HEARTBEAT_INTERVAL_S)
    signs_of("a", 3, watch, now)
    assert "host b stopped answering" in watch.describe_unresponsive_hosts(
        3 * HEARTBEAT_INTERVAL_S
    )  # where ranks gave up earlier
    with pytest.raises(ProbeError, match=r"^host b stopped answering: look after it"):
        signs_of("a", 6, watch, now)


def test_hosts_that_fell_silent_together_are_named_together(
    listening: tuple[ProbeMonitor, list[float]],
) -> None:
    watch, now = listening
    for number in range(12):
        watch.handle_line(sign(f"n{number}"))
        now[0] += 0.1
    with pytest.raises(ProbeError, match=r"hosts n1, n2, .*, n8 and 3 more stopped answering"):
        signs_of("n0", 10, watch, now)


def test_while_nobody_listens_no_host_is_lost(listening: tuple[ProbeMonitor, list[float]]) -> None:
    watch, now = listening
    for host in ("a", "b", "a", "b"):
        watch.handle_line(sign(host))
    now[0] += 1000.0  # suspended, with all the ranks
    for host in ("a", "b", "a", "b"):
        watch.handle_line(sign(host))
        now[0] += HEARTBEAT_INTERVAL_S
    assert not watch.describe_unresponsive_hosts(3 * HEARTBEAT_INTERVAL_S)


@pytest.mark.parametrize("hosts", [2, 5, 8, MAX_SEQUENTIAL_HOSTS + 3])
def test_in_a_tournament_everybody_meets_everybody_once(hosts: int) -> None:
    rounds = round_robin(hosts)
    pairs = [pair for pairs in rounds for pair in pairs]
    assert sorted(pairs) == [(a, b) for a in range(hosts) for b in range(a + 1, hosts)]
    assert all(len({n for pair in pairs for n in pair}) == 2 * len(pairs) for pairs in rounds)


def swept(seconds: Callable[[int, int], float], hosts: int = 8) -> list[Measurement]:
    rng = np.random.default_rng(1)
    return [
        Measurement(
            "sweep",
            "network",
            2,
            1,
            2,
            1024,
            tuple(seconds(a, b) * rng.normal(1, 0.01, 5)),
            params={"first": a, "second": b},
        )
        for a in range(hosts)
        for b in range(a + 1, hosts)
    ]


def test_slow_pairs_and_slow_hosts_are_named_and_racks_are_not() -> None:
    names = EIGHT.names
    assert describe_slow_pairs(swept(lambda a, b: 1e-3), names) == []
    (cable,) = describe_slow_pairs(swept(lambda a, b: 2e-3 if (a, b) == (2, 5) else 1e-3), names)
    assert "node2 and node5 are slow with each other" in cable
    (host,) = describe_slow_pairs(swept(lambda a, b: 2e-3 if 3 in (a, b) else 1e-3), names)
    assert "host node3 is slow to most others" in host
    assert describe_slow_pairs(swept(lambda a, b: 2e-3 if a < 4 <= b else 1e-3), names) == []
    (nameless,) = describe_slow_pairs(swept(lambda a, b: 2e-3 if 3 in (a, b) else 1e-3), [])
    assert nameless.startswith("host number 3 is slow")


def sentinels(medians: list[float], spread: float = 0.005) -> list[Measurement]:
    rng = np.random.default_rng(2)
    return [
        Measurement(
            "sentinel",
            "network",
            2,
            1,
            2,
            1024,
            tuple(median * rng.lognormal(sigma=spread, size=12)),
            params={"of": number},
        )
        for number, median in enumerate(medians)
    ]


@pytest.mark.parametrize(
    ("series", "word"),
    [
        (sentinels([1e-3] * 8), None),
        (sentinels([1e-3] * 3 + [1.1e-3] * 5), "drift"),
        (sentinels([1e-3] * 4 + [2e-3] + [1e-3] * 4), "sentinel 5 of 9"),
        (sentinels([1e-3] * 8, spread=0.6), "too noisy"),
        ([], None),
    ],
)
def test_sentinels_say_when_a_machine_drifts_or_is_too_noisy(
    series: list[Measurement], word: str | None
) -> None:
    said = " ".join(describe_instability(series))
    assert (word in said) if word else said == ""


HERE = Cluster("node", 8, 4, "some", 2**30)


def written(path: Path, series: list[Measurement], *, ended: bool, name: str = "node") -> Path:
    lines = [
        header_line(replace(HERE, name=name), "openmpi 5.0.11", {"hosts": list(EIGHT.names)}),
        *map(series_line, series),
    ]
    path.write_text("".join(f"{one}\n" for one in [*lines, *[end_line(len(series))] * ended]))
    return path


def test_merged_files_hold_everything_once(tmp_path: Path) -> None:
    a, b, c = (Measurement("collective", "bcast", 8, 1, 8, n, (1e-3, 2e-3)) for n in (4, 8, 16))
    again = replace(a, samples=(3e-3,))
    files = [
        written(tmp_path / "1", [a, b], ended=False),
        written(tmp_path / "2", [a, b, c], ended=True),  # the first, resumed
        written(tmp_path / "3", [again], ended=True),
    ]
    merged = merge_files(files, tmp_path / "all")
    assert merged.series == (a, b, c, replace(again, launch=1))
    assert read_measurements(tmp_path / "all").series == merged.series


def test_files_of_two_clusters_are_not_merged(tmp_path: Path) -> None:
    a = Measurement("collective", "bcast", 8, 1, 8, 4, (1e-3,))
    files = [
        written(tmp_path / "1", [a], ended=True),
        written(tmp_path / "2", [a], ended=True, name="other"),
    ]
    with pytest.raises(InputError, match="not of one cluster"):
        merge_files(files, tmp_path / "all")
    with pytest.raises(InputError, match="name the files"):
        merge_files([], tmp_path / "all")
    assert not (tmp_path / "all").exists()
