"""Imported results, row by row, and the metadata that the user adds to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tuner.base.errors import InputError, UsageError
from tuner.base.units import plural
from tuner.core.collective import Collective, plain_name
from tuner.topology import HOST, NETWORK, NODE

COLLECTIVE, PINGPONG, BURST, EXCHANGE = "collective", "pingpong", "burst", "exchange"
NO_COLUMN_NAMES: Mapping[str, str] = {}  # for a file whose columns have our names
RANK_LIMIT = 2**31  # ranks of a measurement are fewer


@dataclass(frozen=True, slots=True)
class RankCounts:
    """The numbers of ranks, nodes and ranks per node; `ppn` is 0 where it differs between nodes."""

    p: int
    nodes: int
    ppn: int


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark.

    name        as the program calls it
    kind        as of a `Measurement`; "" for what a `Measurement` cannot represent
    subject     the collective; "" for messages, whose path class follows from the nodes
    per_rank    whether the sizes are those that one rank sends to or receives from one rank, so
                that the whole buffer is p times as large
    """

    name: str
    kind: str = ""
    subject: str = ""
    per_rank: bool = False

    @property
    def reduces(self) -> bool:
        """Return whether it is a collective that combines what ranks hold."""
        return self.kind == COLLECTIVE and Collective(self.subject).is_reduction

    @property
    def is_of_namesake(self) -> bool:
        """Return whether the collective is named after another function of MPI.

        It is then of MPI_Reduce_scatter_block, for which libraries have other algorithms and rules
        than for MPI_Reduce_scatter.
        """
        if not self.subject:
            return False
        function = plain_name(Collective(self.subject).spec.mpi)
        return function != plain_name(self.subject) and function in plain_name(self.name)

    def subject_for(self, rank_counts: RankCounts) -> str:
        """Return the collective, or the path class of messages between ranks on these nodes."""
        return self.subject or (NODE if rank_counts.nodes == 1 else NETWORK)


def collective_subject(spelling: str) -> str:
    """Return the collective that a benchmark spells so, such as `all_gather`; "" if none."""
    return Collective.spelled(spelling) or ""


def collective_benchmark(name: str, spelling: str) -> Benchmark | None:
    """Return the benchmark of a collective of MPI; None if it is of something else.

    Where blocks are moved, its sizes are those of one block, as in MPI's arguments.
    """
    subject = collective_subject(spelling)
    if not subject:
        return None
    return Benchmark(name, COLLECTIVE, subject, Collective(subject).moves_blocks)


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """A row of a file; times are in seconds, sizes in bytes, rates in bytes per second.

    line                    number of the line in the file `source`
    nbytes                  of one rank's whole buffer, as of a `Measurement`; None where the file
                            does not say; without data that of `Collective.call_bytes`
    samples                 all samples, or one that summarizes them, as `statistic` describes
    min_seconds             minimum of the samples that were summarized; None where unknown
    max_seconds             maximum of these samples; None where unknown
    bytes_per_second        the rate of a CSV row whose metric is a bandwidth; None otherwise
    rank_counts             None only for results that are not measurements
    operands                datatype and operator as the file calls them; "" where it does not
    original_algorithm      the algorithm as the file calls it; "" where it does not
    run                     names the launch; results of one run were measured in one launch
    measured                when it was measured, taken as UTC; None where the file does not say
    exclusion_reason        why this is not a measurement; "" where it is
    """

    source: str
    line: int
    benchmark: Benchmark
    nbytes: int | None = None
    samples: tuple[float, ...] = ()
    statistic: str = ""
    min_seconds: float | None = None
    max_seconds: float | None = None
    bytes_per_second: float | None = None
    rank_counts: RankCounts | None = None
    algorithm: str = "default"
    original_algorithm: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    memory: str = HOST
    operands: str = ""
    library: str = ""
    cluster: str = ""
    run: str = ""
    measured: datetime | None = None
    exclusion_reason: str = ""

    def __post_init__(self) -> None:
        subject = self.benchmark.subject
        if subject in list(Collective) and not Collective(subject).has_data:
            object.__setattr__(self, "nbytes", Collective(subject).call_bytes(0))
            object.__setattr__(self, "memory", HOST)


class MissingCountsError(InputError):
    """Raised where neither the file nor the user states the ranks or nodes of a result.

    names   fields of `UserMetadata` that are missing; others follow from the first, or are missing
            as well
    """

    def __init__(self, message: str, *names: str) -> None:
        super().__init__(message)
        self.names = names


def option_of(name: str) -> str:
    """Return the option of `tuner import-results` that states a field of `UserMetadata`."""
    return "--ranks" if name == "p" else f"--{name}"


@dataclass(frozen=True)
class UserMetadata:
    """Metadata that the user gives for files that lack it; None and "" where it is not given.

    has_options     whether the command has options for it, which errors then suggest
    """

    p: int | None = None
    nodes: int | None = None
    ppn: int | None = None
    collective: str = ""
    algorithm: str = ""
    params: Mapping[str, int] = field(default_factory=dict)
    memory: str = ""
    has_options: bool = True

    def __post_init__(self) -> None:
        for name, value in (("p", self.p), ("nodes", self.nodes), ("ppn", self.ppn)):
            if value is not None and not 1 <= value < RANK_LIMIT:
                raise UsageError(f"{option_of(name)} {value}: it is at least 1 and below 2^31")
        if self.p and (reason := uneven_ranks(self.p, self.nodes, self.ppn)):
            raise UsageError(f"{reason}: correct {self.sources()}")

    def rank_counts(
        self,
        line: int,
        p: int | None = None,
        nodes: int | None = None,
        ppn: int | None = None,
        columns: Mapping[str, str] = NO_COLUMN_NAMES,
    ) -> RankCounts:
        """Return the counts from the file at a line and from the user.

        columns     what the file calls p, nodes and ppn, where its names differ

        Raises InputError where a count is unknown and where the file and the user contradict each
        other.
        """
        said = {"p": p, "nodes": nodes, "ppn": ppn}
        p = merge_check(line, "p", p, self.p)
        nodes = merge_check(line, "nodes", nodes, self.nodes)
        ppn = merge_check(line, "ppn", ppn, self.ppn)
        reason = uneven_ranks(p, nodes, ppn) if p else ""
        if p is None and nodes and ppn:
            p = nodes * ppn
        elif nodes is None and p and ppn:
            nodes = p // ppn
        elif ppn is None and p and nodes:
            ppn = p // nodes
        if p is None or nodes is None or ppn is None:
            raise self._missing_counts(line, p, nodes, ppn)
        what = self.sources([columns.get(name, name) for name, one in said.items() if one])
        if max(p, nodes, ppn) >= RANK_LIMIT:
            raise InputError(
                f"line {line}: {p} ranks, {nodes} nodes of {ppn} each: each is at most"
                f" {RANK_LIMIT - 1}: correct {what}"
            )
        if reason:
            raise InputError(f"line {line}: {reason}: correct {what}")
        return RankCounts(p, nodes, ppn)

    def pair_counts(self, line: int, nodes: int | None = None) -> RankCounts:
        """Return the counts of a benchmark that always runs on two ranks, whatever --ranks says.

        nodes   as the file says

        Raises InputError where neither the file nor the user gives the number of nodes.
        """
        nodes = merge_check(line, "nodes", nodes, self.nodes)
        if nodes is None:
            raise MissingCountsError(
                f"line {line}: the file does not say whether its two ranks were on one"
                f" node: {self.missing_hint('nodes')} 1, or --nodes 2 for one rank on each",
                "nodes",
            )
        return RankCounts(2, 1, 2) if nodes == 1 else RankCounts(2, 2, 1)

    def missing_hint(self, *names: str) -> str:
        """Return the end of an error message on missing metadata, which says what to do."""
        options = " and ".join(map(option_of, names))
        if self.has_options:
            return f"add {options}"
        columns = f"{'a column' if len(names) == 1 else 'columns'} {' and '.join(names)}"
        return f"add {columns}, or read it by `tuner import-results` with {options}"

    def sources(self, columns: Sequence[str] = ()) -> str:
        """Return where the numbers of ranks and nodes come from: columns of a row, and options."""
        rows = f"{' or '.join(columns)} in that row" if columns else ""
        told = [
            option_of(name) for name in ("p", "nodes", "ppn") if getattr(self, name) is not None
        ]
        return " or ".join(filter(None, [rows, *told]))

    def _missing_counts(
        self, line: int, p: int | None, nodes: int | None, ppn: int | None
    ) -> MissingCountsError:
        what, names = f"how many ranks were on each of its {nodes} nodes", ["ppn"]
        if p is None and nodes is None:
            what, names = "on how many ranks and nodes it was measured", ["p", "nodes"]
        elif nodes is None:
            what, names = f"on how many nodes its {p} ranks were", ["nodes"]
        if ppn is not None:
            what, names = f"on how many nodes of {plural(ppn, 'rank')} it was measured", ["nodes"]
        hint = self.missing_hint(*names)
        names += ["p"] if ppn is not None else []
        return MissingCountsError(f"line {line}: the file does not say {what}: {hint}", *names)


def uneven_ranks(p: int, nodes: int | None, ppn: int | None) -> str:
    """Return why so many ranks are not on these nodes; "" where they can be."""
    if nodes and ppn and p != nodes * ppn:
        return f"{plural(p, 'rank')} are not {plural(nodes, 'node')} of {plural(ppn, 'rank')} each"
    if nodes and p % nodes:
        return f"{plural(p, 'rank')} cannot be spread evenly over {plural(nodes, 'node')}"
    if ppn and p % ppn:
        return f"{plural(p, 'rank')} cannot be spread over nodes of {plural(ppn, 'rank')} each"
    return ""


def merge_check(line: int, name: str, file_value: int | None, user_value: int | None) -> int | None:
    """Return the value of the file or the user; raise InputError where they differ."""
    if file_value is not None and user_value is not None and file_value != user_value:
        raise InputError(
            f"line {line}: the file says that {name} is {file_value}, but {option_of(name)} says"
            f" {user_value}: leave that option out"
        )
    return user_value if file_value is None else file_value
