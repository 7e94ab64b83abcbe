"""Counts of ragged calls: models, files, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tuner.base.errors import InputError, LimitExceededError
from tuner.core.collective import Collective
from tuner.prediction.block_counts import MODELS, OF_PAIRS, BlockCounts, block_counts


def pair_counts(text: str, p: int) -> BlockCounts:
    return block_counts(text, p, Collective.ALLTOALLV)


def own_counts(text: str, p: int) -> BlockCounts:
    return block_counts(text, p, Collective.ALLGATHERV)


@pytest.mark.parametrize("p", [1, 2, 6, 33])
@pytest.mark.parametrize("name", MODELS)
def test_the_mean_rank_sends_what_is_asked_for(name: str, p: int) -> None:
    counts = pair_counts(name, p)
    assert counts.shares.shape == (p, p)
    assert counts.shares.sum() == pytest.approx(p)
    assert (counts.shares >= 0).all()
    assert counts.sizes(10_000_000).sum() == pytest.approx(p * 10_000_000, rel=1e-4)


def test_tokens_follow_zipf_up_to_the_capacity() -> None:
    """Compare with 12/25, 6/25, 4/25 and 3/25 by hand, of which 3/8 fit at 1.5 times 1/4."""
    free, limited = (
        np.sort(pair_counts(text, 4).shares[0])[::-1] for text in ("zipf:1", "zipf:1:1.5")
    )
    assert free == pytest.approx(np.array([12, 6, 4, 3]) / 25)
    assert limited == pytest.approx(np.array([3 / 8, 6 / 25, 4 / 25, 3 / 25]))
    assert (pair_counts("zipf:0", 4).shares == 1 / 4).all()


def test_pencils_exchange_along_their_row() -> None:
    shares = pair_counts("pencils:2x3", 6).shares
    row = np.full((3, 3), 1 / 3)
    nothing = np.zeros((3, 3))
    assert shares == pytest.approx(np.block([[row, nothing], [nothing, row]]))
    assert (pair_counts("pencils", 6).shares == shares).all()


def test_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text("# bytes\n0, 5, 7\n\n1 2 4\n0,0,0\n")
    counts = pair_counts(str(path), 3)
    assert counts.mean_bytes == 7  # of 19/3
    assert counts.sizes(7).tolist() == [[0, 5, 7], [1, 2, 4], [0, 0, 0]]
    assert counts.sizes(7, itemsize=4).tolist() == [[0, 2, 2], [1, 1, 1], [0, 0, 0]]
    assert counts.sizes(19).tolist() == [[0, 15, 21], [3, 6, 12], [0, 0, 0]]


@pytest.mark.parametrize("p", [1, 2, 6, 33])
@pytest.mark.parametrize("name", [name for name in MODELS if name not in OF_PAIRS])
def test_blocks_of_an_allgatherv_fill_its_buffer(name: str, p: int) -> None:
    counts = own_counts(name, p)
    assert counts.shares.shape == (1, p)
    assert counts.sizes(10_000_000).sum() == pytest.approx(10_000_000, rel=1e-4)


@pytest.mark.parametrize("content", ["0, 5, 7\n", "0\n5\n7\n"])
def test_a_file_has_one_count_of_each_rank(content: str, tmp_path: Path) -> None:
    path = tmp_path / "counts.csv"
    path.write_text(content)
    counts = own_counts(str(path), 3)
    assert counts.mean_bytes == 12
    assert counts.sizes(12).tolist() == [[0, 5, 7]]
    assert counts.sizes(36).tolist() == [[0, 15, 21]]


def test_ranks_with_one_block_have_no_pairs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ranks of an allgatherv send one block each"):
        own_counts("pencils", 4)
    with pytest.raises(InputError, match="write zipf, zipf:EXPONENT or, in an alltoallv"):
        own_counts("zipf:1:2", 4)
    path = tmp_path / "counts"
    path.write_text("1 2\n3 4\n")
    with pytest.raises(InputError, match=r"2 rows of 2 counts: 2 ranks .* need one row of 2"):
        own_counts(str(path), 2)


@pytest.mark.parametrize("name", MODELS)
def test_small_blocks_are_rounded_up(name: str) -> None:
    counts = pair_counts(name, 8)
    assert (counts.sizes(1)[counts.shares > 0] == 1).all()


def test_too_many_ranks_are_refused_before_their_counts_are_made() -> None:
    with pytest.raises(LimitExceededError, match="100000 ranks; take at most 4096"):
        pair_counts("uniform", 100_000)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("1 2\n3\n", r"1 count in row 2, 2 before: 2 ranks \(--ranks\) need 2 rows of 2"),
        ("", r"no counts: 2 ranks \(--ranks\) need 2 rows of 2"),
        ("1 2\n3 x\n", r"row 2, column 2: 'x' is not a number of whole bytes"),
        ("1 2\n3 -4\n", r"row 2, column 2: '-4' is not a number of whole"),
        ("0 0\n0 0\n", r"expected a count above 0"),
        ("1 2\n3 99999999999999999999\n", r"row 2, column 2: a block has at most 2147483647 bytes"),
    ],
)
def test_a_wrong_file_is_refused(content: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "counts"
    path.write_text(content)
    with pytest.raises(InputError, match=reason):
        pair_counts(str(path), 2)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("zipf:x", "write zipf, zipf:EXPONENT or, in an alltoallv, zipf:EXPONENT:CAPACITY"),
        ("zipf:-1", "write zipf"),
        ("zipf:1:0", "write zipf"),
        ("zipf:nan", "write zipf"),
        ("zipf:1:2:3", "write zipf"),
        ("uniform:2", "write uniform$"),
        ("pencils:2x2", "write pencils or pencils:ROWSxCOLUMNS"),
        ("pencils:3", "write pencils"),
        ("pencil", "did you mean 'pencils'"),
        ("/nowhere/counts", "'/nowhere/counts'"),
    ],
)
def test_a_wrong_model_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        pair_counts(text, 6)


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as a file of text"):
        pair_counts(str(tmp_path), 2)
