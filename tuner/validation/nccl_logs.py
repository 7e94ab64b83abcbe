"""The algorithm of each collective of a program, from NCCL's log or its Inspector plugin.

    n1:47:47 [0] NCCL INFO comm 0x55ac rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0 MNNVL 0
    n1:47:47 [0] NCCL INFO AllGather: opCount 1a sendbuff 0x7f00 recvbuff 0x7f80 count 4096
        datatype 7 op 0 root 0 comm 0x55ac [nranks=8] stream 0x55ad
    n1:47:47 [0] NCCL INFO AllGather: 16384 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..3}

The first line belongs to the subsystem INIT, the second to COLL, the third to TUNING, which only
rank 0 writes. The third does not name a communicator: where a process is rank 0 of communicators of
several shapes, the line of COLL before it tells which one it was. Bytes are those of one rank's
part (allgather, reduce-scatter), but of the whole buffer in older lines, which end in `time`. The
oldest do not name the collective either, which the line of COLL before them does.

Source: `src/init.cc`, `src/enqueue.cc`, `src/scheduler` of NVIDIA/nccl 2.18 to 2.31.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice
from tuner.importers.inspector import InspectorRecord
from tuner.importers.streaming import RawLine
from tuner.mpi_libraries.nccl.logged import DATATYPE_BYTES, algo_proto_name, buffer_bytes
from tuner.mpi_libraries.nccl.names import COLLECTIVES
from tuner.validation.nccl_processes import CommunicatorShape, LoggedProcess, TooManyCallsError

CHANNELS_PARAMETER = "channels"
MAX_CALLS = 1_000_000  # different calls, and entries of communicators and processes
MAX_LINE_BYTES = 4096  # NCCL's own lines are shorter
UNKNOWN_NODES = 0
_RANKS = rb"[0-9]{1,9}"
_NUMBER = rb"[0-9]{1,19}"
_PREFIX = (
    rb"(?<![^\s:])(?P<host>[^\s:]{1,255}):(?P<pid>[0-9]{1,9}):[0-9]{1,9} \[[0-9]{1,9}\] NCCL INFO "
)
_SHAPE_LINE = re.compile(
    _PREFIX
    + rb"comm (?P<comm>\S{1,40}) rank (?P<rank>%b) nRanks (?P<p>%b) nNodes (?P<nodes>%b)\b"
    % (_RANKS, _RANKS, _RANKS)
)
_INITIALISED_LINE = re.compile(
    _PREFIX
    + rb".{0,80}\bcomm (?P<comm>\S{1,40}) rank (?P<rank>%b) nranks (?P<p>%b) .{0,400}Init COMPLETE"
    % (_RANKS, _RANKS)
)
_DESTROYED_LINE = re.compile(
    _PREFIX + rb".{0,80}\bcomm (?P<comm>\S{1,40}) rank .{0,400}(?:Destroy|Abort) COMPLETE"
)
_CALL_LINE = re.compile(
    _PREFIX + rb"(?P<function>[A-Za-z]{1,40}): opCount \S{1,40} sendbuff \S{1,40} recvbuff \S{1,40}"
    rb" count (?P<count>%b) datatype (?P<type>[0-9]{1,3}) op -?%b root -?%b comm (?P<comm>\S{1,40})"
    rb" \[nranks=(?P<p>%b)\] stream \S{1,40}(?: task %b globalrank %b)?\s*$"
    % (_NUMBER, _NUMBER, _NUMBER, _RANKS, _NUMBER, _NUMBER)
)
_TUNING_LINE = re.compile(
    _PREFIX + rb"(?:(?P<function>[A-Za-z]{1,40}): )?(?P<bytes>%b) Bytes ->"
    rb" Algo (?P<algorithm>[A-Za-z0-9_]{1,40}) proto (?P<protocol>[A-Za-z0-9_]{1,40})"
    rb"(?: time (?P<time>[0-9.]{1,40})| channel\{Lo\.\.Hi\}=\{(?P<first>%b)\.\.(?P<last>%b)\})"
    % (_NUMBER, _RANKS, _RANKS)
)
_NON_TUNED_LINE = re.compile(
    _PREFIX + rb"(?P<function>[A-Za-z]{1,40}) \[(?P<by>Symmetric|Copy Engine|Hierarchical CE)\]:"
    rb" (?P<bytes>%b) Bytes -> \S{1,80}(?:.{0,400} nWorks (?P<calls>%b))?" % (_NUMBER, _RANKS)
)
_PLUGIN_LINE = re.compile(
    rb"TUNER/tuner: (?:[0-9]{1,9} of [0-9]{1,9} rules \(fnv1a64 (?P<digest>[0-9a-f]{16})\)"
    rb" are followed"
    rb"|(?P<left>.{1,300}(?:no rules are followed|NCCL decides itself on this rank)))"
)
_VERSION = re.compile(rb"\b([NR]CCL) version ([0-9]{1,9}(?:\.[0-9]{1,9}){1,4})")

_CallKey = tuple[
    Collective, CommunicatorShape, int, str, int
]  # collective, shape, bytes, algorithm, channels or 0


@dataclass(frozen=True, slots=True)
class ExecutedCollective:
    """A collective that ran, with `nbytes` of the whole buffer.

    choice  the algorithm, with its channels where these are known
    """

    collective: Collective
    nodes: int
    p: int
    nbytes: int
    choice: AlgorithmChoice


@dataclass
class LoggedCalls:
    """The calls that ran, counted, and the number of those that could not be identified.

    default_shape           shape of communicators for which the log does not give it
    versions                versions of the libraries that wrote the logs, such as `nccl 2.29.7`
    call_lines              lines that describe a call
    incomplete_lines        call lines without the collective, the size or the algorithm
    lines_without_shape     call lines whose communicator is not known
    damaged_lines           call lines that could not be parsed
    unread_files            files that were not read to their end, and why
    rule_digests            digests of the rules that our plugin followed
    declining_messages      messages of our plugin where it left all calls to NCCL
    """

    default_shape: CommunicatorShape | None = None
    versions: set[str] = field(default_factory=set)
    call_lines: int = 0
    incomplete_lines: int = 0
    lines_without_shape: int = 0
    damaged_lines: int = 0
    unread_files: list[str] = field(default_factory=list)
    rule_digests: set[str] = field(default_factory=set)
    declining_messages: set[str] = field(default_factory=set)
    _processes: dict[tuple[bytes, bytes], LoggedProcess] = field(default_factory=dict, repr=False)
    _awaiting: set[tuple[bytes, bytes]] = field(default_factory=set, repr=False)
    _entries: int = field(default=0, repr=False)  # sum of `n_entries` over all processes
    _counts: Counter[_CallKey] = field(default_factory=Counter, repr=False)

    @property
    def has_plugin_messages(self) -> bool:
        return bool(self.rule_digests or self.declining_messages)

    def executed_calls(self) -> Iterator[tuple[ExecutedCollective, int]]:
        """Yield each call that ran and how often it was logged; the Inspector logs it per rank."""
        for (collective, (p, nodes), nbytes, algorithm, channels), times in self._counts.items():
            choice = AlgorithmChoice(algorithm, {CHANNELS_PARAMETER: channels} if channels else {})
            yield ExecutedCollective(collective, nodes, p, nbytes, choice), times

    def read_log(self, lines: Iterable[RawLine]) -> None:
        """Read a log; raises TooManyCallsError for more calls than any program makes."""
        for line in lines:
            content = line.content
            if b" Bytes -> " in content:
                self._read_tuning_line(content)
            elif b"TUNER/tuner: " in content and (found := _search(_PLUGIN_LINE, content)):
                self._note_plugin_message(found)
            elif b"opCount" in content:
                self._read_call_line(content)
            elif b"comm " in content:
                self._read_communicator_line(content)
            elif b"CCL version " in content and (found := _search(_VERSION, content)):
                self.versions.add(f"{found[1].decode().lower()} {found[2].decode()}")
            else:
                continue
            self._require_within_limit()

    def read_record(self, record: InspectorRecord) -> None:
        """Read the Inspector's record of a call on one rank."""
        collective, communicator = COLLECTIVES.get(record.function), record.communicator
        if collective is None or communicator.p == 1:
            return
        self.call_lines += 1
        if not record.algorithm or record.nbytes is None:
            self.incomplete_lines += 1
            return
        shape = (communicator.p, communicator.nodes)
        self._counts[collective, shape, record.nbytes, record.algorithm, 0] += 1
        self._require_within_limit()

    def _require_within_limit(self) -> None:
        """Raise TooManyCallsError for more entries than any program needs."""
        held = self._entries + len(self._processes) + len(self._counts) + len(self.versions)
        held += len(self.rule_digests) + len(self.declining_messages)
        if held > MAX_CALLS:
            raise TooManyCallsError(
                f"more than {MAX_CALLS} different calls and communicators: give fewer files at a"
                " time"
            )

    def _note_plugin_message(self, found: re.Match[bytes]) -> None:
        """Record our plugin's message about a communicator."""
        if found["digest"]:
            self.rule_digests.add(found["digest"].decode())
        else:
            self.declining_messages.add(found["left"].decode(errors="replace").strip())

    def _process(self, found: re.Match[bytes]) -> LoggedProcess:
        return self._processes.setdefault((found["host"], found["pid"]), LoggedProcess())

    def _read_communicator_line(self, line: bytes) -> None:
        if found := _search(_SHAPE_LINE, line):
            process = self._process(found)
            before, shape = process.n_entries, (int(found["p"]), int(found["nodes"]))
            process.add_communicator(found["comm"], int(found["rank"]), shape)
        elif found := _search(_INITIALISED_LINE, line):
            process = self._process(found)
            before, shape = process.n_entries, (int(found["p"]), UNKNOWN_NODES)
            if found["comm"] not in process.communicators:
                process.add_communicator(found["comm"], int(found["rank"]), shape)
        elif found := _search(_DESTROYED_LINE, line):
            process = self._process(found)
            before = process.n_entries
            process.remove_communicator(found["comm"])
        else:
            return
        self._entries += process.n_entries - before

    def _read_call_line(self, line: bytes) -> None:
        found = _search(_CALL_LINE, line)
        if found is None:  # damaged: the call of the next tuning line is no longer known
            for name in self._awaiting:
                self._entries -= len(self._processes[name].pending_calls)
                self._processes[name].pending_calls.clear()
            self._awaiting.clear()
            return
        collective = COLLECTIVES.get(found["function"].decode())
        if collective is None or int(found["type"]) >= len(DATATYPE_BYTES):
            return
        process, p = self._process(found), int(found["p"])
        rank, shape = process.communicators.get(found["comm"], (0, (p, UNKNOWN_NODES)))
        if rank == 0 and p > 1:  # other ranks have no tuning lines
            nbytes = int(found["count"]) * DATATYPE_BYTES[int(found["type"])]
            before = process.n_entries
            process.add_call(collective, nbytes, shape)
            self._entries += process.n_entries - before
            self._awaiting.add((found["host"], found["pid"]))

    def _read_tuning_line(self, line: bytes) -> None:
        if found := _search(_TUNING_LINE, line):
            channels = 0 if found["time"] else int(found["last"]) - int(found["first"]) + 1
            words = found["algorithm"].decode(), found["protocol"].decode()
            self._count_call(
                found, found["time"] is None, algo_proto_name(*words), max(channels, 0)
            )
        elif found := _search(_NON_TUNED_LINE, line):
            together = found["calls"] not in (None, b"1")  # the size is then not that of one call
            name = found["by"].decode().lower().replace(" ", "_")
            self._count_call(found, True, name, together=together)
        else:
            self.call_lines += 1
            self.damaged_lines += 1

    def _count_call(
        self,
        found: re.Match[bytes],
        per_rank: bool,
        algorithm: str,
        channels: int = 0,
        together: bool = False,
    ) -> None:
        """Count a call as far as it can be identified.

        per_rank    whether the bytes are those of one rank's part
        together    whether the line describes several calls
        """
        function = found["function"].decode() if found["function"] else ""
        if function and function not in COLLECTIVES:
            return
        self.call_lines += 1
        process, nbytes = self._process(found), int(found["bytes"])
        if together or not (function or process.call_shapes):
            self.incomplete_lines += 1
            return
        named = [COLLECTIVES[function]] if function else list(COLLECTIVES.values())
        calls = {
            (c, self._with_nodes(s))
            for c in named
            for s in process.take_shapes(c, nbytes, per_rank)
        }
        if not calls and not process.call_shapes:
            calls = {(named[0], self.default_shape)}
        collective, shape = calls.pop() if len(calls) == 1 else (named[0], None)
        if shape is None:
            self.lines_without_shape += 1
            return
        whole = buffer_bytes(collective, nbytes, shape[0]) if per_rank else nbytes
        self._counts[collective, shape, whole, algorithm, channels] += 1

    def _with_nodes(self, shape: CommunicatorShape) -> CommunicatorShape | None:
        """Return a shape with its nodes, None where their number is not known."""
        if shape[1] != UNKNOWN_NODES:
            return shape
        return (
            self.default_shape
            if self.default_shape is not None and self.default_shape[0] == shape[0]
            else None
        )


def _search(pattern: re.Pattern[bytes], line: bytes) -> re.Match[bytes] | None:
    """Return the match in a line; None for a line longer than any of NCCL's."""
    return pattern.search(line) if len(line) <= MAX_LINE_BYTES else None
