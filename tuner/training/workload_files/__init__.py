"""Models and recorded iterations of training, read from files of several formats."""

from __future__ import annotations

from pathlib import Path

from tuner.base.errors import InputError
from tuner.training.model import Model
from tuner.training.recorded import RecordedWorkload
from tuner.training.workload_files.chakra import SUFFIX, parse_chakra_trace, write_chakra_trace
from tuner.training.workload_files.file_contents import is_text, read_contents, text_lines
from tuner.training.workload_files.layer_table import is_layer_table, parse_layer_table
from tuner.training.workload_files.profile_graph import MARK, parse_profile_graph
from tuner.training.workload_files.profiler_trace import is_profiler_trace, parse_profiler_trace
from tuner.training.workload_files.simai import is_simai_workload, parse_simai_workload

__all__ = [
    "is_workload",
    "load_workload",
    "parse_layer_table",
    "parse_workload",
    "write_chakra_trace",
]


def load_workload(path: Path) -> Model | RecordedWorkload:
    """Return the model or the recorded iteration in a file, whose format its contents tell.

    Raises InputError that starts with the name of the file.
    """
    try:
        data, name = read_contents(path), path.name.partition(".")[0] or path.name
        if SUFFIX in path.suffixes:
            return parse_chakra_trace(data, name)
        return parse_workload(data, name)
    except InputError as reason:
        raise InputError(f"{path}: {reason}") from None


def is_workload(data: bytes) -> bool:
    """Return whether these are the bytes of a model or a recorded iteration in a known format."""
    if not is_text(data) or is_profiler_trace(data):
        return True
    lines = text_lines(data)
    return is_simai_workload(lines) or MARK in lines[0] or is_layer_table(lines)


def parse_workload(data: bytes, name: str) -> Model | RecordedWorkload:
    """Return the model or the recorded iteration in the bytes of a file; raises InputError.

    name    name of the model or workload
    """
    if not is_text(data):
        return parse_chakra_trace(data, name)
    if is_profiler_trace(data):
        return parse_profiler_trace(data, name)
    lines = text_lines(data)
    if is_simai_workload(lines):
        return parse_simai_workload(lines, name)
    if MARK in lines[0]:
        return parse_profile_graph(lines, name)
    if is_layer_table(lines):
        return parse_layer_table(lines, name)
    raise InputError(
        "none of the known formats: a CSV table of layers, graph.txt of PipeDream, a workload of"
        " SimAI, a trace of PyTorch's profiler, or one of Chakra (.et)"
    )
