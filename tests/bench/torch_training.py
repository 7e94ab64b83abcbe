"""A small real training with PyTorch on emulated hosts: gloo, the backend without and with a table.

    sudo python -m tests.bench.torch_training [--hosts N] [--rate RATE] [--latency TIME]
        [--table FILE | --budget TIME --out FILE] [--launches N] [--turns N] [--steps N]
        [--batch N] [--width N] [--bucket MIB] [--eager] [--python FILE]

A convolutional network learns images that the program makes, data parallel with one rank per host
(`torch_training_ranks`). In each launch the three train the same model on the same data and take
turns of some steps. Without `--table`, `tuner tune` makes one on the same hosts first. Printed are
medians of the step times with intervals, the ratios to gloo's over the launches, and how far the
losses are apart. `--eager` lets Open MPI send messages of all sizes at once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from tests.emulation.topologies import private_cluster
from tuner.base.statistics import median_interval
from tuner.base.units import format_size, format_time
from tuner.core.speedup import paired_speedup
from tuner.core.table import read_table
from tuner.emulation import EmulatedCluster, launch

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("TUNER_TORCH_PYTHON", ROOT / ".venv-torch" / "bin" / "python"))
EAGER = {"OMPI_MCA_btl_tcp_eager_limit": "16777216", "OMPI_MCA_btl_tcp_max_send_size": "1048576"}
LAUNCH_LIMIT_S = 1800.0
SIZES = "16KiB,128KiB,1MiB,2MiB"


def tuned(cluster: EmulatedCluster, topology: Path, options: argparse.Namespace) -> Path:
    """Make a table of allreduce on all hosts of the cluster; return its file."""
    hosts = cluster.network.hosts
    out: Path = options.out.resolve()
    words = ["tune", "--hosts", ",".join(hosts), "--topology", str(topology), "--out", str(out)]
    words += ["--collectives", "allreduce", "--shapes", f"{len(hosts)}x1", "--sizes", SIZES]
    words += ["--budget", options.budget, "--measurements", str(out.with_suffix(".ndjson"))]
    command = [sys.executable, "-m", "tuner.cli.main", *words]
    if launch.run(cluster, command, timeout=LAUNCH_LIMIT_S):
        sys.exit("no table was made")
    return out


def launched(cluster: EmulatedCluster, table: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train in one launch over all hosts; return what rank 0 told."""
    plan = {name: getattr(options, name) for name in ("turns", "steps", "batch", "width", "bucket")}
    plan["table"] = str(table.resolve())
    mpirun, ranks = options.python.with_name("mpirun"), len(cluster.network.hosts)
    variables = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = launch.launch_command(cluster, "openmpi", mpirun, ranks)
    words += chain.from_iterable(("-x", name) for name in variables)
    words += [str(options.python), "-m", "tests.bench.torch_training_ranks", json.dumps(plan)]
    done = subprocess.run(
        words,
        env={**os.environ, **variables},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=LAUNCH_LIMIT_S,
    )
    if done.returncode:
        sys.exit(done.stderr)
    followed = [line for line in done.stderr.splitlines() if "followed the table" in line]
    print(*followed, sep="\n", flush=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def report(found: Sequence[dict[str, Any]], batch: int) -> None:
    """Print times and ratios of all launches, and how far losses and weights are apart."""
    print(f"gradients of {format_size(4 * found[0]['parameters'])}")
    seconds = {
        name: [one["groups"][name]["seconds"] for one in found] for name in found[0]["groups"]
    }
    for name, launches in seconds.items():
        middle, low, high = median_interval([*chain.from_iterable(launches)])
        line = f"{name}: {format_time(middle)} a step ({format_time(low)} to {format_time(high)})"
        line += f", {batch / middle:.0f} images/s"
        if name != "gloo":
            ratio, least, most = paired_speedup(seconds["gloo"], launches)
            line += f", {ratio:.3f} times as fast as gloo ({least:.3f} to {most:.3f})"
        print(line)
    ratio, least, most = paired_speedup(seconds["default"], seconds["table"])
    print(f"table against default: {ratio:.3f} times as fast ({least:.3f} to {most:.3f})")
    for name in ("default", "table"):
        of_losses = max(_apart(one["groups"]["gloo"], one["groups"][name]) for one in found)
        of_weights = max(one["groups"][name]["apart"] for one in found)
        print(f"{name}: losses at most {of_losses:.1e} from gloo's, weights {of_weights:.1e}")
    losses = found[0]["groups"]["gloo"]["losses"]
    print(f"losses of gloo: {losses[0]:.3f} at first, {losses[-1]:.3f} after {len(losses)} steps")


def _apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the largest difference of two curves of losses, as a part of the first loss."""
    pairs = zip(one["losses"], other["losses"], strict=True)
    largest: float = max(abs(a - b) for a, b in pairs) / one["losses"][0]
    return largest


def arguments() -> argparse.ArgumentParser:
    """Return the parser."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rate", default="100Mbit/s", help="of the link of each host")
    parser.add_argument("--latency", default="200us", help="of the link of each host")
    parser.add_argument("--table", type=Path)
    parser.add_argument("--budget", default="3min", help="of `tuner tune`")
    parser.add_argument("--out", type=Path, default=Path("torch-training-table.json"))
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--turns", type=int, default=4, help="of each of the three in a launch")
    parser.add_argument("--steps", type=int, default=5, help="in a turn")
    parser.add_argument("--batch", type=int, default=16, help="images of a rank")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layer")
    parser.add_argument("--bucket", type=float, default=1.0, help="of DDP, in MiB")
    parser.add_argument("--eager", action="store_true", help="no rendezvous for long messages")
    parser.add_argument("--results", type=Path, help="write all times and losses there")
    parser.add_argument("--python", type=Path, default=PYTHON)
    return parser


def drive(options: argparse.Namespace) -> None:
    """Bring the hosts up, make the table, train and print what was found."""
    text = (
        f"{{name: training{options.hosts}, nodes: {options.hosts},"
        f" latency: {options.latency}, bandwidth: {options.rate}}}\n"
    )
    topology = options.out.with_suffix(".yaml").resolve()
    topology.write_text(text, encoding="utf-8")
    os.environ.update(EAGER if options.eager else {})
    cluster = private_cluster(text)
    cluster.up()
    try:
        table = options.table or tuned(cluster, topology, options)
        read_table(table)  # ranks would only log that they cannot
        found = [launched(cluster, table, options) for _ in range(options.launches)]
    finally:
        cluster.down()
    if options.results:
        options.results.write_text(json.dumps(found), encoding="utf-8")
    report(found, options.batch * options.hosts)


if __name__ == "__main__":
    drive(arguments().parse_args())
