"""The C program that times calls has the records of all collectives."""

import re
from pathlib import Path

from tuner.core.collective import Collective
from tuner.validation import timing

ROW = re.compile(r'\{"(\w+)", (\w+), (\w+), ([01]), \w+\},')


def test_its_table_is_that_of_the_records() -> None:
    program = Path(timing.__file__).with_name("collectives.c").read_text(encoding="utf-8")
    assert sorted(ROW.findall(program)) == sorted(
        (one.value, one.spec.before.name, one.spec.after.name, str(int(one.spec.reduces)))
        for one in Collective
    )
