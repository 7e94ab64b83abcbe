"""The reference page of the machines known by name, made from the files in tuner/machines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from tuner.machines import PRESETS, MachineSpec, SourcedValue, known_gpus, preset_spec
from tuner.machines.catalog import known_parts
from tuner.machines.model_accuracy import MODEL_NAMES, NOT_COMPARED, SIMULATION
from tuner.topology import GPU_LINK_KINDS

COMMON = 5  # numbers that so many machines share are listed once
HEAD = """# Machines known by name

`tuner topology list` prints them, `tuner topology show NAME` one of them with all its numbers, and
`tuner topology draw NAME -o node.svg` draws it (`--view fabric` the network). `preset:NAME` and
`preset:NAME:NODES` stand for a topology file wherever one is accepted, and bring their costs along.
Each is a file in `tuner/machines/presets/`; a copy of it with other numbers is accepted in the same
places (the guide describes the form). This page is made from these files.

How sure a number is: **verified**, read in raw data, source code or a configuration file;
**published** by a maker, an operator or a paper; **computed** from such numbers; **remembered**,
common knowledge that was not looked up; **assumed**, because no source gives it, with the reason.
A machine is called -like where the numbers are not its own. Measure your machine (`tuner probe`,
`tuner calibrate`) before you trust an assumed number.

What the numbers mean: rates are per direction and as messages see them, not nominal, unless a
source says so. The alpha of a path class is the time of an empty message end to end over one
switch; each further switch costs its crossing. Interior links add no latency of their own. The rate
of the class `network` bounds a whole message; one NIC bounds what is not striped over several.
"""
PARTS_HEAD = """## Parts

A machine's file names these instead of a number, of a cost of messages, or of a source. Also
`gpu.nvlink_rate` or `gpu.xgmi_rate`, `gpu.pcie_rate`, `gpu.copy_rate`, `gpu.kernel_launch` and
`gpu.reduction`, of the product of its GPUs.
"""
Row = tuple[str, str, str, str]


def pages() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of the page."""
    yield "machines", _page()


def _page() -> str:
    designs = [preset_spec(name) for name in PRESETS]
    rows = {known.name: list(_rows(known)) for known in designs}
    often = Counter(row for own in rows.values() for row in dict.fromkeys(own))
    common = [row for row, number in often.items() if number >= COMMON]
    parts = [HEAD, "## GPU generations\n", _table(_generations()), PARTS_HEAD, _table(_parts())]
    parts += [f"## Shared by {COMMON} machines or more\n", _table(common)]
    for known in designs:
        parts.append(f"## {known.title} (`{known.name}`)\n\n{_summary(known)}\n")
        parts.append(_table(row for row in dict.fromkeys(rows[known.name]) if row not in common))
    return "\n".join(parts)


def _summary(known: MachineSpec) -> str:
    source, certainty = known.fabric_source
    offers = (
        f" The network offers {', '.join(sorted(known.capabilities))}."
        if known.capabilities
        else ""
    )
    summary = known.fabric.summary
    models = MODEL_NAMES if known.gpu else (SIMULATION,)
    accuracy = "".join(f" {_accuracy(known, model)}" for model in models)
    return f"{summary[0].upper()}{summary[1:]} ({certainty}: {source}).{offers}{accuracy}"


def _accuracy(known: MachineSpec, model: str) -> str:
    name, found = MODEL_NAMES[model], known.accuracy.get(model)
    told = found.of_calls(()) if found else NOT_COMPARED
    return f"{name[0].upper()}{name[1:]} were {told}."


def _generations() -> Iterable[Row]:
    for gpu in known_gpus().values():
        yield from (
            _row(f"{gpu.product}: {what}", number)
            for what, number in (
                *(
                    [(f"{GPU_LINK_KINDS[gpu.link_kind]}, each of {gpu.links} links", gpu.link_rate)]
                    if gpu.links
                    else []
                ),
                ("PCIe", gpu.pcie_rate),
                ("memory", gpu.memory_rate),
                *([("memory size", gpu.memory_size)] if gpu.memory_size else []),
                ("kernel launch", gpu.kernel_launch),
                ("reduction", gpu.reduction.rate),
            )
        )


def _parts() -> Iterable[Row]:
    for name, part in known_parts().items():
        if "launch" in part:
            value = "cost of a reduction"
        elif "rate" in part or "segments" in part:
            value = "cost of messages"
        else:
            value = part.get("value", "")
        yield f"`{name}`", str(value), part.get("certainty", ""), part.get("source", "")


def _rows(known: MachineSpec) -> Iterable[Row]:
    for name, number in known.general_values().items():
        yield _row(name, number)
    kinds = {}
    for edge in known.node_spec.device_links:
        ends = sorted(name.rstrip("0123456789.") for name in (edge.a, edge.b))
        kinds[f"{edge.link_type.kind}, {ends[0]} to {ends[1]}, each of {edge.count}"] = (
            edge.link_type.rate
        )
    for name, rate in kinds.items():
        yield _row(name, rate)
    for name, number in known.path_values().items():
        if number.value or "overhead" not in name:
            yield _row(name, number)


def _row(name: str, number: SourcedValue) -> Row:
    return name, _value(number), number.certainty, number.source


def _value(number: SourcedValue) -> str:
    if math.isinf(number.value):
        return "never"
    scale: Mapping[str, tuple[float, str]] = {
        "s": (1e6, "us"),
        "B/s": (1e-9, "GB/s"),
        "B": (1, "B"),
    }
    factor, unit = scale.get(number.unit, (1, ""))
    if number.unit == "B" and number.value >= 1e9:
        factor, unit = 1e-9, "GB"
    return f"{number.value * factor:,.6g} {unit}".strip()


def _table(rows: Iterable[Row]) -> str:
    lines = ["| what | value | | source |", "|---|--:|---|---|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"
