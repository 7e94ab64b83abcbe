"""Our tuner plugin: it decides as the table, and leaves everything else to NCCL."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.nccl import (
    ALGORITHMS,
    COLLECTIVES,
    EVERY_SHAPE,
    LARGEST,
    PROTOCOLS,
    UNTOUCHED,
    Caller,
    Shape,
    answer,
    build,
    copied,
    every_way,
    has,
    on_shapes,
    sizes_of,
)
from tests.support.properties import examples
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, RuleKey, TuningTable
from tuner.formats.nccl import emit_sparse
from tuner.formats.nccl.plugin import with_digest_header
from tuner.mpi_libraries.nccl.constants import AlgoProto
from tuner.mpi_libraries.nccl.names import algo_protos_of, choice_of

pytestmark = pytest.mark.slow

VERSIONS = (2, 3, 4, 5, 6, 7)
ALLREDUCE = Collective.ALLREDUCE
INFO = 3
WARN = 2


@pytest.fixture(scope="session")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Caller:
    """Under AddressSanitizer and UndefinedBehaviorSanitizer, without them where there are none."""
    folder = tmp_path_factory.mktemp("caller")
    return build(folder, "address" if has("address", folder) else "")


@pytest.fixture
def caller(sanitized: Caller, tmp_path: Path) -> Caller:
    return copied(sanitized, tmp_path)


def test_the_sanitizers_watch(sanitized: Caller) -> None:
    if not has("address", sanitized.program.parent):
        pytest.skip("this compiler has no AddressSanitizer: the plugin is tried without")
    assert b"__asan_init" in sanitized.library.read_bytes()
    assert b"__ubsan_handle" in sanitized.library.read_bytes()


def require_followed(
    caller: Caller, table: TuningTable, version: int, shapes: tuple[Shape, ...] = EVERY_SHAPE
) -> int:
    """Ask for every collective on shapes; return how many calls were asked."""
    caller.with_rows(emit_sparse(table))
    commands, expected = list[str](), list[tuple[int, ...]]()
    for number, (nodes, ppn) in enumerate(shapes):
        commands.append(f"open {version} {nodes * ppn} {nodes} {ppn} {ppn}")
        for index, collective in enumerate(COLLECTIVES):
            key = RuleKey(collective, nodes, ppn, "cuda")
            for nbytes in sizes_of(table, key):
                commands.append(f"ask {number} {index} {nbytes} 7 0")
                expected.append(answer(table, key, nbytes, version))
    commands += [f"close {number}" for number in range(len(shapes))]
    said = caller.run(commands)
    wrong = [(a, e) for a, e in zip(said.answers, expected, strict=True) if a != e]
    assert wrong == []
    assert {level for level, _ in said.messages} == {INFO}
    return len(expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_decides_as_the_table(caller: Caller, version: int) -> None:
    assert require_followed(caller, every_way(), version) > 1000


CHOICES = {
    collective: st.sampled_from(
        [
            AlgorithmChoice(),
            *(choice_of(way, n) for way in algo_protos_of(collective) for n in (0, 1, 7, 64)),
        ]
    )
    for collective in COLLECTIVES
}
PLACES = st.sampled_from([(c, shape) for c in COLLECTIVES for shape in EVERY_SHAPE])


@st.composite
def tables(draw: st.DrawFn) -> TuningTable:
    """Any rules for any of the collectives and shapes."""
    ladders = {}
    for collective, shape in draw(st.sets(PLACES, min_size=1, max_size=6)):
        bounds = sorted(draw(st.sets(st.integers(1, LARGEST), max_size=8)))
        ladders[collective, shape] = [(lo, draw(CHOICES[collective])) for lo in (0, *bounds)]
    return on_shapes(ladders)


@settings(
    max_examples=examples(40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(table=tables(), version=st.sampled_from(VERSIONS))
def test_it_decides_as_any_table(caller: Caller, table: TuningTable, version: int) -> None:
    assert require_followed(caller, table, version) > 0


def test_rules_for_the_same_ranks_on_other_nodes_are_apart(caller: Caller) -> None:
    table = on_shapes(
        {
            (ALLREDUCE, (2, 8)): [(0, AlgorithmChoice("tree_ll"))],
            (ALLREDUCE, (4, 4)): [(0, AlgorithmChoice("ring_ll"))],
        }
    )
    caller.with_rows(emit_sparse(table))
    opened = ["open 5 16 2 8 8", "open 5 16 4 4 4", "open 5 16 1 16 16"]
    said = caller.run([*opened, *(f"ask {i} 4 9 7 0" for i in range(3))])
    assert said.answers == ((0, 0, -1), (1, 0, -1), UNTOUCHED)


@pytest.mark.parametrize("version", VERSIONS[1:])
@pytest.mark.parametrize("own", algo_protos_of(ALLREDUCE), ids=str)
def test_what_nccl_cannot_run_is_left_alone(caller: Caller, version: int, own: AlgoProto) -> None:
    entry = 3 * ALGORITHMS.index(own.algorithm) + PROTOCOLS.index(own.protocol.lower())
    caller.with_rows(emit_sparse(on_shapes({(ALLREDUCE, (1, 8)): [(0, choice_of(own, 16))]})))
    every, alone = (1 << 21) - 1, 1 << entry
    said = caller.run(
        [
            f"open {version} 8 1 8 8",
            f"ask 0 4 64 7 {alone:x}",
            f"ask 0 4 64 7 {every - alone:x}",
            f"ask 0 4 64 {entry // 3} 0",  # an earlier NCCL, which has no such algorithm
        ]
    )
    assert said.answers[0] == said.answers[2] == UNTOUCHED
    assert said.answers[1][:2] == divmod(entry, 3)


def test_protocols_that_nccl_does_not_have(caller: Caller) -> None:
    caller.with_rows("allreduce,0,9,ring,ll,-1,1,8\nallreduce,10,19,ring,simple,4,1,8\n")
    for version in VERSIONS[1:]:
        said = caller.run([f"open {version} 8 1 8 8", "few 0 4 9", "few 0 4 10"])
        assert said.answers == ((1, 0, -1), UNTOUCHED)


def test_calls_that_no_rule_is_for(caller: Caller) -> None:
    rows = "allreduce,100,200,ring,ll,4,2,16\nbroadcast,0,9,ring,ll,-1,1,8\n"
    caller.with_rows(rows)
    said = caller.run(
        [
            "open 5 16 2 8 8",
            *(f"ask 0 4 {nbytes} 7 0" for nbytes in (99, 100, 200, 201)),
            *(f"ask 0 {collective} 150 7 0" for collective in (-1, 0, 1, 2, 3, 5, 6, 99)),
            "open 5 8 2 4 4",
            "ask 1 4 150 7 0",
            "open 5 16 1 16 16",
            "ask 2 4 150 7 0",
            "open 5 0 0 0 0",
            "ask 3 4 150 7 0",
        ]
    )
    assert said.answers == (UNTOUCHED, (1, 0, 4), (1, 0, 4), *[UNTOUCHED] * 12)


@pytest.mark.parametrize("version", VERSIONS)
def test_ranks_spread_unevenly_are_left_to_nccl(caller: Caller, version: int) -> None:
    """12 ranks on 2 nodes may be 6 and 6 or 8 and 4; from version 5 on NCCL says which."""
    caller.with_rows("allreduce,0,99,ring,ll,-1,2,12\n")
    said = caller.run(
        [f"open {version} 12 2 4 8", "ask 0 4 9 7 0", f"open {version} 12 2 6 6", "ask 1 4 9 7 0"]
    )
    expected = UNTOUCHED if version >= 5 else (1, 0, -1)
    assert said.answers == (expected, (1, 0, -1))
    unevenly = [text for _, text in said.messages if "unevenly over 2 nodes" in text]
    assert len(unevenly) == (version >= 5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("variable", ["NCCL_ALGO", "NCCL_PROTO"])
@pytest.mark.parametrize("value", ["ring", ""])
def test_it_steps_aside_for_what_the_user_forces(
    caller: Caller, version: int, variable: str, value: str
) -> None:
    caller.with_rows("allreduce,0,99,ring,ll,4,1,8\n")
    opened = [f"open {version} 8 1 8 8"] * 3
    said = caller.run([*opened, "ask 1 4 9 7 0", "close 0", "close 1"], {variable: value})
    assert said.results == ("0 nothing", "1 nothing", "2 nothing", "-1 -1 -1")
    assert said.messages == ((INFO, f"TUNER/tuner: {variable} is set: no rules are followed"),)


def test_every_rank_logs_the_digest(caller: Caller) -> None:
    rows = "allreduce,0,99,ring,ll,-1,1,8\nallreduce,0,9,tree,ll128,-1,2,16\n"
    digest = with_digest_header(rows).split("\n")[0].rpartition(" ")[2]
    said = caller.with_rows(rows).run(["open 5 16 2 8 8", "open 2 16 2 8 8"])
    told = f"TUNER/tuner: {{}} of 2 rules (fnv1a64 {digest}) are followed on 16 ranks, 2 nodes"
    assert [text for _, text in said.messages] == [
        told.format(1),
        told.format(0) + ", of those for ring and tree in ll and simple, without channels",
    ]


GOOD = "allreduce,0,65535,tree,ll128,-1,2,16\nallreduce,65536,131071,nvls,simple,-1,2,16\n"
ROWS_AT_FAULT = {
    "a word": "nonsense\n",
    "capitals": "AllReduce,0,1,ring,ll,-1,2,16\n",
    "an unknown algorithm": "allreduce,0,1,hypercube,ll,-1,2,16\n",
    "an unknown protocol": "allreduce,0,1,ring,ll256,-1,2,16\n",
    "a prefix of a name": "allreduce,0,1,nvl,simple,-1,2,16\n",
    "what NCCL lacks": "allreduce,0,1,pat,simple,-1,2,16\n",
    "a tree of broadcast": "broadcast,0,1,tree,simple,-1,2,16\n",
    "a chain of allgather": "allgather,0,1,collnet_chain,simple,-1,2,16\n",
    "nvls in ll": "allreduce,0,1,nvls,ll,-1,2,16\n",
    "too large": "allreduce,0,18446744073709551616,ring,ll,-1,2,16\n",
    "far too large": f"allreduce,0,{'9' * 5000},ring,ll,-1,2,16\n",
    "negative": "allreduce,-1,5,ring,ll,-1,2,16\n",
    "no number": "allreduce,,5,ring,ll,-1,2,16\n",
    "hexadecimal": "allreduce,0,0x10,ring,ll,-1,2,16\n",
    "backwards": "allreduce,9,8,ring,ll,-1,2,16\n",
    "no channels": "allreduce,0,9,ring,ll,0,2,16\n",
    "many channels": "allreduce,0,9,ring,ll,65,2,16\n",
    "-2 channels": "allreduce,0,9,ring,ll,-2,2,16\n",
    "any nodes": "allreduce,0,9,ring,ll,-1,-1,16\n",
    "many ranks": "allreduce,0,9,ring,ll,-1,2,2147483648\n",
    "seven fields": "allreduce,0,9,ring,ll,-1,2\n",
    "nine fields": "allreduce,0,9,ring,ll,-1,2,16,-1\n",
    "a blank": "allreduce, 0,9,ring,ll,-1,2,16\n",
    "carriage return": "allreduce,0,9,ring,ll,-1,2,16\r\n",
    "empty line": "\n",
    "a name alone": "allreduce",
    "no end": "allreduce,0,9,ring,ll,-1,2,16",
    "comment without end": "# and so on",
    "overlap": GOOD + "allreduce,131071,131072,ring,ll,-1,2,16\n",
    "twice": GOOD + "allreduce,0,65535,tree,ll128,-1,2,16\n",
    "NUL": "allreduce,0,9,ring\0,ll,-1,2,16\n",
    "a line of a million": "a" * 1_000_000 + "\n",
    "one more than said": None,
    "one fewer than said": None,
}


def faulty(name: str) -> str:
    """The file, with the digest that belongs to it."""
    rows = ROWS_AT_FAULT[name]
    if name == "comment without end":
        return with_digest_header(GOOD + str(rows)).replace("2 rows", "3 rows")
    if rows is not None:
        return with_digest_header(rows)
    told = "3 rows" if name.startswith("one fewer") else "1 rows"
    return with_digest_header(GOOD).replace("2 rows", told)


SOUND = with_digest_header(GOOD).encode()
DAMAGED: Mapping[str, bytes] = {
    "empty": b"",
    "one byte": b"#",
    "another file": b"# NCCL tuner config\nallreduce,0,1,ring,ll,-1,2,16\n",
    "half a header": SOUND[:25],
    "no end of the header": SOUND.partition(b"\n")[0],
    "cut in a row": SOUND[:-9],
    "cut between rows": SOUND[: SOUND.rindex(b"\nallreduce") + 1],
    "a changed byte": SOUND.replace(b"65535", b"65534"),
    "a byte more": SOUND + b"\n",
    "NUL in the header": SOUND.replace(b"rows,", b"rows\0"),
    "a digest in capitals": re.sub(rb"1a64 \w+", lambda m: m[0].upper(), SOUND),
    "an endless digest": SOUND.replace(b"fnv1a64 ", b"fnv1a64 " + b"f" * 400),
    "endless rows": SOUND.replace(b" 2 rows", b" " + b"2" * 400 + b" rows"),
    "another version": SOUND.replace(b"rules 1", b"rules 2"),
    "binary": bytes(range(256)) * 64,
    "NULs": bytes(100_000),
    "a million lines": with_digest_header("").encode().replace(b" 0 rows", b" 1000000 rows")
    + b"allreduce,0,9,ring,ll,-1,2,16\n" * 1_000_000,
}


@pytest.mark.parametrize("name", [*DAMAGED, *ROWS_AT_FAULT])
def test_a_damaged_file_leaves_everything_to_nccl(caller: Caller, name: str) -> None:
    caller.rules.write_bytes(DAMAGED[name] if name in DAMAGED else faulty(name).encode())
    said = caller.run(["open 5 16 2 8 8", "open 3 16 2 8 8", "ask 0 4 9 7 0", "close 0", "close 1"])
    assert said.results == ("0 nothing", "1 nothing", "-1 -1 -1")
    ((level, text),) = said.messages  # one warning, of however many communicators
    assert level == WARN
    place = " is larger" if name == "a million lines" else ":"  # and the number of a line
    assert text.startswith(f"TUNER/tuner: {caller.rules}{place}")
    assert text.endswith(": NCCL decides itself on this rank")


def test_the_rows_around_are_sound(caller: Caller) -> None:
    """What is damaged above is damaged by that alone."""
    for rows in (GOOD, "", "# only words\n", GOOD + "# and so on\n"):
        said = caller.with_rows(rows).run(["open 5 16 2 8 8"])
        assert said.results == ("0 context",), rows


@pytest.mark.representative("none-2", "folder-3", "pipe-4")
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["none", "folder", "pipe", "memory", "large"])
def test_no_file_that_can_be_read(caller: Caller, version: int, kind: str) -> None:
    make: Mapping[str, Callable[[], object]] = {
        "none": lambda: None,
        "folder": caller.rules.mkdir,
        "pipe": lambda: os.mkfifo(caller.rules),
        "memory": lambda: caller.rules.symlink_to("/proc/self/mem"),
        "large": lambda: large(caller.rules),
    }
    make[kind]()
    said = caller.run([f"open {version} 16 2 8 8", "ask 0 4 9 7 0"])
    assert said.results == ("0 nothing", "-1 -1 -1")
    assert [level for level, _ in said.messages] == [WARN]


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.write(with_digest_header(GOOD + "#" * (16 << 20) + "\n").encode())


@settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(
    rows=st.lists(
        st.one_of(
            st.sampled_from(GOOD.splitlines()),
            st.text(max_size=40),
            st.text(alphabet="allreducering,0123456789-#\n", max_size=60),
        ),
        max_size=6,
    ),
    count=st.integers(0, 7),
)
def test_any_text_under_the_right_digest(caller: Caller, rows: list[str], count: int) -> None:
    """Whoever writes the digest, too, gets rules or a warning, and nothing else."""
    text = "".join(f"{row}\n" for row in rows)
    data = text.encode("utf-8", "replace")
    header = with_digest_header(data.decode("utf-8")).partition("\n")[0]
    header = re.sub(r"\d+ rows", f"{count} rows", header)
    caller.rules.write_bytes(header.encode() + b"\n" + data)
    said = caller.run(["open 5 16 2 8 8", "ask 0 4 9 7 0", "close 0"])
    levels = [level for level, _ in said.messages]
    assert (said.results[0], levels) in [("0 context", [INFO]), ("0 nothing", [WARN])]


def test_without_rules_no_line_is_named(caller: Caller) -> None:
    caller.rules.unlink(missing_ok=True)
    ((level, text),) = caller.run(["open 5 16 2 8 8"]).messages
    assert (level, text) == (
        WARN,
        f"TUNER/tuner: {caller.rules} cannot be read: NCCL decides itself on this rank",
    )


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_many_threads_and_communicators(sanitizer: str, tmp_path: Path) -> None:
    if not has(sanitizer, tmp_path):
        pytest.skip(f"this compiler has no {sanitizer} sanitizer, or it does not run here")
    own = build(tmp_path, sanitizer)
    own.with_rows(emit_sparse(every_way()))
    key = RuleKey(ALLREDUCE, 2, 8, "cuda")
    for version in VERSIONS:
        said = own.run([f"threads 8 10 {version} 16 2 4 1000000"])
        assert said.answers == (answer(every_way(), key, 1_000_000, version),)
    (tmp_path / "rules.csv").write_text("damaged")
    said = own.run(["threads 8 10 5 16 2 4 1000000"])
    assert said.answers == (UNTOUCHED,)
    assert [level for level, _ in said.messages] == [WARN]
