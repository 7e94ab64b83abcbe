"""How text and tables are fitted into a terminal."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.cli.terminal.layout import (
    COLUMN_GAP,
    TableLayout,
    display_width,
    fold_command,
    reflow,
    shorten,
    stack_rows,
    without_empty_columns,
    wrap,
)

WORDS = st.lists(st.text("abcé中-_", min_size=1, max_size=12), min_size=1, max_size=30)


@given(WORDS, st.integers(10, 60), st.integers(0, 4))
def test_wrapped_lines_hold_whole_words(words: list[str], width: int, indent: int) -> None:
    shown = wrap(" " * indent + " ".join(words), width)
    assert shown.split() == words
    for line in shown.split("\n"):
        assert display_width(line) <= width or len(line.split()) == 1


def test_further_lines_of_an_indented_one_are_indented_more() -> None:
    assert wrap("  one two three", 9) == "  one two\n    three"
    assert wrap("one two\n\nthree", 9) == "one two\n\nthree"


@pytest.mark.parametrize("width", [30, 50, 80, 200])
def test_a_folded_command_is_the_same_to_a_shell(width: int) -> None:
    command = "  mpirun --mca coll_tuned_use_dynamic_rules 1 -np 4 --name 'two words' --host a ./p"
    folded = fold_command(command, width)
    assert shlex.split(folded.replace("\\\n", "")) == shlex.split(command)
    lines = folded.split("\n")
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert max(map(len, lines)) <= max(width, len("    coll_tuned_use_dynamic_rules \\"))
    if width == 80:
        assert lines[0].endswith("--name 'two words' \\")


def test_help_texts_are_filled_and_their_commands_folded() -> None:
    text = "examples:\n  tuner a \\\n      --b c\n\nOne\ntwo.\n  name: x  # a file\n"
    assert reflow(text, 40) == "examples:\n  tuner a --b c\n\nOne two.\n  name: x  # a file\n"
    assert reflow(text, 13) == (
        "examples:\n  tuner a \\\n    --b c\n\nOne two.\n  # a file\n  name: x\n"
    )


def test_shortened_text_has_whole_words() -> None:
    assert shorten("one two three", 13) == "one two three"
    assert shorten("one two three", 12) == "one two ..."
    assert shorten("one two three", 5) == ""


TABLE = [("call", "size", "why"), ("bcast", "64KiB", "a sentence of words"), ("x", "1B", "short")]


@pytest.mark.parametrize(
    ("width", "spare", "left_out", "widths"),
    [
        (40, (), [], [5, 5, 19]),
        (30, (), [], [5, 5, 16]),
        (27, ("size",), ["size"], [5, 19]),
        (20, ("size",), ["size"], None),
    ],
)
def test_a_table_keeps_what_has_room(
    width: int, spare: tuple[str, ...], left_out: list[str], widths: list[int] | None
) -> None:
    layout = TableLayout(TABLE, width, spare, {"why"})
    assert (layout.omitted_columns, layout.widths) == (left_out, widths)
    if widths:
        assert sum(widths) + COLUMN_GAP * (len(widths) - 1) <= width


def test_a_row_becomes_a_block_of_lines() -> None:
    first, second = stack_rows(TABLE, 21)
    assert first == "call bcast\n  size  64KiB\n  why   a sentence of\n        words"
    assert second == "call x\n  size  1B\n  why   short"
    (long,) = stack_rows([("name", "algorithm"), ("a", "recursive_doubling")], 24)
    assert long == "name a\n  algorithm:\n  recursive_doubling"


def test_columns_that_say_nothing_are_left_out() -> None:
    assert without_empty_columns([("a", "b"), ("1", ""), ("2", "")]) == [("a",), ("1",), ("2",)]
    assert without_empty_columns([("a", "b")]) == [("a", "b")]
