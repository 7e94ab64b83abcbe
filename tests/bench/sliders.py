"""Time from moving a slider of the page "What if" to its curves:

    python -m tests.bench.sliders [--machine NAME] [--axis NAME] [--repeats N] [--longest S] TREE...

`tuner serve` is started from every TREE (default: this checkout) with a new database. 64 nodes like
those of a DGX H100, and of Summit, are moved along every axis of the page to the value before and
the value after their own, in every TREE in turn. As a slider does, each move passes over another
value, which is given up after PASSED_S, and begins with the schedules that led the answer before.
Prints, for each axis, medians and maxima of the seconds to a time at every size (the first curves),
the processor time that all processes of the service take for an answer, in the median,
and to the end of the answer, for which 8 s are waited, or `--longest`.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from tests.bench.service_start import processor_seconds, tree_of
from tests.conftest import ROOT
from tuner.cli.terminal.output import print_table

MACHINES = {"dgx-h100": "preset:dgx-h100", "summit": "preset:summit"}
NODES = 64
SIZES = [4 << power for power in range(27)]  # those of the page
# What is wanted.
FIRST_S = 0.3
COMPLETE_S = 3.0
PASSED_S = 1.0  # a slider stays so long at a value on its way
AROUND: Mapping[str, tuple[Any, ...]] = {  # values of axes; the machine's own is left out
    "nodes": (NODES // 2, NODES * 2),
    "bandwidth": ("100Gb/s", "200Gb/s"),
    "latency": ("1us", "8us"),
    "taper": (2, 3),
    "gpu": ("A100", "V100"),
    "memory": ("host", "cuda"),
    "placement": ("consecutive", "cyclic"),
    "uplink_bandwidth": ("100Gb/s", "200Gb/s"),
    "uplink_latency": ("0.5us", "1us"),
}
Question = dict[str, Any]


@dataclass
class Answer:
    """An answer as far as it has been read, with times.

    seconds     at each size and algorithm, with the label of the schedule that is the fastest
    """

    first: float = float("inf")
    complete: float = float("inf")
    processor: float = float("inf")
    seconds: dict[int, dict[str, tuple[float, str]]] = field(default_factory=dict)

    def leaders(self) -> list[str]:
        """Return labels of the fastest schedules, as the page sends them."""
        return sorted({min(found.values())[1] for found in self.seconds.values()})

    def add(self, task: Mapping[str, Any]) -> None:
        """Take the times of a schedule into account."""
        for size, seconds in zip(task["sizes"], task["seconds"], strict=True):
            found = self.seconds.setdefault(size, {})
            if seconds and seconds < found.get(task["algorithm"], (float("inf"), ""))[0]:
                found[task["algorithm"]] = seconds, task["label"]


def ask(service: Service, question: Question, first: list[str], longest: float) -> Answer:
    """Ask and read for so many seconds at most, then close the connection."""
    answer, before, begun = Answer(), service.processor_seconds(), time.monotonic()
    with service.client.stream(
        "POST", "/v1/what-if", json={**question, "first": first}
    ) as response:
        for line in map(json.loads, response.iter_lines()):
            waited = time.monotonic() - begun
            if line["kind"] == "problem":
                raise SystemExit(f"{question['axes']}: {line['detail']}")
            for task in line.get("tasks", ()):
                answer.add(task)
            if len(answer.seconds) == len(SIZES):
                answer.first = min(answer.first, waited)
            if line["kind"] == "end":
                answer.complete = waited
                answer.processor = service.processor_seconds() - before
            if waited > longest:
                break
    return answer


@dataclass
class Service:
    """A running `tuner serve`."""

    pid: int
    client: httpx.Client

    def processor_seconds(self) -> float:
        """Return the processor time of all its processes that still run."""
        return sum(map(processor_seconds, tree_of(self.pid)))


def values(machine: Mapping[str, Any], axis: str) -> list[Any]:
    """Return the values to move an axis to."""
    if axis in ("ppn", "nics"):
        own = machine[axis]
        return [own // 2, own * 2] if own > 1 else [2, 4]
    own = {"gpu": machine["gpu"], "memory": machine["memory"], "placement": "consecutive"}
    return [value for value in AROUND[axis] if value != own.get(axis)]


def moves(service: Service, name: str) -> Iterator[tuple[str, Question, Question]]:
    """Yield the axis, the question on the way and that of the value, for every move."""
    machine, here = describe(service, name), base(service, name)
    for axis in machine["axes"]:
        for value in values(machine, axis):
            on_the_way = {axis: value, "latency": "2us"}
            passed = {**here, "axes": {**here["axes"], **on_the_way}}
            yield axis, passed, {**here, "axes": {**here["axes"], axis: value}}


def describe(service: Service, name: str) -> dict[str, Any]:
    """Return a machine's axes and its own values on them."""
    found: dict[str, Any] = service.client.get(
        "/v1/what-if/machine", params={"topology": MACHINES[name]}
    ).json()
    return found


def base(service: Service, name: str) -> Question:
    """Return the question from which the axes are moved."""
    machine = describe(service, name)
    axes = {"nodes": NODES, "ppn": machine["ppn"]}
    without = {"without": ["configured"]} if machine["configured"] else {}
    question = {"topology": MACHINES[name], "collective": "allreduce", "sizes": SIZES}
    return {**question, "axes": axes, **without}


def row(name: str, axis: str, tree: str, found: list[Answer]) -> tuple[str, ...]:
    """Return the line of one axis; an answer that was not waited for took infinitely long."""
    first, complete = [one.first for one in found], [one.complete for one in found]
    met = max(first) <= FIRST_S and max(complete) <= COMPLETE_S
    spent = median(one.processor for one in found)
    columns = (median(first), max(first), median(complete), max(complete), spent)
    shown = [f"{each:.2f}" for each in columns]
    return name, axis, tree, *shown, "met" if met else "MISSED"


@contextmanager
def serving_tree(tree: Path, folder: str) -> Iterator[Service]:
    """Yield the `tuner serve` of a checkout, which ends with the block."""
    words = ("-P", "-m", "tuner", "serve", "--port", "0", "--no-jobs")
    service = subprocess.Popen(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert service.stdout is not None
        said = service.stdout.readline()
        address = next(word for word in said.split() if word.startswith("http")).strip(";")
        with httpx.Client(base_url=address, timeout=600.0, trust_env=False) as client:
            yield Service(service.pid, client)
    finally:
        service.send_signal(signal.SIGINT)
        service.communicate()


def measure(
    trees: list[Path], name: str, only: str, longest: float
) -> dict[tuple[str, str], list[Answer]]:
    """Move every axis of a machine, in a new service of each tree in turn; return the answers."""
    found = defaultdict[tuple[str, str], list[Answer]](list)
    with ExitStack() as stack:
        folders = [stack.enter_context(tempfile.TemporaryDirectory()) for _ in trees]
        services = {
            str(tree): stack.enter_context(serving_tree(tree.resolve(), folder))
            for tree, folder in zip(trees, folders, strict=True)
        }
        start = {tree: ask(one, base(one, name), [], 600.0) for tree, one in services.items()}
        for axis, passed, question in moves(services[str(trees[0])], name):
            for tree, service in services.items() if only in ("", axis) else ():
                leaders = start[tree].leaders()
                ask(service, passed, leaders, PASSED_S)
                found[axis, tree].append(ask(service, question, leaders, longest))
    return found


def run(trees: list[Path], name: str, only: str, repeats: int, longest: float) -> None:
    """Measure a machine some times and print the table."""
    found = defaultdict[tuple[str, str], list[Answer]](list)
    for _ in range(repeats):
        for key, answers in measure(trees, name, only, longest).items():
            found[key] += answers
    columns = ("first s", "longest", "complete s", "longest ", "processor s", "")
    rows = [row(name, axis, tree, answers) for (axis, tree), answers in found.items()]
    print_table("", ("machine", "axis", "tree", *columns), rows, right=columns[:5])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--machine", choices=list(MACHINES), action="append")
    parser.add_argument("--axis", default="")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--longest", type=float, default=8.0)
    parser.add_argument("trees", nargs="*", type=Path, default=[ROOT])
    asked = parser.parse_args()
    for name in asked.machine or MACHINES:
        run(asked.trees, name, asked.axis, asked.repeats, asked.longest)
