"""Say how far inference engines use their own all-reduce kernels before NCCL, and write it."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tuner.base.atomic_io import require_writable_dir
from tuner.base.errors import InputError, UsageError
from tuner.base.units import format_size
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import (
    print_cautions,
    print_command,
    print_result,
    print_table,
    print_text,
    warn,
)
from tuner.formats.inference_engines import (
    DEFAULT_CUT_OFFS,
    DISABLING_OPTION,
    SGLANG,
    VLLM,
    CutOff,
    cut_offs,
    for_gpu,
    is_named,
    is_of_generation,
    sglang_setting,
    vllm_limits,
    write_vllm_plugin,
)
from tuner.importers.backend_times import read_backend_times

EXAMPLES = """examples:
  tuner nccl backends --gpu B200
  tuner nccl backends times.csv --gpu H200 --tp 8
  tuner nccl backends custom_allreduce.csv nccl_one_node.csv --gpu B200 --out ~/cutoffs

RUNS have columns gpu, backend, gpus, bytes and time_us, and may have version: see
docs/how-to/nccl.md, which names the other forms. Without RUNS the cut-offs are those of times that
ai-dynamo/aiconfigurator published of A100, H100 and B200."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the files and options."""
    parser.add_argument(
        "runs",
        type=Path,
        nargs="*",
        metavar="RUNS",
        help="CSV of measured times (default: published ones)",
    )
    parser.add_argument("--gpu", metavar="PRODUCT", help="GPU to write settings for, such as H200")
    count_option(parser, "--tp", "number of GPUs, the tensor-parallel degree (default: all)")
    file_option(
        parser, "--out", "directory for the plugin that tells vLLM its limits", metavar="FOLDER"
    )


def run_backends(options: argparse.Namespace) -> None:
    """Print the cut-offs, and with a GPU the settings of engines."""
    times, notes = read_backend_times(options.runs)
    warn(*notes)
    known = cut_offs(times) if options.runs else DEFAULT_CUT_OFFS
    gpu, out = options.gpu, options.out
    if out and not gpu:
        raise UsageError("--out needs --gpu, whose limits it writes")
    found = _on_gpus(for_gpu(known, gpu) if gpu else known, options.tp)
    limits = vllm_limits(found, gpu) if gpu else {}
    if out and limits:
        require_writable_dir(out)
        write_vllm_plugin(out, limits)
    settings = list(_sglang_settings(found, gpu)) if gpu else []
    cautions = list(_cautions(found, gpu)) if gpu else []
    record = {
        "cut_offs": [asdict(one) for one in found],
        "vllm": {capability: dict(each) for capability, each in limits.items()},
        "sglang": {str(gpus): setting for gpus, setting in settings},
        "cautions": cautions,
    }

    def show() -> None:
        _print_cut_offs(found)
        print_cautions(cautions)
        if gpu:
            _print_vllm(limits, out)
            _print_sglang(settings)

    print_result(options.json, record, show)


def _on_gpus(found: Sequence[CutOff], gpus: int | None) -> list[CutOff]:
    """Return the cut-offs on this number of GPUs; raise InputError where it was not measured."""
    chosen = [one for one in found if gpus in (None, one.gpus)]
    if not chosen:
        measured = ", ".join(map(str, sorted({one.gpus for one in found})))
        raise InputError(f"--tp {gpus}: measured were {measured} GPUs")
    return chosen


def _cautions(found: Sequence[CutOff], gpu: str) -> Iterator[str]:
    """Yield sentences on what the cut-offs of a product are worth."""
    measured = found[0].gpu
    if not is_named(found[0], gpu):
        same = is_of_generation(found[0], gpu)
        ending = "" if same else ", and engines keep their own limits"
        yield f"{gpu} was not measured: these are cut-offs of {measured}, the nearest{ending}"
    never = [one for one in found if one.engine == VLLM and one.nbytes == 0]
    if never:
        numbers = ", ".join(str(one.gpus) for one in never)
        yield f"on {numbers} GPUs NCCL is faster at all sizes: give vLLM {DISABLING_OPTION}"


def _sglang_settings(found: Sequence[CutOff], gpu: str) -> Iterator[tuple[int, str]]:
    """Yield numbers of GPUs with what SGLang is to be told on these."""
    for one in found:
        setting = sglang_setting(one, gpu) if one.engine == SGLANG else ""
        if setting:
            yield one.gpus, setting


def _print_cut_offs(found: Sequence[CutOff]) -> None:
    print_table(
        "All-reduce on the GPUs of one node: an engine's own kernels, then NCCL",
        ("GPU", "engine", "version", "GPUs", "own kernels", "NCCL then faster by", "measured to"),
        (
            (
                one.gpu,
                one.engine,
                one.version,
                str(one.gpus),
                _own_sizes(one),
                f"{one.gain:.0%}" if one.gain else "",
                format_size(one.largest),
            )
            for one in found
        ),
        right=("GPUs", "NCCL then faster by", "measured to"),
    )


def _own_sizes(found: CutOff) -> str:
    """Return the sizes that an engine's own kernels run, in words."""
    if found.nbytes is None:
        return "all sizes"
    return f"up to {format_size(found.nbytes)}" if found.nbytes else "none"


def _print_vllm(limits: dict[str, dict[int, int]], out: Path | None) -> None:
    if not limits:
        print_text(f"vLLM: its own limits stay{f', and {out} is not written' if out else ''}")
        return
    for capability, each in limits.items():
        for gpus, limit in each.items():
            print_text(f'vLLM: CUSTOM_ALL_REDUCE_MAX_SIZES["{capability}"][{gpus}] = {limit}')
    if out:
        folder = shlex.quote(str(out.absolute()))
        command = f"export PYTHONPATH={folder}${{PYTHONPATH:+:$PYTHONPATH}}"
        print_command("make vLLM load them:", command)


def _print_sglang(settings: Sequence[tuple[int, str]]) -> None:
    for gpus, setting in settings:
        print_text(f"SGLang with --tp {gpus}: {setting}")
    if not settings:
        print_text("SGLang: its own limit stays")
