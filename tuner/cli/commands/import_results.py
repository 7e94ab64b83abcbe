"""Read results that you already have, of OSU micro-benchmarks, IMB, nccl-tests, ucc_perftest, PICO
or tables, and what NCCL's Inspector recorded of production jobs, as measurements."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tuner.base.errors import UsageError
from tuner.base.units import humanize
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option, file_option
from tuner.cli.terminal.output import finish_command, print_cautions, print_result, print_text, warn
from tuner.cli.terminal.progress import reading
from tuner.core.measurement import Measurements
from tuner.importers import (
    AUTO,
    RESULT_FORMATS,
    BenchmarkResult,
    UserMetadata,
    as_measurements,
    read_all,
    write_measurements,
)
from tuner.importers.algorithm_names import check_algorithm_names, library_name

PURPOSE = (
    "Imported results are for `tuner evaluate`, `tuner train` and comparing with predictions;"
    " tables are made of probes of your own (`tuner probe`: Open MPI, MPICH)."
)
EXAMPLES = f"""examples:
  tuner import-results osu_allreduce.out --ranks 64 --nodes 8 --library "openmpi 5.0.11" \\
      --out m.ndjson
  tuner import-results osu_latency.out --nodes 2 --library "openmpi 5.0.11" --out latency.ndjson
  tuner import-results IMB-MPI1.out --ppn 8 --library "mpich 5.0.2" --out m.ndjson
  tuner import-results all_reduce.txt all_reduce.json --cluster dgx --out nccl.ndjson
  tuner import-results 512_ring_ompi_int32.csv --collective allreduce --nodes 8 --ppn 1 \\
      --library "openmpi 4.1.6" --cluster leonardo --out m.ndjson
  tuner import-results table.csv --library "openmpi 4.1.6" --out m.ndjson
  tuner import-results nccl-inspector-4711/ --library "nccl 2.29.7" --cluster dgx --out job.ndjson

What a file says needs no option; what it leaves open is asked for. Options hold for all files.
{PURPOSE}"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    file_option(
        parser,
        "files",
        "files to read; a folder stands for the files of NCCL's Inspector in it, which are of"
        " one job",
        nargs="+",
    )
    file_option(parser, "--out", "NDJSON file to write", required=True)
    add_format_option(parser)
    _add_metadata_options(parser)
    finish_command(parser, run)


def _add_metadata_options(parser: argparse.ArgumentParser) -> None:
    """Declare what a user may add to what the files say."""
    count_option(parser, "--ranks", "ranks that took part", metavar="N")
    count_option(parser, "--nodes", "nodes that these ranks were on", metavar="N")
    count_option(parser, "--ppn", "ranks on each node", metavar="N")
    parser.add_argument(
        "--collective", default="", metavar="NAME", help="collective, such as allreduce"
    )
    parser.add_argument(
        "--algorithm",
        default="",
        metavar="NAME",
        help="algorithm that the library was made to use (default: its own choice)",
    )
    parser.add_argument(
        "--param",
        action="append",
        type=argument_types.parameter,
        default=[],
        metavar="NAME=VALUE",
        help="parameter of that algorithm, such as segment=64KiB",
    )
    parser.add_argument(
        "--memory", choices=("host", "cuda"), default="", help="memory of the buffers"
    )
    _add_source_options(parser)


def _add_source_options(parser: argparse.ArgumentParser) -> None:
    """Declare where the results come from."""
    parser.add_argument(
        "--library",
        default="",
        metavar="NAME",
        help='library with its version, such as "openmpi 5.0.11"; selects one where a file has'
        " several",
    )
    parser.add_argument(
        "--cluster",
        default="",
        metavar="NAME",
        help="name of the cluster; selects one where a file has several",
    )
    count_option(parser, "--cores", "cores per node (default: the number of ranks)", metavar="N")


def add_format_option(parser: argparse.ArgumentParser) -> None:
    """Declare the option that names the format of the files."""
    parser.add_argument(
        "--format",
        choices=(AUTO, *RESULT_FORMATS),
        default=AUTO,
        metavar="NAME",
        help=f"format of the files: {', '.join(RESULT_FORMATS)} (default: recognised by"
        " their content)",
    )


def run(options: argparse.Namespace) -> None:
    """Read all files, and write their results to one."""
    told = UserMetadata(
        options.ranks,
        options.nodes,
        options.ppn,
        options.collective,
        options.algorithm,
        dict(options.param),
        options.memory,
    )
    readings = _read(options.files, options.format, told)
    check_algorithm_names(readings)
    _require_version(library_name(options.library), readings)
    found = as_measurements(readings, options.library, options.cluster, options.cores)
    write_measurements(found, options.out)
    record = _summary(found) | {"readings": len(readings), "out": str(options.out)}
    print_result(options.json, record, lambda: _print(found, len(readings), options.out))


def _read(files: Sequence[Path], form: str, told: UserMetadata) -> list[BenchmarkResult]:
    """Read all files; warn of what they lack, and show the progress of large ones."""
    with reading("reading", _bytes(files)) as progress:
        readings, notes = read_all(files, form, told, progress)
    for note in notes:
        warn(note)
    return readings


def _bytes(paths: Sequence[Path]) -> int:
    """Return the size of all files in bytes, without those that cannot be examined."""
    total = 0
    for path in paths:
        with suppress(OSError):
            files = path.iterdir() if path.is_dir() else (path,)
            total += sum(file.stat().st_size for file in files if file.is_file())
    return total


def _require_version(library: str, readings: Sequence[BenchmarkResult]) -> None:
    """Raise UsageError for a library without a version, if no file names one."""
    if library and " " not in library and not any(reading.library for reading in readings):
        raise UsageError(
            f'--library says no version of {library}: add it, as in --library "{library} 5.0.11"'
        )


def _summary(found: Measurements) -> dict[str, object]:
    return {
        "cluster": found.cluster.name,
        "library": found.library,
        "series": dict(sorted(Counter(series.kind for series in found.series).items())),
        "samples": sum(len(series.samples) for series in found.series),
        "excluded": found.provenance["excluded"],
    }


def _print(found: Measurements, readings: int, out: Path) -> None:
    print_text(
        f"{found.library} on {found.cluster}: {len(found.series)} series of {readings}"
        f" readings in {out}"
    )
    for line in found.provenance["excluded"]:
        print_text(f"left out: {humanize(line)}")
    single = sum(len(series.samples) == 1 for series in found.series)
    if single:
        print_cautions(
            [
                f"One sample alone is in {single} of {len(found.series)} series: such can be"
                " compared with predictions, but no rule rests on them."
            ]
        )
    print_text(PURPOSE)
