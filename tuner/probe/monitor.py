"""Turn the reports of the ranks into progress and into facts about a run."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tuner.base.errors import ProbeError
from tuner.base.progress import StageCallback
from tuner.launch.hosts import format_hosts
from tuner.probe import heartbeat
from tuner.probe.probe_plan import ProbePlan

EVENT_PREFIX = '{"event": '
HEARTBEAT_PATTERN = re.compile(
    re.escape(f'{EVENT_PREFIX}"{heartbeat.HEARTBEAT_EVENT}", "name": ') + r'("[^"]*")\}'
)
MIN_LAUNCH_S = 0.2  # minimum seconds of a launch
STARTUP_TIMEOUT_S = 60.0  # seconds in which ranks must send their first report
SILENCE_TIMEOUT_S = 60.0  # seconds without a report of rank 0 after which all ranks count as lost
ENDS_PROGRAM = "a call without data ends the program or never returns"
STARTING_TEXT = "nothing yet: the ranks are starting"
# In the provenance: seconds from the launch to the ranks' facts.
STARTUP_SECONDS_KEY = "start_seconds"
HEARTBEAT_TIMEOUT_S = 30.0  # seconds without a heartbeat after which a host counts as lost


@dataclass(frozen=True)
class ProbeProgress:
    """The progress of a probe, in seconds; `remaining` is at most what the budget leaves."""

    done: int
    total: int
    elapsed: float
    remaining: float
    text: str

    @property
    def fraction(self) -> float:
        """The fraction of the time that has passed.

        The number of points says little, as those of a missing GPU take no time.
        """
        whole = self.elapsed + self.remaining
        return self.elapsed / whole if whole else 0.0


class ProbeMonitor:
    """A monitor of one launch or several.

    environment     what the ranks of the latest launch reported about themselves
    notes           sentences that the ranks reported
    skipped_keys    keys of points for which there was no time
    reasons         point, or point and candidate -> why there are no samples of it
    earlier_seconds seconds that an earlier run took, which this one continues
    earlier_points  points of that run
    """

    def __init__(
        self,
        plan: ProbePlan,
        budget: float,
        on_progress: Callable[[ProbeProgress], None],
        earlier_seconds: float = 0.0,
        earlier_points: int = 0,
    ) -> None:
        self.budget = budget  # seconds of the current launch
        self.current_point = ""
        self.finished_points = 0  # points of the current launch
        self.later_plan = plan  # what launches after the current one measure
        self.environment: dict[str, Any] = {}
        self.notes: list[str] = []
        self.skipped_keys: list[list[Any]] = []
        self.reasons: dict[str, str] = {}
        self.fatal: set[tuple[str, str]] = set()  # collective and candidate that ended the ranks
        self._trials: set[tuple[str, str]] = set()  # calls without data that are being made
        self._last_heartbeats: dict[str, float] = {}  # time by host
        self._partial_line = ""  # a report that a heartbeat interrupted
        self._seconds_per_weight = budget / plan.total_weight if plan.points else 0.0
        self._deadline = 0.0  # of all launches; 0: no launch has begun
        self._startup_seconds = 0.0  # seconds from the start of a launch to its first point
        self._total = earlier_points + len(plan.points)
        self._launch_points = 0  # of the current launch
        self._min_remaining = math.inf  # smallest remaining time reported so far
        self._begin = time.monotonic()
        self._launched = self._begin
        self._on_progress, self._earlier_seconds = on_progress, earlier_seconds

    def start(self, plan: ProbePlan) -> None:
        """Begin a launch that is to measure `plan`, with its share of the remaining time."""
        now, weight = time.monotonic(), plan.total_weight + self.later_plan.total_weight
        if not self._deadline:
            self._deadline = now + self._seconds_per_weight * weight
        share = (self._deadline - now) * plan.total_weight / weight if weight else 0.0
        self.budget = max(share - self._startup_seconds, MIN_LAUNCH_S)
        self.current_point = STARTING_TEXT
        self.finished_points = 0
        self._last_heartbeats, self._partial_line = {}, ""
        self._trials = set()
        self._launch_points = len(plan.points)
        self._launched = now
        self._report_progress(self.current_point)

    @property
    def time_limit(self) -> float:
        """Return the maximum seconds that the current launch may measure: all remaining time."""
        return max(self._deadline - self._launched - self._startup_seconds, self.budget)

    def skip_if_out_of_time(self, plan: ProbePlan) -> bool:
        """Return whether the time is spent before the ranks could measure any of `plan`.

        Its points are then recorded as skipped.
        """
        spent = (
            bool(self._deadline)
            and time.monotonic() + self._startup_seconds + MIN_LAUNCH_S > self._deadline
        )
        if spent:
            self.skipped_keys += [list(point.key) for point in plan.points]
        return spent

    def note_death(self, plan: ProbePlan) -> bool:
        """Note which candidates of a plan ended the ranks in calls without data, if any."""
        for point in plan.points:
            for candidate in point.candidates:
                if (point.subject, candidate.name) in self._trials:
                    name = f"{point}: {candidate.name}"
                    self.reasons[name] = ENDS_PROGRAM
                    self._report_progress(f"left out: {name}: {ENDS_PROGRAM}")
        self.fatal |= self._trials
        return bool(self._trials)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._begin

    def handle_line(self, text: str) -> float | None:
        """Handle one line of the ranks' output.

        Returns the seconds for which the ranks may be silent after it, None if it has no report of
        theirs. Other text, such as a banner or a library's warning, is ignored, also when it shares
        the line with reports. Raises ProbeError when a host has fallen silent.
        """
        signs = HEARTBEAT_PATTERN.findall(text)
        text = self._partial_line + HEARTBEAT_PATTERN.sub("", text)
        self._partial_line = ""
        spoke = None
        while (place := text.find(EVENT_PREFIX)) >= 0:
            try:
                event, length = json.JSONDecoder().raw_decode(text[place:])
            except ValueError:  # other output interrupted the report
                if signs:
                    break
                length = len(EVENT_PREFIX)
            else:
                self._handle_event(event)
                spoke = SILENCE_TIMEOUT_S
            text = text[place + length :]
        if signs:  # from other ranks than the reports, so possibly within a report that continues
            self._partial_line = text
        for name in signs:
            self._record_heartbeat(json.loads(name))
        return spoke

    def _record_heartbeat(self, host: str) -> None:
        """Record a heartbeat; raise ProbeError if another host has been silent for too long.

        If no host was heard of for a while, this program was not listening, and all hosts are
        taken to be alive.
        """
        now = time.monotonic()
        if now > max(self._last_heartbeats.values(), default=now) + HEARTBEAT_TIMEOUT_S / 2:
            self._last_heartbeats = dict.fromkeys(self._last_heartbeats, now)
        self._last_heartbeats[host] = now
        if self.describe_unresponsive_hosts(HEARTBEAT_TIMEOUT_S):
            raise ProbeError(
                self.describe_unresponsive_hosts(
                    HEARTBEAT_TIMEOUT_S - heartbeat.HEARTBEAT_INTERVAL_S
                )
            )

    def describe_unresponsive_hosts(self, seconds: float) -> str:
        """Return a sentence on hosts silent for `seconds` while others were heard; "" if none."""
        latest = max(self._last_heartbeats.values(), default=0.0)
        lost = [name for name, at in self._last_heartbeats.items() if latest > at + seconds]
        if len(lost) > 1:
            return (
                f"hosts {format_hosts(lost)} stopped answering: look after them and the network, or"
                " leave them out of --hosts"
            )
        return "".join(
            f"host {name} stopped answering: look after it, or leave it out of --hosts"
            for name in lost
        )

    def _handle_event(self, event: dict[str, Any]) -> None:
        known = {name: value for name, value in event.items() if name != "event"}
        if event["event"] == "excluded":
            name = f"{event['point']}: {event['candidate']}"
            self.reasons[name] = event["why"]
            self._report_progress(f"left out: {name}: {event['why']}")
        elif event["event"] == "trial":
            trial = (event["subject"], event["candidate"])
            (self._trials.discard if event["survived"] else self._trials.add)(trial)
        elif event["event"] == "begin":
            if self.current_point == STARTING_TEXT:
                self._startup_seconds = time.monotonic() - self._launched
            self.current_point = event["point"]
            self._report_progress(self.current_point)
        elif event["event"] == "done":
            self.finished_points = event["points"]
        elif event["event"] == "facts":
            started = round(time.monotonic() - self._launched, 3)
            self.environment = {STARTUP_SECONDS_KEY: started, **self.environment, **known}
        elif event["event"] == "note" and event["text"] not in self.notes:
            self.notes.append(event["text"])
        elif event["event"] == "lacking":
            self.reasons[event["point"]] = event["why"]
        elif event["event"] == "left_out":
            self.skipped_keys.append(event["key"])

    def _report_progress(self, text: str) -> None:
        left = self._launch_points - self.finished_points + len(self.later_plan.points)
        done = self._total - left
        elapsed = self._earlier_seconds + self.elapsed
        self._on_progress(
            ProbeProgress(done, self._total, elapsed, self._estimate_remaining(), text)
        )

    def _estimate_remaining(self) -> float:
        """Return the seconds that remain, which never grow.

        Time that points leave unused is dealt out again, and a repeated launch has more time than
        it reports.
        """
        self._min_remaining = min(self._min_remaining, max(self._deadline - time.monotonic(), 0.0))
        return self._min_remaining


def forward_progress(report: StageCallback) -> Callable[[ProbeProgress], None]:
    """Return a callback that passes the progress of a probe on to `report`."""

    def tell(progress: ProbeProgress) -> None:
        report(progress.fraction, progress.remaining, progress.text)

    return tell
