"""The emulated network is the one asked for: rates, latencies, shared links, no losses."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

import pytest

from tests.conftest import ROOT
from tests.support.waiting import patience
from tuner.emulation import EmulatedCluster
from tuner.emulation.counters import Counters
from tuner.emulation.namespaces import ip_address

HEADERS = 14 + 20 + 8  # bytes of Ethernet, IP and UDP around a datagram
ON_THE_WIRE = 9014 / (9014 - 66)  # a full frame over what it holds of a TCP stream
SOON = 1.0  # s in which programs that begin together are ready


def program(
    cluster: EmulatedCluster, name: str, a: int, b: int, *words: object
) -> subprocess.Popen[str]:
    hosts = [f"{cluster.cluster_id}-{cluster.network.hosts[number]}" for number in (a, b)]
    command = [sys.executable, "-m", f"tests.emulation.programs.{name}", *hosts, ip_address(b)]
    return subprocess.Popen(
        [*command, *map(str, words)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def seconds(running: subprocess.Popen[str]) -> list[float]:
    text = running.communicate(timeout=patience())[0]
    assert running.returncode == 0
    return [float(value) for value in json.loads(text)]


def counters(cluster: EmulatedCluster) -> Counters:
    found = cluster.status().counters
    assert found is not None
    return found


@pytest.mark.parametrize("nbytes", [8, 8000])
def test_datagrams_take_latency_and_bytes_over_rate(flat: EmulatedCluster, nbytes: int) -> None:
    took = statistics.median(seconds(program(flat, "datagrams", 0, 1, nbytes, 200)))
    latency = took - (HEADERS + nbytes) / flat.network.capacity(0, 1)
    # Cutting 8000 bytes into frames and putting them together takes a slow core 12 us.
    assert latency == pytest.approx(flat.network.latency(0, 1), rel=0.1)


def test_latencies_add_up_and_the_slowest_link_counts(racks: EmulatedCluster) -> None:
    took = statistics.median(seconds(program(racks, "datagrams", 0, 2, 8000, 200)))
    assert racks.network.latency(0, 2) == pytest.approx(500e-6)
    assert took - (HEADERS + 8000) / 5e6 == pytest.approx(500e-6, rel=0.05)


@pytest.mark.parametrize(("a", "b", "rate"), [(0, 1, 10e6), (0, 2, 5e6)])
def test_streams_get_the_rate_of_the_slowest_link(
    racks: EmulatedCluster, a: int, b: int, rate: float
) -> None:
    small, large = 1 << 18, 1 << 20
    took = seconds(program(racks, "streams", a, b, 0, large, *[small, large] * 5))[1:]
    gained = statistics.median(took[1::2]) - statistics.median(took[::2])
    assert 2 * (large - small) * ON_THE_WIRE / gained == pytest.approx(rate, rel=0.02)


def together(cluster: EmulatedCluster, pairs: list[tuple[int, int]], nbytes: int) -> float:
    start = time.monotonic() + SOON
    running = [program(cluster, "streams", a, b, start, nbytes, nbytes) for a, b in pairs]
    return max(sum(seconds(one)) for one in running)


def test_racks_share_their_uplink(racks: EmulatedCluster) -> None:
    nbytes = 1 << 20
    alone = together(racks, [(0, 2)], nbytes)
    assert together(racks, [(0, 2), (1, 3)], nbytes) == pytest.approx(2 * alone, rel=0.1)


def test_pairs_whose_ways_do_not_meet_do_not_disturb_each_other(racks: EmulatedCluster) -> None:
    nbytes = 1 << 20
    alone = together(racks, [(0, 1)], nbytes)
    assert together(racks, [(0, 1), (2, 3)], nbytes) == pytest.approx(alone, rel=0.05)


def test_links_count_what_crossed_them(racks: EmulatedCluster) -> None:
    nbytes, before = 1 << 20, counters(racks)
    seconds(program(racks, "streams", 0, 2, 0, nbytes))
    after = counters(racks)

    def carried(source: str, target: str) -> int:
        return after.nbytes(source, target) - before.nbytes(source, target)

    there = {carried("a", "left"), carried("left", "right"), carried("right", "c")}
    assert len(there) == 1
    assert nbytes < there.pop() < 1.03 * nbytes
    assert carried("b", "left") == carried("right", "d") == 0


def test_nothing_is_lost_or_sent_twice(racks: EmulatedCluster) -> None:
    together(racks, [(0, 2), (1, 3), (2, 1), (3, 0)], 1 << 20)
    assert counters(racks).dropped_frames == 0
    for host in racks.network.hosts:
        shown = ["ip", "netns", "exec", f"{racks.cluster_id}-{host}", "cat", "/proc/net/snmp"]
        text = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
        names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
        assert values[names.index("RetransSegs")] == "0"
