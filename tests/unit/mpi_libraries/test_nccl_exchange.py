"""NCCL's all-to-all: measured times, protocols, what bounds it inside nodes and between them."""

from __future__ import annotations

from pathlib import Path
from statistics import median, quantiles

import numpy as np
import pytest

from tests.bench.nccl_curves import EXCHANGES, exchange_bandwidth
from tests.bench.nccl_errors import BANDS, EXCHANGE, error, predictor_of, read_rows
from tuner.base.errors import InputError
from tuner.core.collective import Collective
from tuner.machines import preset, preset_spec, with_gpu
from tuner.machines.model_accuracy import NCCL_ALLTOALL
from tuner.machines.variants import with_fabric
from tuner.mpi_libraries.nccl import NCCL_CHANNELS, AlgoProto, NcclPredictor
from tuner.mpi_libraries.nccl.exchange import (
    CHANNEL_RATES,
    SHARE_OF_LINKS,
    ExchangeLoad,
    exchange_load,
)
from tuner.mpi_libraries.nccl.hardware_bounds import SWITCH_LINKS
from tuner.topology import NIC, Placement, Topology
from tuner.topology.readers.gpu_products import NVLINK_BANDWIDTHS

ALLTOALL = Collective.ALLTOALL
KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
LL, SIMPLE = (AlgoProto("pairwise", name) for name in ("LL", "Simple"))
PRESETS = {"a100_sxm": "dgx-a100", "h100_sxm": "dgx-h100", "b200_sxm": "dgx-b200"}


def predictor(topology: Topology, ppn: int = 8) -> NcclPredictor:
    return NcclPredictor(Placement.block(topology, ppn))


def seconds(of: NcclPredictor, nbytes: int) -> float:
    """Return the predicted time in the protocol that runs."""
    return of.predicted_seconds(ALLTOALL, nbytes)[of.chosen_algo_proto(ALLTOALL, nbytes)]


@pytest.mark.parametrize(
    ("product", "times"),
    [
        ("A100", (15.0, 22.8, 1635, 25.8, 2314)),
        ("H100", (6.4, 14.8, 963, 15.6, 1481)),
        ("B200", (9.3, 15.7, 863, 16.7, 889)),
    ],
)
def test_measured_times_of_one_node(product: str, times: tuple[float, ...]) -> None:
    """Times in us of nccl-tests, of 2 GPUs first (ai-dynamo/aiconfigurator, commit 095f58a)."""
    topology = with_gpu(preset("dgx-h100", 1), product).topology
    calls = [(2, 512), (2, MIB), (2, 512 * MIB), (8, MIB), (8, 512 * MIB)]
    for (gpus, nbytes), measured in zip(calls, times, strict=True):
        few = NcclPredictor(Placement.block(topology, gpus))
        assert seconds(few, nbytes) == pytest.approx(1e-6 * measured, rel=0.35)


@pytest.mark.parametrize("system", PRESETS)
def test_a_machine_tells_the_errors_of_its_all_to_alls(system: str, shared: Path) -> None:
    data = shared / "data/aiconfigurator/nccl_one_node.csv"
    if not data.is_file():
        pytest.skip(f"{data} is not there")
    rows = [row for row in read_rows([data])[0] if row.collective == EXCHANGE]
    costs = predictor_of(system, 2).costs
    own = [row for row in rows if row.system == system]
    told = preset_spec(PRESETS[system]).accuracy[NCCL_ALLTOALL]
    assert told.results == len(own)
    for size, band in zip(told.by_size, BANDS, strict=True):
        errors = [abs(error(row, costs)) for row in own if row.band == band]
        assert size.median == pytest.approx(median(errors), abs=0.001)
        assert size.p95 == pytest.approx(quantiles(errors, n=20)[-1], abs=0.001)


def test_the_protocol_follows_the_bytes_for_each_receiver() -> None:
    of = predictor(preset("dgx-h100", 1).topology)
    assert of.algo_protos(ALLTOALL) == (LL, SIMPLE)
    assert of.chosen_algo_proto(ALLTOALL, 8 * 16 * KIB) == LL
    assert of.chosen_algo_proto(ALLTOALL, 8 * 16 * KIB + 1) == SIMPLE
    assert of.expected_seconds(ALLTOALL, MIB) == {}


@pytest.mark.parametrize(
    ("version", "machine", "nodes", "channels"),
    [
        ("2.21.5", "dgx-h100", 1, 1),
        ("2.22.3", "dgx-h100", 1, 32),
        ("2.28.9", "dgx-h100", 1, 32),
        ("2.28.9", "dgx-h100", 2, 2),
        ("2.28.9", "dgx-h100", 16, 1),
        ("2.28.9", "dgx-1v", 1, 2),
        ("2.28.9", "l40s", 1, 2),
        ("2.29.2", "dgx-h100", 1, 1),
    ],
)
def test_some_releases_send_longer_messages_in_ll(
    version: str, machine: str, nodes: int, channels: int
) -> None:
    """Their limit holds for each channel of a pair of ranks (thresholdLL in src/enqueue.cc)."""
    topology = preset(machine, nodes).topology
    of = NcclPredictor(Placement.block(topology, 8), version=version)
    most = 8 * nodes * channels * 16 * KIB
    assert of.chosen_algo_proto(ALLTOALL, most) == LL
    assert of.chosen_algo_proto(ALLTOALL, most + 1) == SIMPLE
    assert of.run_algo_proto(ALLTOALL, "pairwise", most) == LL


@pytest.mark.parametrize(("gpus", "kind"), [(2, NCCL_CHANNELS), (8, "nvlink")])
def test_channels_copy_the_own_block_among_the_messages(gpus: int, kind: str) -> None:
    """All bytes pass the channels of an A100, but only those for others its links."""
    of = predictor(preset("dgx-a100", 1).topology, gpus)
    bounds = of.terms(ALLTOALL, SIMPLE, GIB).bounds
    assert min(bounds, key=bounds.__getitem__) == kind
    assert bounds[NCCL_CHANNELS] == CHANNEL_RATES[80]
    twice = of.terms(ALLTOALL, SIMPLE, GIB, ExchangeLoad(whole=2.0, inside=0.0)).bounds
    assert twice[NCCL_CHANNELS] == CHANNEL_RATES[80] / 2
    assert of.terms(ALLTOALL, SIMPLE, GIB, ExchangeLoad(0.0, 0.0, 0.0)).transfer == 0.0


def test_what_one_rank_copies_is_not_added_to_what_another_sends() -> None:
    """Rank 0 has a block for itself alone, and rank 1 one as long for rank 2 alone."""
    shares = np.zeros((4, 4))
    shares[0, 0] = shares[1, 2] = 2.0
    assert exchange_load(shares, np.zeros(4, dtype=int)) == ExchangeLoad(2.0, 8 / 3, 0.0)


def test_buffers_fill_once_on_one_node() -> None:
    """It takes as long as a fifth of a small buffer more, and as 5.4 MiB of a large one."""
    of = predictor(preset("dgx-a100", 1).topology)
    for nbytes, more in ((MIB, 0.21 * MIB), (GIB, 5.4 * MIB)):
        terms = of.terms(ALLTOALL, SIMPLE, nbytes)
        whole = (nbytes + more) / min(terms.bounds.values())
        assert terms.transfer == pytest.approx(whole)
    few = of.terms(ALLTOALL, SIMPLE, GIB, ExchangeLoad(whole=0.5, inside=0.5))
    even = of.terms(ALLTOALL, SIMPLE, GIB)
    assert few.transfer == pytest.approx(even.transfer - GIB / 2 / min(even.bounds.values()))
    far = predictor(preset("dgx-a100", 2).topology).terms(ALLTOALL, SIMPLE, GIB)
    assert far.transfer == pytest.approx(GIB / min(far.bounds.values()))


def test_a_message_in_ll_that_is_spread_takes_no_less_for_a_byte_more() -> None:
    """The first 8 KiB of it pass half a channel of LL, and all of it links or channels in LL."""
    of = NcclPredictor(Placement.block(preset("dgx-h100", 1).topology, 2), version="2.28.9")
    sizes = [2 * n * KIB for n in (1, 8, 9, 16, 17, 64, 256, 512)]
    times = [of.seconds(ALLTOALL, LL, nbytes) for nbytes in sizes]
    assert times == sorted(times)
    small, large = (of.terms(ALLTOALL, LL, 2 * n * KIB) for n in (8, 512))
    assert large.latency - small.latency == small.transfer
    assert small.transfer == pytest.approx(8 * KIB / (141e9 / 12 / 2))


@pytest.mark.parametrize(
    ("machine", "nodes", "nbytes"), [("dgx-h100", 1, 8 * KIB), ("dgx-h100", 4, 16 * KIB)]
)
def test_a_message_with_one_channel_takes_as_long_in_each_release(
    machine: str, nodes: int, nbytes: int
) -> None:
    placement = Placement.block(preset(machine, nodes).topology, 8)
    before, after = (
        NcclPredictor(placement, version=one).seconds(ALLTOALL, LL, 8 * nodes * nbytes)
        for one in ("2.28.9", "2.29.2")
    )
    assert before == after


@pytest.mark.parametrize(("machine", "launch"), [("l40s", 4.0e-6), ("rtx-pro-6000", 4.1e-6)])
def test_gpus_without_nvlink_have_launches_of_their_own(machine: str, launch: float) -> None:
    costs = predictor(preset(machine, 1).topology).costs
    assert (costs.launch, costs.hop) == (launch, 1.1e-6)


def test_a_small_message_in_ll_has_half_a_channel_and_one_in_simple_waits_for_a_part() -> None:
    """NCCL counts 141 GB/s for 12 channels of H100 in LL, and 30 GB/s for each in Simple."""
    of = predictor(preset("dgx-h100", 1).topology)
    small, large = (of.terms(ALLTOALL, LL, 8 * nbytes) for nbytes in (KIB, 16 * KIB))
    assert large.transfer - small.transfer == pytest.approx(15 * KIB / (141e9 / 12 / 2))
    one, two, many = (of.terms(ALLTOALL, SIMPLE, 8 * n * KIB).latency for n in (20, 40, 4096))
    assert two == many == pytest.approx(40 * KIB / (0.195 * 30e9))
    assert one == pytest.approx(two / 2)


def test_every_doubling_of_the_gpus_of_a_node_is_a_hop() -> None:
    topology = preset("dgx-h100", 1).topology
    two, four, eight = (seconds(predictor(topology, gpus), 8) for gpus in (2, 4, 8))
    hop = predictor(topology).costs.hop
    assert [four - two, eight - four] == pytest.approx([hop, hop], rel=1e-3)


def test_every_rank_of_another_node_costs_the_posting_of_a_message() -> None:
    """NCCL counts 1 us for it in LL with an Intel CPU, and 5 us for a hop between nodes."""
    one, two, eight = (predictor(preset("dgx-h100", nodes).topology) for nodes in (1, 2, 8))
    assert seconds(two, 16) - seconds(one, 8) == pytest.approx(13e-6, rel=1e-3)
    assert seconds(eight, 64) - seconds(two, 16) == pytest.approx(48e-6, rel=1e-3)


@pytest.mark.parametrize(("nodes", "part"), [(2, 1 / 2), (4, 3 / 4), (16, 15 / 16)])
def test_what_leaves_a_node_shares_its_nics(nodes: int, part: float) -> None:
    """Each GPU of a DGX H100 has a NIC of 42.6 GB/s, and a Summit node two of 23.1 for six GPUs."""
    of = predictor(preset("dgx-h100", nodes).topology)
    assert seconds(of, 64 * GIB) == pytest.approx(part * 64 * GIB / 42.6e9, rel=0.02)
    limits = of.limits(ALLTOALL, SIMPLE, 64 * GIB)
    assert max(limits.shares, key=limits.shares.__getitem__) == NIC
    assert limits.rates[NIC] == pytest.approx(42.6e9)
    summit = preset("summit", nodes)
    rate = sum(one.capacity for one in summit.topology.links if one.source.startswith("node0"))
    bounds = predictor(summit.topology, 6).terms(ALLTOALL, SIMPLE, GIB).bounds
    assert bounds[NIC] == pytest.approx(rate / (6 * part))


@pytest.mark.slow
def test_published_bus_bandwidths() -> None:
    """One is off: GB300 of two racks reach a quarter of what their NICs have."""
    errors = [abs(exchange_bandwidth(point) / point.busbw - 1) for point in EXCHANGES]
    assert median(errors) < 0.13
    assert sum(error > 0.25 for error in errors) == 1


@pytest.mark.parametrize(("fabric", "taper"), [("fat_tree", 1), ("fat_tree", 4), ("fat_tree", 8)])
def test_links_between_switches_carry_what_leaves_their_nodes(fabric: str, taper: int) -> None:
    """A leaf joins four nodes of eight NICs; of 16 nodes 12 are behind its links to others."""
    machine = with_fabric(preset("dgx-h100", 16), f"{fabric}:{taper}")
    bounds = predictor(machine.topology).terms(ALLTOALL, SIMPLE, GIB).bounds
    up = sum(
        one.capacity
        for one in machine.topology.links
        if one.source == machine.topology.switches[0] and one.target in machine.topology.switches
    )
    assert bounds[SWITCH_LINKS] == pytest.approx(up / (32 * 12 / 16))
    assert (bounds[SWITCH_LINKS] < bounds[NIC]) == (taper > 1)


def test_rails_keep_all_messages_on_their_leaf() -> None:
    machine = with_fabric(preset("dgx-h100", 16), "rail_optimised:8")
    assert SWITCH_LINKS not in predictor(machine.topology).terms(ALLTOALL, SIMPLE, GIB).bounds


@pytest.mark.parametrize("taper", [2, 4])
def test_links_between_groups_of_a_dragonfly_carry_what_leaves_them(taper: int) -> None:
    """Half of each buffer goes to the other one of two groups of 64 nodes."""
    machine = with_fabric(preset("dgx-h100", 128), f"dragonfly:{taper}")
    bounds = predictor(machine.topology).terms(ALLTOALL, SIMPLE, GIB).bounds
    assert bounds[SWITCH_LINKS] == pytest.approx(42.6e9 / taper / (1 / 2))


@pytest.mark.parametrize("taper", [1, 4])
def test_pairs_of_nodes_in_a_torus_share_the_links_of_their_routes(taper: int) -> None:
    """Each link of 2 x 2 x 2 routers with a node each carries four pairs of nodes.

    A rank that gives 64 blocks in all, eight to each node, sends one buffer from node to node.
    """
    machine = with_fabric(preset("dgx-h100", 8), f"torus:{taper}")
    bounds = predictor(machine.topology).terms(ALLTOALL, SIMPLE, GIB).bounds
    assert bounds[SWITCH_LINKS] == pytest.approx(8 * 42.6e9 / taper / 4)


def test_without_nvlink_all_messages_between_sockets_share_their_link() -> None:
    """Sixteen pairs of L40S share the 22 GB/s that NCCL counts, 5/6 of it behind Intel's CPUs."""
    bounds = predictor(preset("l40s", 1).topology).terms(ALLTOALL, SIMPLE, GIB).bounds
    assert bounds["socket"] == pytest.approx(SHARE_OF_LINKS * 22e9 * 5 / 6 / 16 * 8)


def test_all_nvlinks_of_a_gpu_serve() -> None:
    bounds = predictor(preset("dgx-a100", 1).topology).terms(ALLTOALL, SIMPLE, GIB).bounds
    whole = SHARE_OF_LINKS * 12 * NVLINK_BANDWIDTHS[80] * 8 / 7
    assert bounds["nvlink"] == pytest.approx(whole)


@pytest.mark.parametrize(
    ("machine", "gpus", "links"),
    [("dgx-1p", 8, 7 / 4), ("dgx-1p", 4, 3), ("dgx-1v", 8, 7 / 4), ("alps", 4, 18)],
)
def test_nvlinks_between_gpus_carry_their_own_messages_and_others(
    machine: str, gpus: int, links: float
) -> None:
    """Each link between the halves of a DGX-1 carries four of the pairs of GPUs across."""
    topology = preset(machine, 1).topology
    brick = {"dgx-1p": 18e9, "dgx-1v": 20e9, "alps": NVLINK_BANDWIDTHS[90]}[machine]
    bounds = predictor(topology, gpus).terms(ALLTOALL, SIMPLE, GIB).bounds
    whole = SHARE_OF_LINKS * links * brick * gpus / (gpus - 1)
    assert bounds["nvlink"] == pytest.approx(whole)


def test_of_rccl_no_time_is_known() -> None:
    of = predictor(preset("mi300x", 1).topology)
    assert of.algo_protos(ALLTOALL) == ()
    with pytest.raises(InputError, match="of sends and receives"):
        of.chosen_algo_proto(ALLTOALL, MIB)
