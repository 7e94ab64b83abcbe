"""The blocks of a transformer that each part of a pipeline has.

A pipeline of s stages with c chunks each has s c parts; part number k s + i, in the order of the
forward pass, is chunk k of stage i. The first part also has the embedding, the last one the head.

Blocks that divide are divided evenly. Others are divided as if the embedding and the head were a
block each, so that the first and the last part have a block less, as Llama 3 405B was trained
(arXiv 2407.21783, section 3.3.2; Megatron-LM's --account-for-embedding-in-pipeline-split and
--account-for-loss-in-pipeline-split). The blocks of the first and of the last stage may be given
instead (--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers).
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.base.errors import InputError

DEFAULT_BLOCKS = 0  # as the blocks of a stage: as many as the default gives it


def divide_blocks(
    blocks: int, stages: int, chunks: int, first: int = 0, last: int = 0
) -> tuple[int, ...]:
    """Return the number of blocks of each part, shape (stages * chunks,).

    first       blocks of the first stage, or DEFAULT_BLOCKS
    last        blocks of the last stage, or DEFAULT_BLOCKS

    Raises InputError for blocks that cannot be divided like this.
    """
    if first or last:
        return _divide_around(blocks, stages, chunks, first, last)
    parts = stages * chunks
    if blocks % parts == 0:
        return (blocks // parts,) * parts
    each, more = divmod(blocks + 2, parts)
    if not each:
        raise InputError(
            f"megatron: {blocks} blocks are too few for {parts} parts of a pipeline (pipeline x"
            f" interleaved): take at most {blocks + 2}"
        )
    counts = [each] * parts
    for number in [*range(1, parts - 1), 0][:more]:
        counts[number] += 1
    counts[0] -= 1
    counts[-1] -= 1
    return tuple(counts)


def _divide_around(blocks: int, stages: int, chunks: int, first: int, last: int) -> tuple[int, ...]:
    """Return the blocks of each part around a given first or last stage."""
    given = {stage: own for stage, own in ((0, first), (stages - 1, last)) if own}
    for name, own in (("first_blocks", first), ("last_blocks", last)):
        if own % chunks:
            raise InputError(
                f"megatron: {name}: {own} blocks cannot be divided over interleaved: {chunks}"
                " chunks of a stage"
            )
    counts = [given.get(number % stages, 0) // chunks for number in range(stages * chunks)]
    others = [number for number in range(stages * chunks) if number % stages not in given]
    left = blocks - first - last
    if left < len(others) or (left and not others):
        raise InputError(
            f"megatron: first_blocks: {first} and last_blocks: {last} leave {left} of {blocks}"
            f" blocks for {len(others)} other parts of the pipeline: give each at least one"
        )
    for number in others:
        counts[number] = left // len(others)
    for number in others[: left % len(others) if others else 0]:
        counts[number] += 1
    return tuple(counts)


def stage_arguments(counts: Sequence[int], stages: int, first: int, last: int) -> list[str]:
    """Return the arguments of Megatron-LM for the blocks of a pipeline's parts.

    counts      blocks of each part, as `divide_blocks` returns them

    The layout of Megatron-LM has E for the embedding, t for a block and L for the head.
    """
    if len(set(counts)) == 1:
        return []
    given = {stage for stage, own in ((0, first), (stages - 1, last)) if own}
    others = {own for number, own in enumerate(counts) if number % stages not in given}
    if given and len(others) <= 1:
        named = (("first", first), ("last", last))
        return [f"--decoder-{name}-pipeline-num-layers {own}" for name, own in named if own]
    if len({counts[0] + 1, *counts[1:-1], counts[-1] + 1}) == 1:
        return ["--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"]
    parts = ["t" * own for own in counts]
    parts[0], parts[-1] = f"E{parts[0]}", f"{parts[-1]}L"
    return [f'--pipeline-model-parallel-layout "{"|".join(parts)}"']
