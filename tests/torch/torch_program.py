"""Run by mpirun: tensors of the real PyTorch in collectives, on each rank in another description.

Rank 0 prints one line per check, `CHECK: fine` or what was different from the plain communicator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from mpi4py import MPI

from tests.support.ladders import table_of
from tuner.core.collective import Collective
from tuner.core.table import SCHEDULE, AlgorithmChoice, TuningTable
from tuner.runtime import tune
from tuner.runtime.agreement import library_name

WORLD = MPI.COMM_WORLD
P, ME = WORLD.size, WORLD.rank
COUNTS = (1, 7, 64, 1000)  # of items: they cross the steps of the table
NUMBERS = {
    torch.float32: MPI.FLOAT,
    torch.float64: MPI.DOUBLE,
    torch.int8: MPI.SIGNED_CHAR,
    torch.int16: MPI.SHORT,
    torch.int32: MPI.INT,
    torch.int64: MPI.INT64_T,
    torch.uint8: MPI.UNSIGNED_CHAR,
    torch.complex64: MPI.C_FLOAT_COMPLEX,
}
BYTES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.bool)  # no numbers of MPI's


def table() -> TuningTable:
    """Return rules of ours whose steps lie between the sizes that are sent."""
    names = {
        "bcast": "binomial",
        "reduce": "binomial",
        "gather": "binomial",
        "scatter": "binomial",
        "allreduce": "ring",
        "allgather": "ring",
        "reduce_scatter": "ring",
    }
    ladders = {
        (Collective(name), P): [
            (0, AlgorithmChoice()),
            (24, AlgorithmChoice(algorithm, {}, SCHEDULE)),
            (3000, AlgorithmChoice()),
        ]
        for name, algorithm in names.items()
    }
    return table_of(ladders, library=library_name())


def drawn(count: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    numbers = torch.from_numpy(np.random.default_rng([seed, ME]).integers(0, 2, count))
    return numbers.to(dtype)


def described(tensor: torch.Tensor, how: int, parts: int = 1) -> Any:
    """Return the same bytes as the tensor, as numpy's, as MPI.BYTE, or with another item.

    parts   ranks whose items it has; MPI counts those of one
    """
    flat = tensor.view(torch.uint8).numpy()
    return (
        lambda: tensor,
        lambda: flat,
        lambda: [flat, flat.nbytes // parts, MPI.BYTE],
        lambda: tensor.view(torch.uint8),
        lambda: tensor.detach(),
    )[how % 5]()


def bits(tensor: torch.Tensor) -> bytes:
    found: bytes = tensor.view(torch.uint8).numpy().tobytes()
    return found


def moved(comm: Any, dtype: torch.dtype, count: int) -> list[bytes]:
    """Return what collectives that move bytes make of them."""
    mine, every = drawn(count, dtype, 1), torch.zeros(P * count, dtype=dtype)
    parts, part = drawn(P * count, dtype, 2), torch.zeros(count, dtype=dtype)
    comm.Bcast(described(mine, ME), P - 1)
    comm.Allgather(described(mine, ME + 1), described(every, ME + 2, P))
    comm.Scatter(described(parts, ME, P), described(part, ME + 1), 1 % P)
    gathered = torch.zeros(P * count, dtype=dtype)
    comm.Gather(described(part, ME + 3), described(gathered, ME, P), 0)
    return [bits(each) for each in (mine, every, part, gathered)]


def reduced(comm: Any, dtype: torch.dtype, count: int) -> list[bytes]:
    """Return what reductions make of tensors on some ranks and numpy's arrays on the others."""
    show: Callable[[torch.Tensor], Any] = (
        (lambda tensor: tensor) if ME % 2 else (lambda tensor: tensor.numpy())
    )
    mine, total = drawn(count, dtype, 3), torch.zeros(count, dtype=dtype)
    every, part = drawn(P * count, dtype, 4), torch.zeros(count, dtype=dtype)
    comm.Allreduce(show(mine), show(total))
    comm.Allreduce(MPI.IN_PLACE, show(mine))
    comm.Reduce(show(mine), show(part) if ME == 0 else None, MPI.SUM, 0)
    comm.Reduce_scatter_block(show(every), show(total))
    return [bits(each) for each in (mine, total, part)]


def check_bytes(tuned: Any) -> Iterator[str]:
    for dtype in (*NUMBERS, *BYTES):
        for count in COUNTS:
            if moved(WORLD, dtype, count) != moved(tuned, dtype, count):
                yield f"{count} items of {dtype}"


def check_sums(tuned: Any) -> Iterator[str]:
    for dtype in NUMBERS:
        for count in COUNTS:
            if reduced(WORLD, dtype, count) != reduced(tuned, dtype, count):
                yield f"{count} items of {dtype}"


def check_sums_of_bytes(tuned: Any) -> Iterator[str]:
    """MPI defines no sums of these types: a library may refuse them, or add their bytes somehow."""
    for dtype in BYTES:
        plain, ours = (refused(comm, drawn(1000, dtype, 5)) for comm in (WORLD, tuned))
        if plain != ours:
            yield f"{dtype}: {plain} became {ours}"


def refused(comm: Any, tensor: torch.Tensor) -> str:
    try:
        comm.Allreduce(MPI.IN_PLACE, tensor)
    except Exception as reason:  # noqa: BLE001 - whatever mpi4py raises
        return f"{type(reason).__name__}: {reason}"
    return "no refusal"


def check_refusals(tuned: Any) -> Iterator[str]:
    """Tensors with gaps, those that need a gradient, and those without memory of the host."""
    wide = torch.zeros(4, 4)
    for tensor in (
        wide.t()[1:],
        wide[:, 0],
        torch.zeros(64, requires_grad=True),
        torch.zeros(64).to_sparse(),
        torch.zeros(64, device="meta"),
    ):
        plain, ours = refused(WORLD, tensor), refused(tuned, tensor)
        if plain == "no refusal" or plain != ours:
            yield f"{plain!r} became {ours!r}"


def check_empty_and_shared(tuned: Any) -> Iterator[str]:
    """Tensors without items, and views into one storage."""
    nothing = torch.zeros(0)
    tuned.Allreduce(MPI.IN_PLACE, nothing)
    storage = torch.zeros(100)
    storage[10:30] = ME + 1.0
    tuned.Allreduce(MPI.IN_PLACE, storage[10:30])
    expected = torch.zeros(100)
    expected[10:30] = P * (P + 1) / 2
    if not torch.equal(storage, expected):
        yield f"{storage.tolist()}"


def check_streams(tuned: Any) -> Iterator[str]:
    """Of a CPU PyTorch has streams of its own, too, which run what is given at once."""
    with torch.cpu.stream(torch.cpu.current_stream()):
        gradient = torch.full((1000,), ME + 1.0) * 2
        tuned.Allreduce(MPI.IN_PLACE, gradient)
        gradient /= P
    if not torch.equal(gradient, torch.full((1000,), P + 1.0)):
        yield f"{gradient[:4].tolist()}"


def check_training(tuned: Any) -> Iterator[str]:
    """Averaged gradients make the same model on every rank, and the one that plain MPI makes."""
    models = []
    for comm in (WORLD, tuned):
        torch.manual_seed(1)
        model = torch.nn.Sequential(
            torch.nn.Linear(12, 20), torch.nn.ReLU(), torch.nn.Linear(20, 1)
        )
        for step in range(5):
            generator = torch.Generator().manual_seed(100 * step + ME)
            model.zero_grad()
            model(torch.randn(8, 12, generator=generator)).square().mean().backward()
            with torch.no_grad():
                for weights in model.parameters():
                    comm.Allreduce(MPI.IN_PLACE, weights.grad)
                    weights -= 0.1 / P * weights.grad
        models.append(torch.cat([weights.detach().flatten() for weights in model.parameters()]))
    if not torch.allclose(*models, rtol=1e-5, atol=1e-7):
        yield f"off by {(models[0] - models[1]).abs().max()}"
    first = models[1].clone()
    tuned.Bcast(first, 0)
    if not torch.equal(first, models[1]):
        yield "ranks have different models"


def main() -> None:
    tuned = tune(WORLD.Dup(), table())
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            told = WORLD.gather("; ".join(check(tuned)))
            if told is not None:
                wrong = [f"rank {rank}: {one}" for rank, one in enumerate(told) if one]
                print(f"{name}: {'; '.join(wrong) or 'fine'}", flush=True)
    if ME == 0:
        print(tuned.finalize() or "", end="")


main()
