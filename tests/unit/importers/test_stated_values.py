"""Every value that a file of results states changes what is read, or is named.

Files of all forms are made of those that the other tests have: with other times, orders of columns,
labels of launchers and ends of lines. Each is altered in one word at a time. What is read must then
differ, or a note or a refusal must name what was altered. The words on which no result rests are
declared here, reader by reader.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import csv_files, imb_files, nccl_tests_files, osu_files, ucc_files
from tests.support.inspector import call, dump, metric, ran
from tuner.base.errors import InputError
from tuner.importers import UserMetadata, read_all

FILES = 200
ALTERED_WORDS = 6  # of each file; the extended test alters all of some files
WORD = re.compile(r"[^\s,;:=\"'(){}\[\]<>]*[0-9A-Za-z][^\s,;:=\"'(){}\[\]<>]*")
NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
TIME = re.compile(r"(?<![\w.])[0-9]+\.[0-9]+(?![\w.])")
SIBLINGS = {
    "us": "ms",
    "GB/s": "MB/s",
    "sum": "max",
    "float": "double",
    "no": "yes",
    "host": "cuda",
}
LABELS = ("", "", "[0] ", " 3: ", "[1,0]<stdout>: ", "worker-3 | ")


@dataclass(frozen=True)
class Seed:
    """A file of one reader and what the user says of it."""

    reader: str
    text: str
    told: UserMetadata
    name: str = "results.txt"


PARTS = UserMetadata(p=8, nodes=2)
SEEDS = (
    Seed("osu", osu_files.ALLREDUCE, PARTS),
    Seed("osu", osu_files.FULL, PARTS),
    Seed(
        "osu",
        "# OSU MPI-CUDA Multiple Bandwidth / Message Rate Test v7.4\n"
        "# [ pairs: 2 ] [ window size: 32 ]\n# Datatype: MPI_CHAR.\n"
        "# Size                  MB/s        Messages/s\n"
        "4096                 1843.25         450012.75\n8192    2843.5  347106.5\n",
        UserMetadata(nodes=2),
    ),
    Seed(
        "imb",
        imb_files.whole(
            imb_files.block("Bcast", 2, imb_files.ROW, imb_files.ROW.replace("16", "64"))
        ).replace("# List", "# MPI_Datatype                   :   MPI_BYTE\n# List"),
        UserMetadata(ppn=2),
    ),
    Seed(
        "imb",
        imb_files.whole(
            imb_files.block(
                "Allreduce",
                4,
                imb_files.ROW,
                remark="# ( 4 additional processes waiting in MPI_Barrier)",
            )
        ).replace("# List", "# MPI_Datatype for reductions    :   MPI_FLOAT\n# List"),
        UserMetadata(nodes=4),
    ),
    Seed(
        "nccl-tests",
        nccl_tests_files.table(nccl_tests_files.ROW, nccl_tests_files.ROW.replace("1024", "2048")),
        UserMetadata(),
    ),
    Seed(
        "nccl-tests",
        nccl_tests_files.table(nccl_tests_files.ROW)
        .replace("nccl-tests version", "rccl-tests: version")
        .replace("NVIDIA H100", "AMD Instinct MI300X"),
        UserMetadata(),
    ),
    Seed("nccl-tests JSON", str(nccl_tests_files.record()).replace("'", '"'), UserMetadata()),
    Seed("ucc_perftest", ucc_files.table("Allgather"), PARTS),
    Seed(
        "ucc_perftest",
        ucc_files.table("Allreduce", f"{ucc_files.ROW}  1.5  2.5  0.5", rates=True, total=""),
        PARTS,
    ),
    Seed(
        "pico",
        csv_files.ITERATIONS,
        UserMetadata(nodes=2, collective="bcast"),
        "512_ring_int32.csv",
    ),
    Seed("pico summary", f"{csv_files.SUMMARY}\n{csv_files.SUMMARIZED}\n", UserMetadata()),
    Seed("csv", f"{csv_files.HEAD}\n{csv_files.ROW}\n", UserMetadata()),
    Seed(
        "csv",
        "metric,value,unit,size_bytes,nodes,library,gpu\nlatency,2.5,us,64,2,OMPI,no\n"
        "bandwidth,9.5,GB/s,4096,2,OMPI,yes\n",
        UserMetadata(),
    ),
    Seed("inspector", dump([call(1, **ran()), call(2, 60, **ran())], p=1, nodes=1), UserMetadata()),
    Seed(
        "inspector metrics",
        metric(nranks="1", n_nodes="1") + metric("62", nranks="1", n_nodes="1", coll_sn="8"),
        UserMetadata(),
    ),
)
LABELLED = ("osu", "imb", "nccl-tests", "ucc_perftest")
COLUMNAR = ("pico summary", "csv")

# The words on which no result rests: what the groups of these patterns match, or whole columns.
NO_RESULT_RESTS_ON: dict[str, tuple[str, ...]] = {
    "osu": (
        r" Test (v\S+)$",
        r"Size +(Avg Latency\(us\))(?=.*Max)",  # the slowest rank's time is used
        r"(Iterations)$",
        r"^\d+ +([\d.]+) +[\d.]+ +[\d.]+ +(\d+)$",
        r"(Messages/s)$",  # derived, as the rate per message
        r"^\d+ +[\d.]+ +([\d.]+)$",
    ),
    "imb": (
        r"^# +(Intel.*)$",
        r"^# (List of.*\n# .*)$",
        r"(#repetitions) .*(t_avg\[usec\])$",  # the slowest rank's time is used
        r"^ +\d+ +(\d+) +[\d.]+ +[\d.]+ +([\d.]+)$",
        r"(in MPI_Barrier)",
        r"entering (MPI_Finalize)",
    ),
    "nccl-tests": (
        r"^# (\wccl-tests:? version \S+ nccl-headers=\d+)",
        r"^# (Collective test starting):",
        r"^# (nThread.*)$",  # the rows and ranks that follow say it
        r"^# (Using devices)$",
        r"Pid +(\d+)",
        r"(device .*)$",
        r"^ +\d+ +(\d+) +\w+ +\w+ +(-?\d+)",  # elements, which follow from the size, and the root
        r"^ +\d+ +\d+ +\S+ +\S+ +\S+ +[\d.]+ +([\d.]+ +[\d.]+) +\d+ +(.*)$",  # rates; in place
        r"^# (Out of bounds.*)$",  # stated row by row
        r"^# (Avg bus.*)$",
    ),
    "nccl-tests JSON": (
        r'"version": (\d+)',
        r'"args": \["[^"]*", (.*?)\]',
        r'"env": \[(.*?)\]',
        r'"count": (\d+)',
        r'"actual_iterations": (\d+)',
        r'"root": "\s*(\S+)"',
        r'_bw": ([\d.]+)',
        r'"in_place": (\{.*?\})',
        r'"experiment_name": (\S+)',
    ),
    "ucc_perftest": (
        r"^(?:Warmup|Iterations):\n(.*\n.*)$",
        r"Time, us +(Bus.*)$",  # bandwidths are derived from times
        r"^ +avg +min +max +(avg.*)$",
        r"^ +\d+ +\d+ +([\d.]+)",  # the slowest rank's time is used
        r"^ +\d+ +\d+ +[\d.]+ +[\d.]+ +[\d.]+ +(\S.*)$",
        r"^Total time: (.*)$",
    ),
    "pico": (
        r"^highest.*\n(.*)$",  # a fifth of the iterations is warm-up
        r"^\d+,(.*)$",  # the slowest rank's time is used
    ),
    "pico summary": ("array_dim", "mean", "n_iter"),  # named in a note
    "csv": ("n_iter",),  # named in a note
    "inspector": (
        r'"id":"(\w+)"',  # of the only communicator
        r'"rec_mechanism":"(\w+)"',
        r'"dump_timestamp_us":(\d+)',
        r'"hostname":"(\w+)"',
        r'"pid":(\d+)',
        r'"coll_dropped_total":(\d+)',
        r'"coll_sn":(\d+)',  # tells calls apart
        r'bw_gbs":([\d.]+)',
    ),
    "inspector metrics": (
        r'comm_id="(\w+)"',
        r'hostname="(\w+)"',
        r'slurm_job="(\w+)"',
        r'gpu_device_id="(\w+)"',
        r'timestamp="(.*?)"',
        r'coll_sn="(\d+)"',  # tells calls apart
    ),
}


def outcome(path: Path, content: bytes, told: UserMetadata) -> tuple[object, list[str]]:
    """Return what is read and the notes, or nothing and the refusal."""
    path.write_bytes(content)
    try:
        return read_all([path], metadata=told)
    except InputError as reason:
        said = str(reason)
        assert "\n" not in said
        assert len(said) < 600
        return None, [said]


def varied(seed: Seed, chance: random.Random) -> str:
    """Return the text with other times and, of a table, another order of columns."""

    def other(found: re.Match[str]) -> str:
        decimals = len(found[0].partition(".")[2])
        return f"{factor * float(found[0]):.{decimals}f}"

    factor = chance.uniform(1, 60)
    text = TIME.sub(other, seed.text)
    if seed.reader not in COLUMNAR:
        return text
    rows = [line.split(",") for line in text.splitlines()]
    order = chance.sample(range(len(rows[0])), len(rows[0]))
    return "".join(",".join(row[n] for n in order) + "\n" for row in rows)


def dressed(seed: Seed, text: str, form: int) -> bytes:
    """Return the text as a launcher and an editor may leave it."""
    label = LABELS[form % len(LABELS)] if seed.reader in LABELLED else ""
    lines = "".join(f"{label}{line}\n" for line in text.splitlines())
    content = lines.replace("\n", "\r\n") if form % 3 == 0 else lines
    return content.encode(
        "utf-8-sig" if form % 5 == 0 and "inspector" not in seed.reader else "utf-8"
    )


def free_spans(seed: Seed, text: str) -> Iterator[tuple[int, int]]:
    """Yield where words stand on which no result rests."""
    declared = NO_RESULT_RESTS_ON[seed.reader]
    if seed.reader not in COLUMNAR:
        for pattern in declared:
            for found in re.finditer(pattern, text, re.M):
                yield from (found.span(group) for group in range(1, len(found.groups()) + 1))
        return
    head, *rows = text.splitlines()
    at = len(head) + 1
    for row in rows:
        for name, cell in zip(head.split(","), row.split(","), strict=True):
            if name in declared:
                yield at, at + len(cell)
            at += len(cell) + 1


def values(seed: Seed, text: str) -> list[re.Match[str]]:
    """Return the words on which results rest; keys of JSON and names of labels are no values."""
    free = list(free_spans(seed, text))
    keyed = seed.reader.endswith("JSON") or seed.reader.startswith("inspector")
    return [
        word
        for word in WORD.finditer(text)
        if not any(begin <= word.start() < end for begin, end in free)
        and not (keyed and re.match(r'"?\s*[:={]', text[word.end() :]))
    ]


def another(word: str, chance: random.Random) -> str:
    """Return another value in place of a word."""
    if NUMBER.fullmatch(word):
        digit = str((int(word[-1]) + chance.randint(1, 9)) % 10)
        return chance.choice([word[:-1] + digit, f"{chance.randint(1, 9)}{word}"])
    return SIBLINGS.get(word, f"{word}q")


def unnoticed(number: int, path: Path, n_words: int | None) -> Iterator[str]:
    """Yield the alterations of a file that leave no trace; None: alter all words."""
    seed, chance = SEEDS[number % len(SEEDS)], random.Random(number)
    text, form = varied(seed, chance), chance.randrange(60)
    base = outcome(path / seed.name, dressed(seed, text, form), seed.told)
    assert base[0] is not None, base[1]
    words = values(seed, text)
    for word in words if n_words is None else chance.sample(words, min(n_words, len(words))):
        put = another(word[0], chance)
        altered = text[: word.start()] + put + text[word.end() :]
        found = outcome(path / seed.name, dressed(seed, altered, form), seed.told)
        line = text[: word.start()].count("\n") + 1
        what = f"file {number}, {seed.reader}, line {line}: {put!r} instead of {word[0]!r}"
        if found == base:
            yield f"{what}: makes no difference"
        if found[0] is None and not re.search(r"\bline [0-9]+", found[1][0]):
            yield f"{what}: the refusal has no line: {found[1][0]}"


@pytest.mark.parametrize("part", range(4))
def test_an_altered_value_changes_the_result_or_is_named(part: int, tmp_path: Path) -> None:
    lost = [
        each
        for number in range(part, FILES, 4)
        for each in unnoticed(number, tmp_path, ALTERED_WORDS)
    ]
    assert not lost, "\n".join(lost)


@pytest.mark.extended
@pytest.mark.parametrize("number", range(2 * len(SEEDS)))
def test_all_altered_values_change_the_result_or_are_named(number: int, tmp_path: Path) -> None:
    lost = list(unnoticed(number, tmp_path, None))
    assert not lost, "\n".join(lost)


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.reader)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_another_encoding_is_refused_or_does_no_harm(
    seed: Seed, encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / seed.name
    readings, said = outcome(path, f"{seed.text}\u00e9\n".encode(encoding), seed.told)
    if readings is None:
        assert "line " in said[0]
    else:  # what the reader needs is in ASCII
        assert readings == outcome(path, seed.text.encode(), seed.told)[0]


@pytest.mark.parametrize("name", ["513_ring", "512_tree", "512_ring_int64", "ring"])
def test_the_name_of_a_file_of_iterations_states_values(name: str, tmp_path: Path) -> None:
    seed = next(seed for seed in SEEDS if seed.reader == "pico")
    other = seed.name.replace("512_ring" if "int" not in name else "512_ring_int32", name)
    results = [
        outcome(tmp_path / each, seed.text.encode(), seed.told)[0] for each in (seed.name, other)
    ]
    stated = [
        [(one.nbytes, one.algorithm) for one in readings] if isinstance(readings, list) else None
        for readings in results
    ]
    assert stated[0] is not None
    assert stated[0] != stated[1]


def test_a_cut_file_is_read_or_refused(tmp_path: Path) -> None:
    for number in range(FILES):
        seed, chance = SEEDS[number % len(SEEDS)], random.Random(number)
        content = dressed(seed, varied(seed, chance), chance.randrange(60))
        outcome(tmp_path / seed.name, content[: chance.randrange(len(content))], seed.told)


def test_what_is_declared_is_in_the_files() -> None:
    """Check that no pattern is superfluous."""
    for reader, declared in NO_RESULT_RESTS_ON.items():
        texts = [seed.text for seed in SEEDS if seed.reader == reader]
        for pattern in declared:
            assert any(re.search(pattern, text, re.M) for text in texts), (reader, pattern)
