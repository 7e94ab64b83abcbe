"""Which points a file holds, and a probe whose ranks die: nothing is lost, nothing goes on forever.

The ranks are played by a launcher that writes what ranks write and fails where it is told to.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.capable import everything
from tuner.base.errors import InputError, ProbeError
from tuner.core.measurement import (
    Measurement,
    Measurements,
    format_exclusion,
    parse_incorrect_algorithms,
    series_line,
)
from tuner.launch import Launcher
from tuner.mpi_libraries.capabilities import Capabilities
from tuner.probe.driver import SingleHostSpec, probe
from tuner.probe.probe_plan import ProbeCandidate, ProbePlan, ProbePoint, read_plan

ARMS = (ProbeCandidate("default"), ProbeCandidate("ring"))
POINTS = tuple(
    ProbePoint("collective", "bcast", 2, nbytes, ARMS, 1.0, launch)
    for launch in (0, 1)
    for nbytes in (4, 64)
)
PLAN = ProbePlan("openmpi", 2, 2, 0.03, "commutative", POINTS)


def series(
    points: Sequence[ProbePoint], arms: Sequence[ProbeCandidate] = ARMS
) -> list[Measurement]:
    return [point.to_measurement(arm, (1e-6,)) for point in points for arm in arms]


def test_a_point_that_was_cut_off_is_measured_anew() -> None:
    written = [*series(POINTS[:1]), *series(POINTS[1:2], ARMS[:1])]
    assert PLAN.select_finished(written) == series(POINTS[:1])
    assert PLAN.drop_measured(PLAN.select_finished(written)).points == POINTS[1:]


def test_what_was_wrong_is_read_from_what_was_excluded() -> None:
    lines = [
        format_exclusion("collective bcast 4x2 cyclic 64 B cuda", "chain(chains=4, segment=8)"),
        format_exclusion("collective allreduce p=3 8 B", "ring via schedule"),
        format_exclusion("collective reduce 2x1 8 B", "chain", "refused: too few ranks"),
        format_exclusion("nccl allreduce 2x1 8 B cuda", "ring"),
        "collective gather 2x1: no such host",
        "3 of allgather: times of 0",
        "",
        ": " * 50_000,
    ]
    assert parse_incorrect_algorithms(lines) == {
        ("bcast", "chain"),
        ("allreduce", "ring via schedule"),
        ("collective reduce 2x1 8 B", "chain"),
    }


def test_a_point_without_an_excluded_arm_is_finished() -> None:
    written = [*series(POINTS[:2], ARMS[:1]), *series(POINTS[2:3])]
    assert PLAN.select_finished(written) == written
    assert PLAN.select_finished([]) == []


def test_exclusions_are_told_by_what_is_missing() -> None:
    written = [*series(POINTS[:1], ARMS[:1]), *series(POINTS[1:2]), *series(POINTS[2:], ARMS[:1])]
    assert PLAN.list_exclusions(written) == [
        "collective bcast p=2 4 B: ring: wrong result",
        "collective bcast p=2 64 B: ring: wrong result",
    ]
    assert PLAN.list_exclusions(series(POINTS)) == []


@dataclass
class Mortal:
    """Ranks that exclude every ring of an allreduce, and die when `dies` says so of a point."""

    dies: Callable[[ProbePoint, int], bool]
    launches: list[int] = field(default_factory=list)

    @property
    def library(self) -> str:
        return "openmpi"

    @property
    def capabilities(self) -> Capabilities:
        return everything("openmpi")

    def version(self) -> str:
        return "openmpi 5.0.11"

    def run(
        self, _ranks: int, words: Sequence[str], *, on_line: Callable[[str], None], **_: object
    ) -> None:
        plan, out = read_plan(Path(words[-4])), Path(words[-3])
        self.launches.append(len(plan.points))
        for done, point in enumerate(plan.points, start=1):
            on_line(json.dumps({"event": "begin", "point": str(point)}))
            if self.dies(point, len(self.launches)):
                raise ProbeError("a rank died")
            arms = [
                a for a in point.candidates if (point.subject, a.algorithm) != ("allreduce", "ring")
            ]
            with out.open("a") as file:
                file.writelines(series_line(point.to_measurement(a, (1e-6,))) + "\n" for a in arms)
            on_line(json.dumps({"event": "done", "points": done}))


def probed(
    out: Path, monkeypatch: pytest.MonkeyPatch, dies: Callable[[ProbePoint, int], bool]
) -> tuple[Measurements, Mortal]:
    ranks = Mortal(dies)
    monkeypatch.setattr(Launcher, "find", lambda *_: ranks)
    return probe(out, SingleHostSpec(ranks=2, sizes=(4096,), launches=3), budget=1.0), ranks


def test_ranks_that_die_in_the_second_launch_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def once(point: ProbePoint, launch: int) -> bool:
        return launch == 2 and point.subject == "allreduce"

    whole, _ = probed(tmp_path / "whole.ndjson", monkeypatch, lambda *_: False)
    found, ranks = probed(tmp_path / "m.ndjson", monkeypatch, once)
    assert found.series == whole.series
    assert ranks.launches[1:] == [2, 1, 2]
    excluded = ["collective allreduce p=2 4096 B: ring: wrong result"]
    assert found.provenance["excluded"] == whole.provenance["excluded"] == excluded


def test_a_point_that_always_kills_the_ranks_ends_the_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def always(point: ProbePoint, launch: int) -> bool:
        assert launch < 9, "launched again and again"
        return point.subject == "allreduce" and point.launch == 1

    with pytest.raises(ProbeError, match=r"a rank died \(while measuring collective allreduce"):
        probed(tmp_path / "m.ndjson", monkeypatch, always)
    found, ranks = probed(tmp_path / "m.ndjson", monkeypatch, lambda *_: False)
    assert {s.launch for s in found.series if s.subject == "allreduce"} == {0, 1, 2}
    assert min(ranks.launches) > 0


@pytest.mark.parametrize("content", [b"\xff\xfe\n", None])
def test_an_out_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    out = tmp_path / "m.ndjson"
    out.mkdir() if content is None else out.write_bytes(content)
    with pytest.raises(InputError, match=r"m\.ndjson: cannot be read"):
        probed(out, monkeypatch, lambda *_: False)
