"""Each algorithm has the same colour in static plots, in the report and in the studio."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tuner.algorithms import REQUIREMENTS, algorithm_names
from tuner.core.collective import Collective
from tuner.report.palette import (
    DARK,
    LIGHT,
    colour_of,
    dash_number,
    fill_styles,
    marker_of,
    place_of,
)
from tuner.studio.assets import PAGES_DIR

STUDIO_PALETTE = PAGES_DIR / "palette.js"
NAMES = {each.value: sorted(algorithm_names(each, REQUIREMENTS)) for each in Collective}
ONLY_IN_LIBRARIES = ["sparbit", "linear_sync"]


def test_the_studio_has_the_same_colours() -> None:
    text = STUDIO_PALETTE.read_text(encoding="utf-8")
    for name, colours in (("LIGHT", LIGHT), ("DARK", DARK)):
        found = re.search(rf"const {name} = \[(.*?)\]", text, re.DOTALL)
        assert found
        assert tuple(re.findall(r"#[0-9a-f]{6}", found[1])) == colours


def test_the_studio_gives_them_out_alike() -> None:
    if shutil.which("node") is None:
        pytest.skip("Node.js is not installed, which runs the studio's modules")
    names = [*(name for own in NAMES.values() for name in own), *ONLY_IN_LIBRARIES]
    program = (
        f"{STUDIO_PALETTE.read_text(encoding='utf-8')}\n{{ setAlgorithms({json.dumps(NAMES)});"
        f"const names = {json.dumps(names)};"
        "console.log(JSON.stringify(names.map((one) => [placeOf(one), colourOf(one, false)]))) }"
    )
    words = ["node", "--input-type=module", "--no-warnings", "--eval", program]
    said = json.loads(subprocess.run(words, capture_output=True, check=True, text=True).stdout)
    assert said == [[place_of(name), colour_of(name)] for name in names]


def test_curves_of_one_colour_differ_otherwise() -> None:
    for names in NAMES.values():
        assert len({(colour_of(name), marker_of(name)) for name in names}) == len(names)
        assert len({(colour_of(name), dash_number(name)) for name in names}) == len(names)


def test_areas_of_one_colour_have_hatches() -> None:
    unlike = next(name for name in NAMES["bcast"] if colour_of(name) != colour_of("ring"))
    configs = {"ring": "ring", "ring(segment=64KiB)": "ring", unlike: unlike}
    plain, hatched, other = fill_styles(configs).values()
    assert plain == (colour_of("ring"), "")
    assert other == (colour_of(unlike), "")
    assert hatched[0] == plain[0]
    assert hatched[1]
