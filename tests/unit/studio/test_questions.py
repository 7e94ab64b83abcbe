"""The axes that the pages know by themselves are those of studies."""

from __future__ import annotations

import re

from tuner.studio.assets import PAGES_DIR
from tuner.whatif.axes import AXES

QUESTION = (PAGES_DIR / "question.js").read_text(encoding="utf-8")


def names_in(list_name: str) -> set[str]:
    """Return the texts of a list that the page's module begins with."""
    written = re.search(rf"const {list_name} = [^;]*;", QUESTION)
    assert written
    return set(re.findall(r'"(\w+)"', written[0]))


def test_the_axes_of_a_question_are_those_of_a_study() -> None:
    assert names_in("AXES") == set(AXES)


def test_numbers_of_a_question_are_numbers_of_a_study() -> None:
    assert names_in("NUMBERS") == {n for n, axis in AXES.items() if axis.kind.name == "number"}
