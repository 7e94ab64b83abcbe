"""Calibration of clusters: the simulator gives back what was measured on a simulated machine."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.support.probed import LIMIT, LONG, OVERHEAD, RATE, SHORT, UPLINK, Machine, racks, truth
from tuner.base.errors import InputError
from tuner.calibrate import calibrate
from tuner.calibrate.drift import compare_calibrations
from tuner.core.calibration import Calibration, Estimate, PathCost
from tuner.core.measurement import Measurement
from tuner.core.speedup import LAUNCH_RELATIVE_SD

pytestmark = pytest.mark.slow

RACKS = racks(4)
MACHINE = Machine(RACKS, truth())
ACROSS = [(0, 4), (1, 5), (2, 6), (3, 7)]
BETWEEN = (64, 3000, 20_000, 100_000, 700_000)  # sizes that nobody measured
EXCHANGED = (8, 1024, 4096, 16384, 2**16, 2**18, 2**19, 2**20)


@pytest.fixture(scope="module")
def near() -> Calibration:
    """From one pair of one rack."""
    return calibrate(MACHINE.measured(MACHINE.messages()), RACKS)


def test_rate_and_latency_come_back(near: Calibration) -> None:
    path = near.path_cost("network")
    assert [segment.start_bytes for segment in path.segments] == [0.0, LIMIT]
    for segment, (alpha, beta) in zip(path.segments, (SHORT, LONG), strict=True):
        assert segment.beta.value == pytest.approx(beta, rel=0.02)
        assert segment.alpha.value == pytest.approx(alpha, rel=0.05)
    assert path.overhead.value == pytest.approx(OVERHEAD, rel=0.2)
    assert path.eager_limit == LIMIT


@pytest.mark.parametrize("hosts", [[0, 1], [2, 3], [0, 4]])
def test_the_simulator_gives_back_what_was_measured_at_any_distance(
    near: Calibration, hosts: list[int]
) -> None:
    fitted = replace(MACHINE, calibration=near)
    for nbytes in BETWEEN:
        assert fitted.one_way(hosts, nbytes) == pytest.approx(
            MACHINE.one_way(hosts, nbytes), rel=0.02
        )


def test_without_the_topology_the_latency_of_the_links_stays_in() -> None:
    whole = calibrate(MACHINE.measured(MACHINE.messages())).path_cost("network")
    assert whole.segments[0].alpha.value == pytest.approx(SHORT[0] + 1e-4, rel=0.05)


def slower(machine: Machine) -> Machine:
    """Across racks every byte takes 3 % longer than the links say: headers of another network."""
    dear = truth().path_cost("network")
    segments = tuple(
        replace(s, alpha=Estimate.exact(s.alpha.value + 2.5e-4), beta=Estimate.exact(1 / 6.0e6))
        for s in dear.segments
    )
    name = "4 links, 200us, 6.25e+06B/s"
    paths = {**machine.calibration.paths, (name, "host"): replace(dear, segments=segments)}
    return replace(machine, calibration=replace(machine.calibration, paths=paths))


@pytest.mark.parametrize("how", ["uplink", "sweep"])
def test_distances_that_were_measured_have_prices_of_their_own(how: str) -> None:
    machine = slower(MACHINE)
    parts = machine.crowds("uplink", ACROSS[:1]) if how == "uplink" else machine.sweep()
    found = calibrate(machine.measured(machine.messages(), parts), RACKS)
    fitted = replace(machine, calibration=found)
    for hosts in ([0, 1], [1, 6]):
        for nbytes in BETWEEN:
            truth = machine.one_way(hosts, nbytes)
            assert fitted.one_way(hosts, nbytes) == pytest.approx(truth, rel=0.03)
    assert {path for path, _ in found.paths} == {
        "network",
        "2 links, 100us, 1.25e+07B/s",
        "4 links, 200us, 6.25e+06B/s",
    }


def test_an_uplink_that_pairs_share_has_its_capacity() -> None:
    found = calibrate(MACHINE.measured(MACHINE.messages(), MACHINE.crowds("uplink", ACROSS)), RACKS)
    assert found.capacities["uplink"].value == pytest.approx(UPLINK, rel=0.02)
    assert found.capacities["uplink"].low <= UPLINK <= found.capacities["uplink"].high


def test_pairs_with_room_for_all_say_only_how_much_there_is_at_least() -> None:
    wide = Machine(racks(4, uplink=8 * RATE), truth())
    found = calibrate(wide.measured(wide.messages(), wide.crowds("uplink", ACROSS)), wide.topology)
    assert "uplink" not in found.capacities
    assert any(
        gap.startswith("capacity uplink: 4 pairs did not")
        for gap in found.provenance["undetermined"]
    )


def test_one_size_far_off_changes_nothing_and_is_named(near: Calibration) -> None:
    series = [
        replace(one, samples=tuple(3 * t for t in one.samples))
        if (one.kind, one.nbytes) == ("pingpong", 8192)
        else one
        for one in MACHINE.messages()
    ]
    found = calibrate(MACHINE.measured(iter(series)), RACKS)
    assert len(found.path_cost("network").segments) == 2
    for nbytes in BETWEEN:
        assert found.path_cost("network").seconds(nbytes) == pytest.approx(
            near.path_cost("network").seconds(nbytes), rel=0.02
        )
    assert found.provenance["fit"][0]["outliers"] == [8192]
    assert near.provenance["fit"][0]["outliers"] == []


@pytest.mark.weekly
@pytest.mark.parametrize(("drift", "launches"), [(LAUNCH_RELATIVE_SD, 1), (0.02, 4)])
def test_intervals_hold_the_truth(drift: float, launches: int) -> None:
    held = []
    for seed in range(25):
        machine = replace(MACHINE, seed=seed, drift=drift, launches=launches, samples=12)
        path = calibrate(machine.measured(machine.messages()), RACKS).path_cost("network")
        pairs = zip(path.segments, (SHORT, LONG), strict=True)
        held += [
            estimate.low <= value <= estimate.high
            for segment, (alpha, beta) in pairs
            for estimate, value in ((segment.alpha, alpha), (segment.beta, beta))
        ]
    assert np.mean(held) >= 0.9


def test_sentinels_widen_the_intervals_by_how_much_the_machine_wandered() -> None:
    def width(spread: float) -> float:
        sentinels = [
            one
            for number in range(8)
            for one in MACHINE.series(
                "sentinel", "network", 2, 8192, 1e-3 * (1 + spread * (-1) ** number), of=number
            )
        ]
        found = calibrate(MACHINE.measured(MACHINE.messages(), iter(sentinels)), RACKS)
        beta = found.path_cost("network").segments[-1].beta
        return (beta.high - beta.low) / beta.value

    assert width(0.0) == pytest.approx(4 * LAUNCH_RELATIVE_SD, rel=0.4)  # of the only launch
    assert width(0.05) == pytest.approx(4 * 0.05, rel=0.4)


def test_hosts_that_are_not_on_the_topology_are_refused() -> None:
    measured = MACHINE.measured(MACHINE.messages())
    stranger = replace(measured, provenance={"hosts": ["n0", "other"]})
    with pytest.raises(InputError, match="has no node other"):
        calibrate(stranger, RACKS)
    by_number = replace(measured, provenance={"hosts": ["a", "b"]})
    assert calibrate(by_number, RACKS).paths == calibrate(measured, RACKS).paths


def test_links_slower_to_reach_than_any_message_are_named() -> None:
    slow = replace(RACKS, links=tuple(replace(link, latency=1e-3) for link in RACKS.links))
    found = calibrate(MACHINE.measured(MACHINE.messages()), slow)
    assert any("correct the topology" in gap for gap in found.provenance["undetermined"])


def test_links_slower_than_messages_are_named(near: Calibration) -> None:
    half = replace(RACKS, links=tuple(replace(link, capacity=RATE / 2) for link in RACKS.links))
    found = calibrate(MACHINE.measured(MACHINE.messages()), half)
    assert any("links move 6.25e+06 B/s" in gap for gap in found.provenance["undetermined"])
    assert not any("links move" in gap for gap in near.provenance["undetermined"])


def test_drift_shows_only_what_changed() -> None:
    slow = truth().path_cost("network")
    segments = (
        slow.segments[0],
        replace(slow.segments[1], beta=Estimate.exact(1.1 * slow.segments[1].beta.value)),
    )
    paths = {**truth().paths, ("network", "host"): replace(slow, segments=segments)}
    later = Machine(RACKS, replace(truth(), paths=paths), seed=5)
    before, after = (calibrate(one.measured(one.messages()), RACKS) for one in (MACHINE, later))
    changed = [change for change in compare_calibrations(before, after) if change.is_significant]
    assert [change.parameter for change in changed] == ["network [60000B, inf): beta"]
    assert changed[0].ratio == pytest.approx(1.1, rel=0.02)
    assert not any(change.is_significant for change in compare_calibrations(before, before))


def test_drift_is_of_one_cluster() -> None:
    with pytest.raises(InputError, match="compare two of one cluster"):
        compare_calibrations(truth(), replace(truth(), cluster="other"))
    other = replace(truth(), library="mpich 5.0.2")
    with pytest.raises(InputError, match="compare two of one library"):
        compare_calibrations(truth(), other)


def test_what_only_one_probe_measured_is_no_drift() -> None:
    more = replace(truth(), capacities={"nic": Estimate.exact(1e9)})
    found = {change.parameter: change for change in compare_calibrations(truth(), more)}
    assert found["capacity nic"].before is None
    assert not found["capacity nic"].is_significant


@pytest.mark.parametrize("ring", [0, 1])
def test_messages_that_meet_others_have_prices_of_their_own(ring: int) -> None:
    """Twice as long face to face, 1.3 times round a circle; eager ones as alone."""
    name, factor = (("exchange", 2.0), ("ring", 1.3))[ring]
    met = Machine(RACKS, meeting(name, factor))
    rows = [
        one
        for nbytes in EXCHANGED
        for count in (1, 5)
        for one in met.series(
            "exchange", "network", 8, nbytes, met.rows(nbytes, count, ring), rows=count, ring=ring
        )
    ]
    found = calibrate(met.measured(met.messages(), iter(rows)), RACKS)
    assert {"exchange", "ring"} & {path for path, _ in found.paths} == {name}
    fitted = replace(met, calibration=found)
    for nbytes in BETWEEN:
        assert fitted.rows(nbytes, 3, ring) == pytest.approx(met.rows(nbytes, 3, ring), rel=0.03)
    (gap,) = [gap for gap in found.provenance["undetermined"] if "rows of exchanges" in gap]
    assert name not in gap.partition(":")[0]


def per_byte(cost: PathCost) -> float:
    last = cost.segments[-1]
    return last.beta.value + last.latency_per_byte.value


def test_rows_whose_partners_change_count_before_those_that_keep_in_step() -> None:
    """Files of earlier probes have the latter, merged ones both."""
    met, plain = Machine(RACKS, meeting("exchange", 2.0)), MACHINE
    rows = [
        one
        for nbytes in EXCHANGED
        for count in (1, 5)
        for machine, turns in ((met, {"turns": 1}), (plain, {}))
        for one in machine.series(
            "exchange",
            "network",
            8,
            nbytes,
            machine.rows(nbytes, count, 0),
            rows=count,
            ring=0,
            **turns,
        )
    ]
    found = calibrate(met.measured(met.messages(), iter(rows)), RACKS).path_cost("exchange")
    assert per_byte(found) == pytest.approx(2 * LONG[1], rel=0.03)


def exchanges(machine: Machine, ring: int, nodes: int, **near: int) -> list[Measurement]:
    """Single ones and five in a row, of the first `nodes` hosts."""
    params = {"ring": 1, **near} if ring else {"turns": 1, **near}
    return [
        one
        for nbytes in EXCHANGED
        for count in (1, 5)
        for seconds in [machine.rows(nbytes, count, ring, nodes)]
        for one in machine.series(
            "exchange", "network", nodes, nbytes, seconds, rows=count, **params
        )
    ]


def test_what_an_exchange_takes_longer_keeps_no_port_busy() -> None:
    """On a link that others use the wait for an answer comes on top of what sharing takes."""
    met = Machine(RACKS, meeting("exchange", 2.0))
    found = calibrate(met.measured(met.messages(), iter(exchanges(met, 0, 4, near=1))), RACKS)
    last = found.path_cost("exchange").segments[-1]
    assert last.beta.value == pytest.approx(LONG[1], rel=0.03)
    assert last.latency_per_byte.value == pytest.approx(LONG[1], rel=0.05)
    for one in (last.beta, last.latency_per_byte):
        assert one.low <= one.value <= one.high


@pytest.mark.parametrize("ring", [0, 1])
def test_exchanges_of_near_hosts_are_not_slowed_by_uplinks(ring: int) -> None:
    """They count before exchanges of all hosts, which share the slower links between the racks."""
    name, factor = (("exchange", 2.0), ("ring", 1.3))[ring]
    met = Machine(RACKS, meeting(name, factor))
    of_all, of_near = exchanges(met, ring, 8), exchanges(met, ring, 4, near=1)
    both = calibrate(met.measured(met.messages(), iter([*of_all, *of_near])), RACKS)
    assert per_byte(both.path_cost(name)) == pytest.approx(factor * LONG[1], rel=0.03)
    fitted = replace(met, calibration=both)
    for nbytes in BETWEEN:
        seconds = fitted.rows(nbytes, 3, ring, 4)
        assert seconds == pytest.approx(met.rows(nbytes, 3, ring, 4), rel=0.03)
    wide = replace(met, calibration=calibrate(met.measured(met.messages(), iter(of_all)), RACKS))
    slower = wide.rows(700_000, 3, ring, 4) / met.rows(700_000, 3, ring, 4)
    assert slower > 1.3 if ring else slower == pytest.approx(1.0, rel=0.03)  # pairs stay in a rack


def pairs_at_once(machine: Machine, slower: float = 1.0, more: float = 0.0) -> list[Measurement]:
    """Exchanges of the first two hosts alone, that much slower, and so many seconds more."""
    return [
        one
        for nbytes in (8, 128, 256, 1024, 2048, *EXCHANGED[3:])
        for one in machine.series(
            "exchange", "network", 2, nbytes, machine.rows(nbytes, 1, 0, 2) * slower + more
        )
    ]


def acknowledging(begin: float) -> Machine:
    """Its senders wait for acknowledgements from `begin` bytes on."""
    price = replace(truth().path_cost("network"), sync_ack_threshold=begin)
    return replace(MACHINE, calibration=replace(truth(), paths={("network", "host"): price}))


def test_exchanges_show_who_waits_for_an_acknowledgement() -> None:
    told = acknowledging(200)
    rings = [
        one
        for nbytes in EXCHANGED
        for count in (1, 5)
        for one in told.series(
            "exchange", "network", 8, nbytes, told.rows(nbytes, count, 1), rows=count, ring=1
        )
    ]
    found = calibrate(told.measured(told.messages(), iter([*pairs_at_once(told), *rings])), RACKS)
    assert 128 < found.path_cost("network").sync_ack_threshold < 256
    assert (
        found.path_cost("ring").sync_ack_threshold == found.path_cost("network").sync_ack_threshold
    )
    again = replace(told, calibration=found)
    for nbytes in (2000, 20_000):
        assert again.rows(nbytes, 3, 1) == pytest.approx(told.rows(nbytes, 3, 1), rel=0.03)
        assert again.rows(nbytes, 3, 1) > 1.1 * MACHINE.rows(nbytes, 3, 1)


@pytest.mark.parametrize(
    ("late", "limit"),
    [
        ({2**16: 0.1, 2**18: 0.1}, math.inf),
        ({2**16: 0.1, 2**18: 0.8}, 2.0**17),
        ({2**16: 1.0, 2**18: 1.0}, 0.0),
        ({2**16: 1.0, 2**18: 0.1}, 0.0),  # contradicts itself
        ({}, 0.0),
    ],
)
def test_who_asks_late_shows_what_is_sent_ahead(late: dict[int, float], limit: float) -> None:
    """Parts of a message's time that a receive takes which came late."""
    asked = [
        one
        for nbytes, part in late.items()
        for one in MACHINE.series(
            "ahead", "network", 2, nbytes, part * MACHINE.one_way([0, 1], nbytes)
        )
    ]
    found = calibrate(MACHINE.measured(MACHINE.messages(), iter(asked)), RACKS)
    assert found.path_cost("network").early_push_limit == pytest.approx(limit)


@pytest.mark.parametrize(
    "measured",
    [
        lambda: pairs_at_once(MACHINE),
        lambda: pairs_at_once(MACHINE, 1.15),  # half-duplex, say: longer by no latency
        lambda: pairs_at_once(acknowledging(200), 3.0),  # by more than one
        lambda: [
            *pairs_at_once(MACHINE, 1, 6e-5),
            *MACHINE.series("call", "null", 1, 0, 3e-5),
        ],  # two calls
    ],
    ids=["as usual", "half-duplex", "longer", "two calls"],
)
def test_what_takes_longer_for_another_reason_is_no_acknowledgement(
    measured: Callable[[], list[Measurement]],
) -> None:
    whole = MACHINE.measured(MACHINE.messages(), iter(measured()))
    assert calibrate(whole, RACKS).path_cost("network").sync_ack_threshold == math.inf


def test_who_waits_for_acknowledgements_is_open_without_a_topology_or_exchanges() -> None:
    told = acknowledging(200)
    exchanged = iter(pairs_at_once(told))
    for found in (
        calibrate(told.measured(told.messages(), exchanged)),
        calibrate(told.measured(told.messages()), RACKS),
    ):
        assert found.path_cost("network").sync_ack_threshold == math.inf
        assert any("acknowledgements" in gap for gap in found.provenance["undetermined"])


def test_the_pair_that_exchanged_is_the_nearest_one() -> None:
    """Hosts 0 and 1 may be of different racks, with more latency between them."""
    told = acknowledging(200)
    names = ["n0", "n4", "n1", "n5", "n2", "n6", "n3", "n7"]
    named = [
        replace(one, params={"first": 0, "second": 2}) if one.kind == "pingpong" else one
        for one in told.messages()
    ]
    whole = told.measured(iter(named), iter(pairs_at_once(told)))
    dealt = replace(whole, provenance={**whole.provenance, "hosts": names})
    assert 128 < calibrate(dealt, RACKS).path_cost("network").sync_ack_threshold < 256


def meeting(name: str, factor: float) -> Calibration:
    """Long messages that meet others take `factor` times as long."""
    alone = truth().path_cost("network")
    short, long = alone.segments
    slow = replace(
        long,
        alpha=Estimate.exact(long.alpha.value * factor),
        beta=Estimate.exact(long.beta.value * factor),
    )
    return replace(
        truth(), paths={**truth().paths, (name, "host"): replace(alone, segments=(short, slow))}
    )


def test_the_latency_of_links_is_what_the_software_does_not_take() -> None:
    measured = MACHINE.measured(MACHINE.messages())
    short = MACHINE.one_way([0, 1], 8)
    pairs = [[0.0, 1e-6], [short - 1e-6, 2e-6], [3 * (short - 1e-6), 4e-6]]  # half way: 3 us
    own = {**measured.provenance, "loopback": {"hold_times": pairs, "frame_bytes": 100.0}}
    link = calibrate(replace(measured, provenance=own), RACKS).provenance["links"]["network"]
    frame = 100 / link["bytes_per_second"][0]
    assert link["latency"][0] == pytest.approx(short - 3e-6 - frame, rel=0.02)
    slower = {**measured.provenance, "loopback": {"hold_times": [[0.0, 1.0]], "frame_bytes": 0.0}}
    link = calibrate(replace(measured, provenance=slower), RACKS).provenance["links"]["network"]
    assert link["latency"][0] == pytest.approx(short, rel=0.02)


@pytest.mark.parametrize(
    "damaged",
    [
        [4e-5],
        {"frame_bytes": 100.0},
        {"frame_bytes": 1.0, "hold_times": []},
        {"frame_bytes": 1, "hold_times": [[1]]},
    ],
)
def test_a_damaged_loopback_is_refused(damaged: object) -> None:
    measured = MACHINE.measured(MACHINE.messages())
    about = {**measured.provenance, "loopback": damaged}
    with pytest.raises(InputError, match="loopback is damaged"):
        calibrate(replace(measured, provenance=about), RACKS)
