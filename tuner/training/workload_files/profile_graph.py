"""Profiles of layers as `graph.txt` of PipeDream's profiler has them, with measured times.

    node2 -- Conv2d(3, 64, ...) -- forward_compute_time=22.307, backward_compute_time=24.613,
        activation_size=1644167168.000, parameter_size=7168.000          (one line)
    <tab>node1 -- node2

Times are milliseconds of a pass over one batch, sizes bytes. An edge goes from a node to one that
uses its output. The size of the batch is not in the file: it follows from the output of the last
linear layer, and without one a whole pass counts as a sample. The forward time of an input is that
of loading data, and is left out. The GPU is not in the file either, so that only the shape of the
times over the layers should be used, by giving the rate of one rank in the workload.

Source: profiler/ of github.com/msr-fiddle/pipedream (commit 7db6a1c)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tuner.base.errors import InputError, shortened_repr
from tuner.importers.text import parse_float
from tuner.training.model import SECONDS, Model, ModelLayer, Tensor
from tuner.training.workload_files.dependency_order import dependency_order

MILLISECONDS = 1e3  # in a second
ELEMENT_BYTES = 4
MAX_NODES = 100_000
MAX_LINE_CHARACTERS = 10_000
MARK = "forward_compute_time="
_NODE = re.compile(
    r"node([0-9]{1,9}) -- (.*) -- forward_compute_time=(\S+), backward_compute_time=(\S+),"
    r" activation_size=(\S+|\[[^]]*\]), parameter_size=(\S+)"
)
_EDGE = re.compile(r"\s*node([0-9]{1,9}) -- node([0-9]{1,9})")
_MODULE = re.compile(r"(\w+)(?:\((.*)\))?")
_OUTPUTS = re.compile(r"(?:in_features=)?[0-9]{1,9}, (?:out_features=)?([0-9]{1,9})")
_WITH_BIAS = ("Conv2d", "Linear")


@dataclass(frozen=True)
class ProfiledNode:
    """A node of the graph: a module with its arguments, its seconds per pass, and its bytes."""

    number: int
    module: str
    arguments: str
    forward: float
    backward: float
    activation_bytes: float
    parameter_bytes: float

    @property
    def outputs(self) -> int:
        """Output channels or features of a module with weights, 0 where the file has none."""
        found = _OUTPUTS.match(self.arguments)
        return int(found[1]) if found and self.module in _WITH_BIAS else 0

    def tensors(self) -> Iterator[Tensor]:
        """Yield weight and bias of a module that has both, else its parameters as one tensor."""
        elements = int(self.parameter_bytes) // ELEMENT_BYTES
        bias = 0
        if self.module.startswith("BatchNorm"):
            bias = elements // 2
        elif self.outputs and "bias=False" not in self.arguments:
            bias = self.outputs
        name = f"node{self.number}"
        if elements > bias > 0:
            yield Tensor(f"{name}.weight", elements - bias)
            yield Tensor(f"{name}.bias", bias)
        elif elements:
            yield Tensor(name, elements)


def parse_profile_graph(lines: list[str], name: str) -> Model:
    """Return the model of a profile; its times are of one sample.

    name    name of the model

    Raises InputError naming the line.
    """
    nodes: dict[int, ProfiledNode] = {}
    edges: list[tuple[int, int, int]] = []
    for line, text in enumerate(lines, 1):
        if len(text) > MAX_LINE_CHARACTERS or len(nodes) > MAX_NODES or len(edges) > MAX_NODES:
            raise InputError(f"line {line}: too long for a profile of layers")
        if edge := _EDGE.fullmatch(text):
            edges.append((line, int(edge[1]), int(edge[2])))
        elif text.strip():
            node = _node(text, line)
            if node.number in nodes:
                raise InputError(f"line {line}: node{node.number} is in the file twice")
            nodes[node.number] = node
    ordered = _forward_order(nodes, edges)
    batch = _batch(ordered)
    layers = tuple(_layer(node, batch or 1) for node in ordered)
    return Model(name, layers, SECONDS, "image" if batch else "pass")


def _node(text: str, line: int) -> ProfiledNode:
    found = _NODE.fullmatch(text)
    module = _MODULE.fullmatch(found[2]) if found else None
    if found is None or module is None:
        raise InputError(
            f"line {line}: neither a node with its times nor an edge: {shortened_repr(text)}"
        )
    forward = parse_float(found[3], "forward_compute_time", line) / MILLISECONDS
    backward = parse_float(found[4], "backward_compute_time", line) / MILLISECONDS
    outputs = found[5].strip("[]").split(";")  # a list if the node has several
    activations = sum(parse_float(one.strip(), "activation_size", line) for one in outputs)
    parameters = parse_float(found[6], "parameter_size", line)
    is_input = module[1].startswith("Input")
    return ProfiledNode(
        int(found[1]),
        module[1],
        module[2] or "",
        0.0 if is_input else forward,
        backward,
        activations,
        parameters,
    )


def _forward_order(
    nodes: dict[int, ProfiledNode], edges: list[tuple[int, int, int]]
) -> list[ProfiledNode]:
    """Return the nodes so that each follows those whose output it uses, else by number."""
    for line, *ends in edges:
        for number in ends:
            if number not in nodes:
                raise InputError(f"line {line}: node{number} is missing: the file has no times")
    ordered = dependency_order(nodes, [(source, user) for _, source, user in edges])
    if len(ordered) < len(nodes):
        raise InputError("the edges form a cycle: no order of the layers is a forward pass")
    return [nodes[number] for number in ordered]


def _batch(nodes: list[ProfiledNode]) -> int:
    """Return the samples of a pass, 0 where no linear layer tells them."""
    linear = [node for node in nodes if node.module == "Linear" and node.outputs]
    return int(linear[-1].activation_bytes) // (ELEMENT_BYTES * linear[-1].outputs) if linear else 0


def _layer(node: ProfiledNode, batch: int) -> ModelLayer:
    return ModelLayer(
        f"node{node.number} {node.module}",
        node.forward / batch,
        node.backward / batch,
        tuple(node.tensors()),
        int(node.activation_bytes) // (ELEMENT_BYTES * batch),
    )
