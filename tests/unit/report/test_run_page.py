"""The page about a run, from records that we wrote."""

from __future__ import annotations

import re
from dataclasses import replace

from tuner.core.collective import Collective
from tuner.preload.report import Interval
from tuner.preload.run_record import RecordedCalls, RunRecord
from tuner.report.run_page import FollowedRun, render_run_page

CALLS = RecordedCalls(
    *(Collective.ALLREDUCE, 2, 2, False, True, "ring(segment=64)", 64),
    *(8, 4e-3, 1e-6, 2e-6, 3e-3, None),
)
NOTHING = (0.0, 0.0, 0.0)


def page(*kinds: tuple[RecordedCalls, Interval], unrecorded: int = 0) -> str:
    record = RunRecord(4, 8e-3, tuple(kind for kind, _ in kinds), unrecorded)
    saved = [saved for _, saved in kinds]
    return render_run_page(FollowedRun("mpirun <solver>", "t.json", record, saved))


def rows(html: str) -> list[list[str]]:
    found = re.findall(r"<tr data.*?</tr>", html)
    return [re.findall(r"<td.*?>(.*?)</td>", row) for row in found]


def test_calls_of_one_size_class_are_a_row() -> None:
    html = page((CALLS, (1e-3, 5e-4, 2e-3)), (replace(CALLS, nbytes=100), (1e-3, 5e-4, 2e-3)))
    (row,) = rows(html)
    assert row[:4] == ["64B to 128B", "ring (segment=64B)", "4", "100.0%"]
    assert row[4:] == ["1us", "2us", "3ms", "2ms", "1ms to 4ms"]
    assert "2ms</dd>" in html
    assert "<dd>100%</dd>" in html
    assert "of 4 calls of each rank followed the table" in html
    assert "mpirun &lt;solver&gt;, under t.json" in html


def test_each_layout_has_its_section() -> None:
    kinds = [
        replace(CALLS, nodes=2, ppn=2),
        replace(CALLS, nodes=2, ppn=2, is_cyclic=True),
        replace(CALLS, nodes=2, ppn=0),
        replace(CALLS, collective=Collective.BARRIER, nbytes=0, choice="default"),
    ]
    html = page(*((kind, NOTHING) for kind in kinds), unrecorded=3)
    titles = [title.partition(":")[0] for title in re.findall(r"<h3>(.*?)</h3>", html)]
    assert sorted(titles) == [
        "allreduce on 4 ranks on 2 nodes",
        "allreduce on 4 ranks on 2 nodes (cyclic)",
        "allreduce on an irregular placement on 2 nodes",
        "barrier on 4 ranks on 2 nodes",
    ]
    assert {row[2] for row in rows(html)} == {"2", ""}
    assert [row[0] for row in rows(html) if row[1] == "default"] == [""]
    assert "3 calls of single ranks are not listed" in html


def test_unknown_savings_are_a_sentence_and_no_seconds() -> None:
    record = RunRecord(4, 8e-3, (CALLS,), 0)
    html = render_run_page(FollowedRun("mpirun <solver>", "t.json", record, None))
    assert "What the table saved is unknown" in html
    assert "by the table's evidence" not in html
    (row,) = rows(html)
    assert row[7:] == ["", ""]
