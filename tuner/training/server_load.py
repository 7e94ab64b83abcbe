"""How many parameter servers a prediction has, and which of them limits it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tuner.base.units import format_time
from tuner.training.call_times import CallTimes
from tuner.training.frameworks.framework_constants import constant_source
from tuner.training.frameworks.parameter_server import (
    BEST,
    NETWORK_STREAM,
    SERVER_STREAM,
    ParameterServer,
)
from tuner.training.iteration import PredictedIteration, make_job
from tuner.training.workload import Workload

RATE, NETWORK = "its rate", "the network"
LONGER = 1.01  # times as long as a server, from which on a link that servers share limits them


@dataclass(frozen=True)
class ServerLoad:
    """The parameter servers of an iteration.

    servers     their number
    is_best     whether that is the number with the shortest iteration of those that were tried
    busiest     number of the server that exchanges tensors for the longest time
    seconds     that time in an iteration
    bound       what bounds its bytes per second: RATE (of the server) or NETWORK (its ports, or
                links on the way)
    shared_link link that carries tensors of several servers for longer than that, "" without one
    """

    servers: int
    is_best: bool
    busiest: int
    seconds: float
    bound: str
    shared_link: str = ""

    def sentence(self, found: PredictedIteration) -> str:
        """Return a sentence for people about an iteration."""
        kind = "best of the numbers tried" if self.is_best else "as given"
        limit = f"; the link {self.shared_link}, which they share, limits them all"
        return (
            f"Parameter servers on {found.ranks} ranks: {self.servers} ({kind}). Server"
            f" {self.busiest} is the busiest: it exchanges tensors for {format_time(self.seconds)}"
            f" of {format_time(found.seconds)}, bounded by {self.bound}"
            f"{limit if self.shared_link else ''}."
        )


def server_load(
    workload: Workload, found: PredictedIteration, times: CallTimes
) -> ServerLoad | None:
    """Return the load of the parameter servers of a prediction; None without any.

    times       times of calls of the prediction, which have its placement
    """
    framework = workload.framework
    if not isinstance(framework, ParameterServer) or found.ranks == 1:
        return None
    job = make_job(workload, found.ranks, times)
    settled = framework.settled(job)
    busy, shared = defaultdict[int, float](float), 0.0
    for one in found.timeline:
        way, _, number = one.stream.rpartition(" server ")
        if way in SERVER_STREAM:
            busy[int(number)] += float(one.end[0] - one.start[0])
        elif one.stream in NETWORK_STREAM:
            shared += float(one.end[0] - one.start[0])
    busiest = max(busy, key=lambda number: busy[number])
    traffic = settled.traffic(job)
    network = max(float(traffic.push[busiest]), float(traffic.pull[busiest]))
    bound = NETWORK if network > settled.senders(job) / settled.rate else RATE
    is_limited = shared > LONGER * busy[busiest]
    return ServerLoad(
        settled.servers,
        framework.servers == BEST,
        busiest,
        busy[busiest],
        bound,
        traffic.shared_link if is_limited else "",
    )


def assumed_rate_warning(workload: Workload) -> str:
    """Return a warning where the rates of parameter servers are defaults, "" otherwise."""
    framework = workload.framework
    if not isinstance(framework, ParameterServer) or workload.ranks[-1] == 1:
        return ""
    names = [name for name in ("rate", "worker_rate") if not getattr(framework, name)]
    if not names:
        return ""
    parts = [f"{name} {constant_source(framework.transport, name)}" for name in names]
    return (
        f"caution: the rates of parameter servers are defaults of {framework.transport}:"
        f" {'; '.join(parts)}; give {' and '.join(names)} as measured"
    )
