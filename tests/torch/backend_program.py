"""Run by mpirun: the backend `tuner` under a table, held against gloo, or against what is known.

backend_program.py [cuda]

With `cuda` all tensors of the backend are in the memory of a GPU, those of gloo on the host. Rank 0
prints one line per check, `CHECK: fine` or what was different.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

import tuner.torch
from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, TuningTable

SIZES = ((), (0,), (3,), (5, 7), (40, 50))  # they cross the steps of the table
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)
MOVED = (
    *FLOATS,
    *INTEGERS,
    torch.int16,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
)
OP = dist.ReduceOp
ARITHMETIC = (OP.SUM, OP.PRODUCT, OP.MIN, OP.MAX)
BITWISE = (OP.BAND, OP.BOR, OP.BXOR)
REDUCED = [
    *itertools.product((*FLOATS, *INTEGERS), ARITHMETIC),
    *itertools.product(INTEGERS, BITWISE),
]
# Before PyTorch 2.13 they have other names.
all_gather_single = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
reduce_scatter_single = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
ALGORITHMS = {
    "bcast": "binomial",
    "reduce": "binomial",
    "gather": "binomial",
    "scatter": "binomial",
    "allreduce": "ring",
    "allgather": "ring",
    "reduce_scatter": "ring",
}


def table(library: str, size: int) -> TuningTable:
    """Return rules of ours between 24 bytes and 3 kB, and the library's around them."""
    ladders = {
        (Collective(name), size): [
            (0, AlgorithmChoice()),
            (24, AlgorithmChoice(algorithm, {}, SCHEDULE)),
            (3000, AlgorithmChoice()),
        ]
        for name, algorithm in ALGORITHMS.items()
    }
    return table_of(ladders, library=library)


class Ranks:
    """The group of the backend under test, and gloo's of the same ranks."""

    def __init__(self) -> None:
        from tuner.runtime.agreement import library_name

        size = int(os.environ["WORLD_SIZE"])
        dist.init_process_group(
            "tuner", pg_options=tuner.torch.Options(table(library_name(), size))
        )
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.ours, self.gloo = dist.group.WORLD, dist.new_group(backend="gloo")

    def drawn(self, shape: Any, dtype: torch.dtype, seed: int, *, most: int = 3) -> torch.Tensor:
        """Return small whole numbers, on each rank others, which all types have exactly."""
        return drawn(shape, dtype, 1000 * seed + self.rank, most)


def drawn(shape: Any, dtype: torch.dtype, seed: int, most: int) -> torch.Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    values = torch.randint(0, most, shape, generator=generator, device="cpu")
    return values.to(torch.get_default_device(), dtype)


def differences(name: Any, act: Callable[[Any], list[torch.Tensor]], ranks: Ranks) -> Iterator[str]:
    ours = act(ranks.ours)
    with torch.device("cpu"):
        theirs = act(ranks.gloo)
    if [bits(one) for one in ours] != [bits(one) for one in theirs]:
        yield f"{name}: {ours} instead of {theirs}"


def bits(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().contiguous().reshape(-1)
    found: bytes = flat.view(torch.uint8).cpu().numpy().tobytes()
    return found


def check_reductions(ranks: Ranks) -> Iterator[str]:
    for (dtype, op), shape in itertools.product(REDUCED, SIZES):

        def act(group: Any, dtype: Any = dtype, op: Any = op, shape: Any = shape) -> Any:
            every, rooted = (ranks.drawn(shape, dtype, seed) for seed in (1, 2))
            dist.all_reduce(every, op, group)
            dist.reduce(rooted, 1, op, group)
            return [every, *([rooted] if ranks.rank == 1 else [])]

        yield from differences((dtype, op, shape), act, ranks)


def check_scattered_reductions(ranks: Ranks) -> Iterator[str]:
    for dtype, op in REDUCED:
        for n in (1, 6, 500):
            parts = ranks.drawn((ranks.size * n,), dtype, 3)
            whole = parts.cpu().clone()
            dist.all_reduce(whole, op, ranks.gloo)
            expected = whole[ranks.rank * n :][:n]
            single, listed = torch.empty(n, dtype=dtype), torch.empty(n, dtype=dtype)
            reduce_scatter_single(single, parts, op)
            dist.reduce_scatter(listed, list(parts.split(n)), op)
            if bits(single) != bits(expected) or bits(listed) != bits(expected):
                yield f"{dtype} {op} {n}: {single} and {listed} instead of {expected}"


def check_averages_and_factors(ranks: Ranks) -> Iterator[str]:
    for dtype in (*FLOATS, torch.int32):
        own = torch.full((100,), 2.0 * ranks.rank).to(dtype)
        dist.all_reduce(own, OP.AVG)
        if not torch.equal(own, torch.full((100,), float(ranks.size - 1)).to(dtype)):
            yield f"AVG of {dtype}: {own[:3]}"
    scaled = torch.full((100,), 1.0 + ranks.rank)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    if not torch.equal(scaled, torch.full((100,), ranks.size * (ranks.size + 1) / 4)):
        yield f"PREMUL_SUM: {scaled[:3]}"
    truth = torch.tensor([ranks.rank == 0, True, False])
    dist.all_reduce(truth)
    if truth.tolist() != [True, True, False]:
        yield f"SUM of bool: {truth}"
    waves = torch.full((3,), 1 + 1j * ranks.rank, dtype=torch.complex64)
    dist.all_reduce(waves)
    if not torch.equal(waves, torch.full((3,), ranks.size + 1j * sum(range(ranks.size)))):
        yield f"SUM of complex: {waves}"


def check_moves(ranks: Ranks) -> Iterator[str]:
    for dtype, shape in itertools.product(MOVED, SIZES):
        size, rank = ranks.size, ranks.rank
        every = [drawn(shape, dtype, other, 2) for other in range(size)]
        own, empty = every[rank], torch.empty(shape, dtype=dtype)
        sent, listed = own.clone(), [empty.clone() for _ in range(size)]
        dist.broadcast(sent, 1)
        dist.all_gather(listed, own)
        rooted = [empty.clone() for _ in range(size)] if rank == 0 else None
        dist.gather(own, rooted, 0)
        part = empty.clone()
        dist.scatter(part, every if rank == 1 else None, 1)
        swapped = [empty.clone() for _ in range(size)]
        dist.all_to_all(swapped, [own.clone() for _ in range(size)])
        flat = torch.empty(size * own.numel(), dtype=dtype)
        all_gather_single(flat, own.reshape(-1))
        told = [sent, *listed, *(rooted or []), part, *swapped, *flat.split(max(own.numel(), 1))]
        expected = [every[1], *every, *(every if rooted else []), own, *every]
        expected += every if own.numel() else [flat]
        if [bits(one) for one in told] != [bits(one) for one in expected]:
            yield f"{dtype} {shape}"


def check_uneven_amounts(ranks: Ranks) -> Iterator[str]:
    size, rank = ranks.size, ranks.rank
    lists = [torch.empty(other + 1) for other in range(size)]
    dist.all_gather(lists, torch.full((rank + 1,), float(rank)))
    if any(not torch.equal(t, torch.full((n + 1,), float(n))) for n, t in enumerate(lists)):
        yield f"all_gather: {lists}"
    given = torch.arange(float(sum(range(1, size + 1)))).repeat_interleave(2).view(-1, 2) + rank
    splits = list(range(1, size + 1))
    taken = torch.empty((size * (rank + 1), 2))
    dist.all_to_all_single(taken, given, [rank + 1] * size, splits)
    begin = sum(range(rank + 1))
    for other, rows in enumerate(taken.split(rank + 1)):
        if rows[:, 0].tolist() != [begin + n + other for n in range(rank + 1)]:
            yield f"all_to_all_single: {rows} from {other}"


def check_strided_tensors(ranks: Ranks) -> Iterator[str]:
    """Tensors with gaps and transposed ones, whose ranks may have different strides."""
    grid = torch.zeros(6, 8)
    grid[:, ::2] = ranks.rank + 1.0
    dist.all_reduce(grid[:, ::2])
    expected = torch.zeros(6, 8)
    expected[:, ::2] = ranks.size * (ranks.size + 1) / 2
    if not torch.equal(grid, expected):
        yield f"columns: {grid}"
    turned = torch.arange(12.0).view(3, 4)
    turned = turned.t().contiguous().t() if ranks.rank % 2 else turned
    dist.all_reduce(turned)
    if not torch.equal(turned, torch.arange(12.0).view(3, 4) * ranks.size):
        yield f"transposed: {turned}"
    own = torch.zeros(ranks.size, 5)
    own[ranks.rank] = ranks.rank + 1.0
    all_gather_single(own.view(-1), own[ranks.rank])
    if own[:, 0].tolist() != [other + 1.0 for other in range(ranks.size)]:
        yield f"a part of the result as the input: {own}"


def check_sub_groups(ranks: Ranks) -> Iterator[str]:
    size, rank = ranks.size, ranks.rank
    members = [list(range(size - 1)), list(range(1, size)), [size - 1, 0], list(range(size))]
    for some in members:
        group = dist.new_group(some)
        if rank in some:
            total = torch.full((50,), float(rank))
            dist.all_reduce(total, group=group)
            if not torch.equal(total, torch.full((50,), float(sum(some)))):
                yield f"{some}: {total[:3]}"
            root = torch.tensor([float(rank)])
            dist.broadcast(root, some[0], group=group)
            if root.item() != some[0]:
                yield f"{some}: broadcast of {root}"
            dist.destroy_process_group(group)


def check_objects(ranks: Ranks) -> Iterator[str]:
    listed: list[Any] = [None] * ranks.size
    dist.all_gather_object(listed, {"rank": ranks.rank})
    if listed != [{"rank": other} for other in range(ranks.size)]:
        yield f"all_gather_object: {listed}"
    known = [("tuple", 1), None] if ranks.rank == 0 else [None, None]
    dist.broadcast_object_list(known, 0)
    if known != [("tuple", 1), None]:
        yield f"broadcast_object_list: {known}"


def check_messages(ranks: Ranks) -> Iterator[str]:
    size, rank = ranks.size, ranks.rank
    for n in (1, 1000, 1_000_000):
        arriving = torch.zeros(n, dtype=torch.bfloat16)
        works = [
            dist.irecv(arriving, (rank - 1) % size),
            dist.isend(torch.full((n,), float(rank), dtype=torch.bfloat16), (rank + 1) % size),
        ]
        for work in works:
            work.wait()
        if not torch.equal(arriving, torch.full_like(arriving, float((rank - 1) % size))):
            yield f"{n}: {arriving[:3]}"
    if rank:
        dist.send(torch.tensor([float(rank)]), 0, tag=7)
        return
    sources = set()
    for _ in range(size - 1):
        value = torch.zeros(2)[:1]
        source = dist.recv(value, tag=7)
        sources.add(source)
        if value.item() != source:
            yield f"{value} from {source}"
    if sources != set(range(1, size)):
        yield f"from {sources}"


def check_asynchronous_calls(ranks: Ranks) -> Iterator[str]:
    tensors = [torch.full((1000,), float(n)) for n in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    last = torch.ones(3)
    dist.all_reduce(last)  # waits for its turn behind the others
    if not all(work.is_completed() for work in works) or not torch.equal(
        last, torch.full((3,), float(ranks.size))
    ):
        yield f"order: {[work.is_completed() for work in works]} {last}"
    for n, work in reversed([*enumerate(works)]):
        (result,) = work.get_future().wait()
        if not work.is_success() or not torch.equal(
            result, torch.full((1000,), float(n * ranks.size))
        ):
            yield f"{n}: {result[:3]}"


def check_callbacks_that_wait(ranks: Ranks) -> Iterator[str]:
    """Make a further call in a callback and wait for it there, as PowerSGD does."""
    tensors = [torch.ones(1000), torch.ones(1000)]

    def call_again(_: Any) -> torch.Tensor:
        work = dist.all_reduce(tensors[1], async_op=True)
        result: torch.Tensor = work.get_future().wait()[0]
        return result

    first = dist.all_reduce(tensors[0], async_op=True).get_future()
    result = first.then(call_again).wait()
    if not torch.equal(result, torch.full((1000,), float(ranks.size))):
        yield f"{result[:3]}"


def check_refusals(ranks: Ranks) -> Iterator[str]:
    """Expect that meaningless calls are refused on all ranks, which go on together."""
    short = torch.ones(ranks.size + 1)
    acts: tuple[Callable[[], object], ...] = (
        lambda: dist.all_reduce(torch.ones(2), OP.BAND),
        lambda: all_gather_single(short, torch.ones(1)),
        lambda: reduce_scatter_single(torch.ones(1), short),
        lambda: dist.all_to_all_single(short, short),
        lambda: dist.all_reduce(torch.ones(2, dtype=torch.float8_e4m3fn)),
    )
    for act in acts:
        try:
            act()
        except Exception:  # noqa: BLE001 - whatever it is, it must be an error
            continue
        yield "no refusal"


def check_sparse_sums(ranks: Ranks) -> Iterator[str]:
    def act(group: Any) -> Any:
        own = torch.sparse_coo_tensor(
            torch.tensor([[0, ranks.rank + 1]]), torch.ones(2, 3), (ranks.size + 1, 3)
        )
        dist.all_reduce(own, group=group)
        return [own.to_dense()]

    yield from differences("sparse", act, ranks)


def main() -> None:
    ranks = Ranks()
    torch.set_default_device(sys.argv[1] if len(sys.argv) > 1 else "cpu")
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            told: list[Any] = [None] * ranks.size
            found = "; ".join(check(ranks))
            with torch.device("cpu"):
                dist.all_gather_object(told, found, group=ranks.gloo)
            wrong = [f"rank {rank}: {one}" for rank, one in enumerate(told) if one]
            if ranks.rank == 0:
                print(f"{name}: {'; '.join(wrong).replace(chr(10), ' ') or 'fine'}", flush=True)
    dist.destroy_process_group()


main()
