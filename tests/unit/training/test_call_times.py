"""Times of calls: each signature once, and sizes between powers of two."""

from __future__ import annotations

import pytest

from tuner.base.errors import InputError
from tuner.machines.loader import load_machine
from tuner.topology import Placement
from tuner.training.call_times import CallTimes, TimedAlgorithm
from tuner.training.groups import Call, Group


class Counted:
    """A policy that counts how often it is asked; a call takes a nanosecond per byte."""

    def __init__(self) -> None:
        self.asked = 0

    def choose(self, call: Call, times: CallTimes) -> TimedAlgorithm:
        self.asked += 1
        return TimedAlgorithm("own", call.nbytes * 1e-9)


@pytest.fixture(name="times", scope="module")
def times_on_a_dgx(tmp_path_factory: pytest.TempPathFactory) -> CallTimes:
    machine = load_machine("preset:dgx-1v", tmp_path_factory.mktemp("none"))
    placement = Placement.block(machine.topology, 8, 8)
    return CallTimes(placement, machine.calibration, "cuda", Counted())


def test_calls_of_one_signature_are_chosen_once(times: CallTimes) -> None:
    policy = times.policy
    assert isinstance(policy, Counted)
    before = policy.asked
    for _ in range(3):
        assert times.seconds(Call("allreduce", 1000, times.world)) == pytest.approx(1e-6)
    assert policy.asked == before + 1


def test_a_single_rank_and_no_bytes_take_no_time(times: CallTimes) -> None:
    assert times.seconds(Call("allreduce", 1000, Group(1))) == 0
    assert times.seconds(Call("allreduce", 0, times.world)) == 0


def test_sizes_between_powers_of_two_are_on_the_line(
    times: CallTimes, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated: list[int] = []

    def simulate(call: Call, *_: object) -> float:
        simulated.append(call.nbytes)
        return float(call.nbytes**2)

    monkeypatch.setattr("tuner.training.call_times.simulate_groups", simulate)
    found = [times.seconds(Call("send", nbytes, times.world)) for nbytes in (64, 96, 112)]
    assert found == [64**2, (64**2 + 128**2) / 2, (64**2 + 3 * 128**2) / 4]
    assert simulated == [64, 128]


def test_shapes_of_groups(times: CallTimes) -> None:
    assert times.shape(times.world) == (1, 8)
    assert times.shape(Group(4, 2)) == (1, 4)
    with pytest.raises(InputError, match="8 ranks cannot be divided"):
        times.shape(Group(3))
