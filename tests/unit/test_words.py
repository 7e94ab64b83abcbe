"""Helps are noun phrases or imperatives; sentences for users use the words of the field."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT

SOURCES = sorted((ROOT / "tuner").rglob("*.py"))
BAD_BEGINNING = re.compile(
    r"(of|how|what|whose|where|when|that|such|so|to|on|in|also|only|from|after|for|with|as|the"
    r"|default:|\()\b ?",
    re.IGNORECASE,
)
BAD_WORDS = re.compile(r"\b(nobody|such ranks|hangs? on|without a word|speaks? for)\b")


def text_of(node: ast.expr) -> str:
    """Return the text of a string, with a word in the place of each value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    return str(node.value) if isinstance(node, ast.Constant) else "value"


def helps(tree: ast.AST) -> Iterator[str]:
    """Yield the helps of options."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="help", value=ast.Constant() | ast.JoinedStr() as text):
                yield text_of(text)


def sentences(tree: ast.AST) -> Iterator[str]:
    """Yield all texts but docstrings and what stands alone."""
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


def test_a_help_is_a_noun_phrase_or_an_imperative() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in SOURCES
        for text in helps(ast.parse(path.read_text(encoding="utf-8")))
        if BAD_BEGINNING.match(text)
    ]
    assert not wrong, "begin with what it is, or with what to do:\n" + "\n".join(wrong)


def test_sentences_for_users_use_the_words_of_the_field() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {text}"
        for path in SOURCES
        for text in sentences(ast.parse(path.read_text(encoding="utf-8")))
        if BAD_WORDS.search(text)
    ]
    assert not wrong, "say who does what, in the field's words:\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("text", "is_bad"),
    [("of the buffers", True), ("such as 1KiB", True), ("offset", False), ("buffer sizes", False)],
)
def test_bad_beginnings_are_found(text: str, is_bad: bool) -> None:
    assert bool(BAD_BEGINNING.match(text)) == is_bad
