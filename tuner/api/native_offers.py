"""The native formats of a table that are offered for download, and what each file leaves out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pydantic import BaseModel, Field

from tuner.api.problems import Problem
from tuner.api.schemas import example_config
from tuner.base.errors import InputError
from tuner.base.units import format_range, humanize
from tuner.core.path_classes import BLOCK
from tuner.core.table import Rule, TuningTable
from tuner.formats import mpich
from tuner.formats.registry import FORMATS, ExportOptions, Format


class NativeFormat(BaseModel):
    """A format of the table's library, and how the library is given the file.

    left_out    rules for another algorithm than the default that the file does not hold
    refusal     why there is no such file; empty where there is one, or where that depends on
                further options
    """

    model_config = example_config(
        name="openmpi",
        file="openmpi.rules",
        command="mpirun --mca coll_tuned_use_dynamic_rules 1",
        note="",
        options=["operators"],
        left_out=["allreduce on 4x2 ranks, from 16KiB: ring, for commutative operators alone"],
        refusal="",
    )

    name: str
    file: str = Field(description="a name for it")
    command: str = Field(description="with which a program is started, less its own words")
    note: str
    options: list[str] = Field(description="of the query that it heeds")
    left_out: list[str]
    refusal: str


def offer_formats(
    table: TuningTable, operators: str, generic: mpich.GenericTreeLoader
) -> list[NativeFormat]:
    """Return the formats of the table's library, with files for these operators."""
    library = table.library.partition(" ")[0]
    forms = (form for form in FORMATS.values() if library in form.libraries)
    return [_offer(form, table, operators, generic) for form in forms]


def _offer(
    form: Format, table: TuningTable, operators: str, generic: mpich.GenericTreeLoader
) -> NativeFormat:
    is_chosen = "commutative_only" in form.used_options
    is_commutative = is_chosen and operators == "commutative"
    lost, refusal = _try(form, table, ExportOptions(is_commutative, base_rules=generic))
    file = _file_name(form, is_commutative)
    asked = {"commutative_only": "operators"}
    return NativeFormat(
        name=form.name,
        file=file,
        command=form.usage.split("`", 2)[1].replace("FILE", file),
        note=form.usage_note,
        options=sorted(asked.get(each, each) for each in form.used_options - {"base_rules"}),
        left_out=[
            *map(humanize, lost),
            *_other_placements(table),
            *(_for_commutative_operators(table) if is_chosen and not is_commutative else ()),
        ],
        refusal=refusal,
    )


def _file_name(form: Format, is_commutative: bool) -> str:
    """Return a name that tells files for all operators from those for commutative ones."""
    is_sourced = form.usage.startswith("`. ")
    is_rules = form.media_type.endswith("-rules")
    suffix = "json" if form.is_json else "sh" if is_sourced else "rules" if is_rules else "conf"
    stem = form.name.removesuffix("-json")
    return f"{stem}{'-commutative' if is_commutative else ''}.{suffix}"


def _try(form: Format, table: TuningTable, options: ExportOptions) -> tuple[tuple[str, ...], str]:
    """Return the rules that the format lacks, and why it cannot be written, if so."""
    if form.used_options & {"ranks", "fallback_algorithm"}:
        return (), ""
    try:
        return form.emit(table, options)[1], ""
    except InputError as reason:
        return (), str(reason)
    except Problem as reason:
        return (), reason.detail


def _other_placements(table: TuningTable) -> Iterator[str]:
    for rule in table.rules:
        if rule.key.placement != BLOCK and not rule.choice.is_default:
            yield f"{_describe(rule)}, for {rule.key.placement} ranks"


def _for_commutative_operators(table: TuningTable) -> Iterator[str]:
    """Yield the rules for commutative operators that those for any operator do not contain."""
    for key in table.keys:
        if key.operators != "commutative" or key.placement != BLOCK:
            continue
        safe = {
            (rule.start_bytes, rule.stop_bytes, str(rule.choice))
            for rule in table.rules_for(replace(key, operators="any"))
        }
        for rule in table.rules_for(key):
            own = (rule.start_bytes, rule.stop_bytes, str(rule.choice))
            if not rule.choice.is_default and own not in safe:
                yield f"{_describe(rule)}, for commutative operators alone"


def _describe(rule: Rule) -> str:
    sizes = format_range(rule.start_bytes, rule.stop_bytes)
    sizes = "all sizes" if sizes == "all" else sizes
    return f"{rule.key.collective} on {rule.key.shape} ranks, {sizes}: {humanize(str(rule.choice))}"
