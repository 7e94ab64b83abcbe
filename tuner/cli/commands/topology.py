"""List the machines that are known by name; show and draw them, and topologies from files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tuner.base.atomic_io import require_writable_file, write_atomically
from tuner.base.errors import InputError
from tuner.base.spelling import unknown_name
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import add_subcommand, print_result, print_table, warn
from tuner.cli.views.machine_view import machine_record, print_machine
from tuner.machines import PRESETS, Machine, MachineSpec, preset_spec, with_nodes
from tuner.machines.loader import load_machine, machine_warnings
from tuner.machines.yaml_machines import PRESET_PREFIX
from tuner.topology import GPU

EXAMPLES = """examples:
  tuner topology list
  tuner topology show summit
  tuner topology show dgx-h100 --nodes 64 --json
  tuner topology show ./mine.yaml --nodes 64
  tuner topology draw dgx-1v -o node.svg
  tuner topology draw summit -o fabric.png --view fabric
  tuner simulate --topology preset:dgx-h100:16 --collective allreduce --sizes 64MiB --ppn 8

A NAME is one that `tuner topology list` prints, also written preset:NAME or preset:NAME:NODES;
everything else is the file of a machine or a topology, in any format."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add_subcommand(actions, "list", "print the machines that are known by name", EXAMPLES, run_list)
    what = "print devices, links, costs, and where each number is from"
    show = add_subcommand(actions, "show", what, EXAMPLES, run_show)
    draw = add_subcommand(
        actions, "draw", "draw the inside of a node, or the fabric", EXAMPLES, run_draw
    )
    for action in (show, draw):
        action.add_argument("machine", metavar="NAME|FILE")
        count_option(action, "--nodes", "number of nodes to keep (default: all)")
        file_option(
            action, "--node-topology", "topology file of one computer: the inside of every node"
        )
    draw.add_argument(
        "-o",
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="picture to write, .svg or .png",
    )
    draw.add_argument(
        "--view",
        choices=("node", "fabric"),
        help="view to draw (default: node, where the inside of nodes is known)",
    )


def run_list(options: argparse.Namespace) -> None:
    """Print one line per preset."""
    records = [_listed(preset_spec(name)) for name in PRESETS]
    columns = ("name", "gpus", "nodes", "nics", "fabric", "source")
    print_result(
        options.json,
        records,
        lambda: print_table(
            "machines known by name",
            columns,
            (
                [
                    f"{record[column]:,}" if column == "nodes" else str(record[column])
                    for column in columns
                ]
                for record in records
            ),
            right=("nodes", "nics"),
            droppable=("source", "nics"),
            wrappable=("gpus", "fabric"),
        ),
    )


def _listed(known: MachineSpec) -> dict[str, Any]:
    gpus = len(known.node_spec.device_names(GPU))
    return {
        "name": known.name,
        "title": known.title,
        "gpus": f"{gpus} x {known.product}",
        "nodes": int(known.nodes.value),
        "nics": len(known.node_spec.device_names("nic")),
        "fabric": known.fabric.summary,
        "source": known.source,
    }


def run_show(options: argparse.Namespace) -> None:
    """Print everything that is known about one machine."""
    machine = _machine(options.machine, options.nodes, options.node_topology)
    warn(*machine_warnings(machine))
    print_result(options.json, machine_record(machine), lambda: print_machine(machine))


def run_draw(options: argparse.Namespace) -> None:
    """Write a picture of a node or the fabric."""
    from tuner.report.drawing import render_image  # matplotlib takes a second to load
    from tuner.report.fabric_diagram import draw_fabric
    from tuner.report.node_diagram import draw_node

    argument_types.require_image_suffix(options.out, "--out")
    require_writable_file(options.out, Path(options.machine), options.node_topology)
    machine = _machine(options.machine, options.nodes, options.node_topology)
    title = machine.spec.title if machine.spec else machine.name
    interior = machine.topology.nodes[0].node_topology
    what = options.view or ("fabric" if interior is None else "node")
    if what == "fabric":
        summary = machine.spec.fabric.summary if machine.spec else ""
        figure = draw_fabric(machine.topology, title, summary)
    elif interior is None:
        raise InputError(
            f"{machine.name} does not say what is inside its nodes: draw it with --view fabric"
        )
    else:
        figure = draw_node(interior, title)
    write_atomically(options.out, render_image(figure, options.out.suffix.removeprefix(".")))
    print_result(options.json, {"file": str(options.out), "what": what}, lambda: print(options.out))


def _machine(name: str, nodes: int | None, node_topology: Path | None) -> Machine:
    """Return the machine of a preset's name or of a file, with so many nodes if given."""
    is_reference = name.startswith(PRESET_PREFIX)
    if not (is_reference or name in PRESETS or "." in name or Path(name).exists()):
        raise InputError(unknown_name("preset or file", name, PRESETS))
    found = load_machine(
        f"{PRESET_PREFIX}{name}" if name in PRESETS else name, node_topology=node_topology
    )
    if nodes is None:
        return found
    if is_reference or found.spec is None:
        raise InputError(
            f"--nodes is for a preset by its name, and for the file of a machine with costs, not"
            f" for {name!r}; presets: {', '.join(PRESETS)}"
        )
    return with_nodes(found, nodes)
