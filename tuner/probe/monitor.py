"""What the ranks report, turned into progress and into what is known about a run."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.base.errors import ProbeError
from tuner.base.progress import Report
from tuner.launch.hosts import several
from tuner.probe import heartbeat
from tuner.probe.probe_plan import Plan

EVENT = '{"event": '
SIGN = re.compile(re.escape(f'{EVENT}"{heartbeat.EVENT}", "name": ') + r'("[^"]*")\}')
SHORTEST = 0.2  # seconds that a launch has at least
STARTING = 60.0  # seconds in which ranks must have said their first word
SILENCE = 60.0  # seconds without a word of the first rank after which all count as lost
NOTHING_YET = "nothing yet: the ranks are starting"
START = "start_seconds"  # in the provenance: from the launch to the first word of the ranks
LOST = 30.0  # seconds without a sign of life after which a host counts as lost


@dataclass(frozen=True)
class Progress:
    """Where a probe is. Times in seconds; `remaining` is at most what the budget leaves."""

    done: int
    total: int
    elapsed: float
    remaining: float
    text: str

    @property
    def fraction(self) -> float:
        """Of the time that it takes. Points tell little: those of a GPU that is not there take
        none."""
        whole = self.elapsed + self.remaining
        return self.elapsed / whole if whole else 0.0


class Watch:
    """Over one launch or several.

    facts       what the ranks of the latest launch told about themselves
    notes       sentences of theirs
    left_out    keys of points for which there was no time
    why         point, or point and arm -> why there are no samples of it
    before      seconds that an earlier run took, which this one goes on with
    kept        points of that run
    """

    def __init__(
        self,
        plan: Plan,
        budget: float,
        tell: Callable[[Progress], None],
        before: float = 0.0,
        kept: int = 0,
    ) -> None:
        self.budget = budget  # seconds of the present launch
        self.current = ""
        self.finished = 0  # points of the present launch
        self.later = plan  # what launches after the present one measure
        self.facts: dict[str, Any] = {}
        self.notes: list[str] = []
        self.left_out: list[list[Any]] = []
        self.why: dict[str, str] = {}
        self._heard: dict[str, float] = {}  # when, of every host
        self._cut = ""  # what a sign of life came in the midst of
        self._rate = budget / plan.weight if plan.points else 0.0
        self._end = 0.0  # of all launches; 0: none has begun
        self._starting = 0.0  # seconds from the start of a launch to its first point
        self._total = kept + len(plan.points)
        self._points = 0  # of the present launch
        self._least = math.inf  # seconds that were left when it was last told
        self._begin = time.monotonic()
        self._launched = self._begin
        self._tell, self._before = tell, before

    def start(self, plan: Plan) -> None:
        """Begin a launch that is to measure `plan`, with its share of the time that is left."""
        now, weight = time.monotonic(), plan.weight + self.later.weight
        if not self._end:
            self._end = now + self._rate * weight
        share = (self._end - now) * plan.weight / weight if weight else 0.0
        self.budget = max(share - self._starting, SHORTEST)
        self.current = NOTHING_YET
        self.finished = 0
        self._heard, self._cut = {}, ""
        self._points = len(plan.points)
        self._launched = now
        self._show(self.current)

    @property
    def limit(self) -> float:
        """Return the seconds that the present launch may measure at most: all that is left."""
        return max(self._end - self._launched - self._starting, self.budget)

    def no_time_for(self, plan: Plan) -> bool:
        """Say whether the time is spent before the ranks could measure any of `plan`.

        Its points are left out then.
        """
        spent = bool(self._end) and time.monotonic() + self._starting + SHORTEST > self._end
        if spent:
            self.left_out += [list(point.key) for point in plan.points]
        return spent

    @property
    def elapsed(self) -> float:
        """Seconds since the first launch."""
        return time.monotonic() - self._begin

    def line(self, text: str) -> float | None:
        """One line of the ranks' output; how long they may be silent after it, if they spoke.

        What is no report, such as a banner or a library's warning, passes by, also when it shares
        the line with reports. Raises ProbeError when a host has fallen silent.
        """
        signs = SIGN.findall(text)
        text, self._cut, spoke = self._cut + SIGN.sub("", text), "", None
        while (place := text.find(EVENT)) >= 0:
            try:
                event, length = json.JSONDecoder().raw_decode(text[place:])
            except ValueError:  # another program's output cut it in two
                if signs:
                    break
                length = len(EVENT)
            else:
                self._event(event)
                spoke = SILENCE
            text = text[place + length :]
        if signs:  # of other ranks than the reports, so maybe within one that is to be continued
            self._cut = text
        for name in signs:
            self._hear(json.loads(name))
        return spoke

    def _hear(self, host: str) -> None:
        """A sign of life. Where none came of anybody, nobody listened, and all may be well."""
        now = time.monotonic()
        if now > max(self._heard.values(), default=now) + LOST / 2:
            self._heard = dict.fromkeys(self._heard, now)
        self._heard[host] = now
        if self.silent(LOST):
            raise ProbeError(self.silent(LOST - heartbeat.EVERY))

    def silent(self, seconds: float) -> str:
        """A sentence on the hosts that have given no sign of life for so long when another one did;
        empty without any.
        """
        latest = max(self._heard.values(), default=0.0)
        lost = [name for name, at in self._heard.items() if latest > at + seconds]
        if len(lost) > 1:
            return (
                f"hosts {several(lost)} stopped answering: look after them and the network, or"
                " leave them out of --hosts"
            )
        return "".join(
            f"host {name} stopped answering: look after it, or leave it out of --hosts"
            for name in lost
        )

    def _event(self, event: dict[str, Any]) -> None:
        known = {name: value for name, value in event.items() if name != "event"}
        if event["event"] == "excluded":
            name = f"{event['point']}: {event['arm']}"
            self.why[name] = event["why"]
            self._show(f"left out: {name}: {event['why']}")
        elif event["event"] == "begin":
            if self.current == NOTHING_YET:
                self._starting = time.monotonic() - self._launched
            self.current = event["point"]
            self._show(self.current)
        elif event["event"] == "done":
            self.finished = event["points"]
        elif event["event"] == "facts":
            started = round(time.monotonic() - self._launched, 3)
            self.facts = {START: started, **self.facts, **known}
        elif event["event"] == "note" and event["text"] not in self.notes:
            self.notes.append(event["text"])
        elif event["event"] == "lacking":
            self.why[event["point"]] = event["why"]
        elif event["event"] == "left_out":
            self.left_out.append(event["key"])

    def _show(self, text: str) -> None:
        left = self._points - self.finished + len(self.later.points)
        done = self._total - left
        elapsed = self._before + self.elapsed
        self._tell(Progress(done, self._total, elapsed, self._remaining(), text))

    def _remaining(self) -> float:
        """What points leave of their time is dealt out again; a launch that is repeated has more
        than it says."""
        self._least = min(self._least, max(self._end - time.monotonic(), 0.0))
        return self._least


def forwarded(report: Report) -> Callable[[Progress], None]:
    """Return a callback that hands the progress of a probe on."""

    def tell(progress: Progress) -> None:
        report(progress.fraction, progress.remaining, progress.text)

    return tell
