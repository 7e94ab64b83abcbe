"""The flat file of a tuning table, which the preloaded library maps into memory.

A file is a header and one array of records for each of `RECORDS`, in native byte order. The header
has for each array where it begins and how many records it has; records refer to others by index.
The declarations of the C library are made from the same records (`tuner.preload.generated`).

    shapes          node counts, ranks per node and placements for which the table has rules
    rules           rules of a shape, collective and kind of operators, in ascending size
    choices         what runs: 0 the library's default, 1 the library with settings, 2 a schedule
    settings        control variables of a choice: what they are set to around a call or while a
                    communicator is created, or what their present value must (not) be; or a hint
                    for that communicator
    variants        a schedule for sizes from `start_bytes` on
    programs        the instructions of one rank for one root; of rank 0 where `turns` is set
    patterns        places of chunks that are not consecutive, for instructions that copy them
    instructions    see `tuner.core.rank_plan`
    notes           why rules are left to the library
    strings         texts that end with a zero
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tuner.algorithms import build, describe, is_segmented, schedule_properties
from tuner.base.arrays import AnyArray
from tuner.base.atomic_io import write_atomically
from tuner.base.errors import InputError, ScheduleError
from tuner.core.collective import Collective
from tuner.core.path_classes import CYCLIC
from tuner.core.rank_plan import Instruction, SchedulePlan, plan_schedule
from tuner.core.schedule import Runs, Schedule
from tuner.core.table import (
    DEFAULT,
    LIBRARY,
    MEASURED,
    OPERATORS,
    SCHEDULE,
    AlgorithmChoice,
    Rule,
    RuleKey,
    TuningTable,
)
from tuner.mpi_libraries import LIBRARY_MODULES, library_module
from tuner.mpi_libraries.followed_rules import default_seconds, is_worth_forcing, split_at_limits
from tuner.mpi_libraries.profiles import profile_of

MAGIC = 0x4C424154524E5554  # "TUNRTABL" in little-endian order
FORCED_CALL_S = 1e-7  # upper bound of writing variables around a call: tests/bench/preload.py
MAX_INSTRUCTIONS = 4_000_000  # of one table: 128 MB
RUNS = Instruction._fields.index("runs")
CONSECUTIVE = Runs(2**31 - 1, 0, 2**31 - 1)
TRANSFER_INSTRUCTIONS = 4  # a send, a receive, and a wait for each
MAX_EXACT_SEGMENTS = 16  # beyond, a schedule has some numbers of segments only
SEGMENT_STEPS = 4  # from one of those numbers to its double
MAX_SEGMENTS = 128
NO_TEXT = 0xFFFFFFFF
LISTS = len(Collective) * len(OPERATORS)  # of rules for each shape
DEFAULT_KIND, FORCED_KIND, SCHEDULE_KIND = range(3)
AROUND_CALL, AT_CREATION, MUST_BE, MUST_NOT_BE, HINT = range(5)

RECORDS: dict[str, list[tuple[Any, ...]]] = {
    "shape": [
        ("nodes", "i4"),
        ("ppn", "i4"),
        ("is_cyclic", "i4"),
        ("first_rule", "u4", LISTS),
        ("n_rules", "u4", LISTS),
    ],
    "rule": [
        ("start_bytes", "u8"),
        ("choice", "u4"),
        ("unused", "u4"),
        ("library_seconds", "f8"),
        ("saved_seconds", "f8", 3),
    ],
    "choice": [
        ("kind", "u4"),
        ("collective", "u4"),
        ("name", "u4"),
        ("first_setting", "u4"),
        ("n_settings", "u4"),
        ("first_variant", "u4"),
        ("n_variants", "u4"),
    ],
    "setting": [("use", "u4"), ("name", "u4"), ("text", "u4"), ("unused", "u4"), ("number", "i8")],
    "variant": [
        ("start_bytes", "u8"),
        ("segment_bytes", "u8"),
        ("n_chunks", "u4"),
        ("first_program", "u4"),
        ("n_roots", "u4"),
        ("rotates", "u4"),
        ("turns", "u4"),
        ("chunk_step", "u4"),
        ("shifts", "u4"),
        ("most_scratch", "u4"),
        ("message_chunks", "u4"),
        ("keeps_order", "u4"),
        ("n_requests", "u4"),
        ("n_slots", "u4"),
        ("slot_chunks", "u4"),
        ("unused", "u4"),
    ],
    "program": [("first_instruction", "u4"), ("n_instructions", "u4"), ("scratch_buffers", "u4")],
    "pattern": [(f"{side}_{name}", "i4") for side in ("source", "target") for name in Runs._fields],
    "instruction": [(name, "i4") for name in Instruction._fields],
    "note": [("text", "u4")],
    "string": [("character", "u1")],
}
DTYPES = {name: np.dtype(fields) for name, fields in RECORDS.items()}
HEADER = np.dtype(
    [
        ("magic", "u8"),
        ("format", "u4"),
        ("checksum", "u4"),
        ("n_bytes", "u8"),
        *((f"{name}s", [("offset", "u8"), ("count", "u8")]) for name in RECORDS),
        ("library", "u4"),
        ("cluster", "u4"),
    ]
)
FORMAT = zlib.crc32(f"{HEADER.descr} {RECORDS}".encode())  # files of another layout are refused


def write_flat_table(table: TuningTable, path: Path) -> list[str]:
    """Write the flat file of a table; return which rules it leaves to the library, and why.

    Raises InputError where the file cannot be written, or the library is unknown.
    """
    flattener = _Flattener(table)
    write_atomically(path, flattener.content())
    return flattener.notes


class _Flattener:
    """The arrays of a flat file as they are collected."""

    def __init__(self, table: TuningTable) -> None:
        self._table = table
        self._profile = profile_of(table.library)
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in RECORDS}
        self._texts: dict[str, int] = {}
        self._text = bytearray()
        self._choices: dict[tuple[Collective, AlgorithmChoice, int], int] = {}
        self._instructions: list[AnyArray] = []
        self._n_instructions = 0
        self._default = self._add("choice", (DEFAULT_KIND, 0, self._string(DEFAULT), 0, 0, 0, 0))
        self.notes: list[str] = []

    def content(self) -> bytes:
        shapes = dict.fromkeys(
            (key.nodes, key.ppn, key.placement) for key in self._table.keys if key.memory == "host"
        )
        for shape in shapes:
            self._add_shape(*shape)
        for note in self.notes:
            self._add("note", (self._string(note),))
        header = np.zeros(1, HEADER)
        header["library"] = self._string(self._table.library)
        header["cluster"] = self._string(self._table.cluster.name)
        return _assemble(header, self._arrays())

    def _arrays(self) -> dict[str, AnyArray]:
        arrays = {name: np.array(rows, DTYPES[name]) for name, rows in self._rows.items()}
        parts = self._instructions or [np.empty((0, len(Instruction._fields)), np.int32)]
        arrays["instruction"] = np.concatenate(parts).view(DTYPES["instruction"]).reshape(-1)
        arrays["string"] = np.frombuffer(bytes(self._text), DTYPES["string"])
        return arrays

    def _add(self, record: str, values: tuple[Any, ...]) -> int:
        self._rows[record].append(values)
        return len(self._rows[record]) - 1

    def _string(self, text: str) -> int:
        """Return where a text begins."""
        if text not in self._texts:
            self._texts[text] = len(self._text)
            self._text += text.encode() + b"\0"
        return self._texts[text]

    def _add_shape(self, nodes: int, ppn: int, placement: str) -> None:
        first, number = np.zeros(LISTS, np.uint32), np.zeros(LISTS, np.uint32)
        for collective in Collective:
            for operators in OPERATORS[: 1 + collective.is_reduction]:
                place = len(OPERATORS) * list(Collective).index(collective)
                place += OPERATORS.index(operators)
                rules = self._rules(RuleKey(collective, nodes, ppn, "host", operators, placement))
                if rules is None and operators != OPERATORS[0]:  # those for any operator
                    first[place], number[place] = first[place - 1], number[place - 1]
                else:
                    first[place], number[place] = len(self._rows["rule"]), len(rules or ())
                    self._rows["rule"] += rules or ()
        self._add("shape", (nodes, ppn, placement == CYCLIC, first, number))

    def _rules(self, key: RuleKey) -> list[tuple[Any, ...]] | None:
        """Return the records of the rules for a key; None where the table has none.

        Without an algorithm other than the library's default there is no record.
        """
        known = self._table.rules_for(key)
        if not known:
            return None
        rules = [part for rule in known for part in split_at_limits(rule, self._table.library)]
        records = [
            (rule.start_bytes, self._choice(rule), 0, default_seconds(rule), _saved_seconds(rule))
            for rule in rules
        ]
        return records if any(record[1] != self._default for record in records) else []

    def _choice(self, rule: Rule) -> int:
        """Return the record of a rule's choice: the default's where it cannot be followed."""
        key, choice = rule.key, rule.choice
        if choice.is_default:
            return self._default
        try:
            self._check(rule)
            known = key.collective, choice, key.p
            if known not in self._choices:
                self._choices[known] = self._add_choice(rule)
            return self._choices[known]
        except (InputError, ScheduleError) as reason:
            self.notes.append(f"{key.collective} {choice} on {key.shape} ranks: {reason}")
            return self._default

    def _check(self, rule: Rule) -> None:
        """Raise InputError where a choice cannot be followed, or it would not pay."""
        key, choice = rule.key, rule.choice
        if choice.runner not in (LIBRARY, SCHEDULE):
            raise InputError(f"{choice.runner} takes buffers of devices")
        if choice.runner == SCHEDULE and key.collective.is_ragged:
            raise InputError("schedules are for blocks of one length")
        if choice.runner == LIBRARY:
            if self._profile.name not in LIBRARY_MODULES:
                raise InputError(f"algorithms of {self._table.library} cannot be forced here")
            if reason := library_module(self._table.library).unsupported_reason(
                key.collective, choice, key.p
            ):
                raise InputError(reason)
            overhead = FORCED_CALL_S if self._profile.forces_each_call else 0.0
            if not is_worth_forcing(rule.evidence, overhead):
                raise InputError("it saves less time than forcing it takes")
            if key.operators == "any" and not library_module(
                self._table.library
            ).preserves_operand_order(key.collective, choice):
                raise InputError("this algorithm is for operators that commute")

    def _add_choice(self, rule: Rule) -> int:
        lengths = {name: len(rows) for name, rows in self._rows.items()}
        parts, number = len(self._instructions), self._n_instructions
        try:
            return self._added_choice(rule)
        except (InputError, ScheduleError):
            for name, length in lengths.items():
                del self._rows[name][length:]
            del self._instructions[parts:]
            self._n_instructions = number
            raise

    def _added_choice(self, rule: Rule) -> int:
        key, choice = rule.key, rule.choice
        collective, name = list(Collective).index(key.collective), self._string(str(choice))
        if choice.runner == SCHEDULE:
            first = len(self._rows["variant"])
            self._rows["variant"] += self._variants(key.collective, choice, key.p)
            number = len(self._rows["variant"]) - first
            return self._add("choice", (SCHEDULE_KIND, collective, name, 0, 0, first, number))
        first = len(self._rows["setting"])
        self._rows["setting"] += self._settings(key.collective, choice)
        number = len(self._rows["setting"]) - first
        return self._add("choice", (FORCED_KIND, collective, name, first, number, 0, 0))

    def _settings(
        self, collective: Collective, choice: AlgorithmChoice
    ) -> Iterator[tuple[Any, ...]]:
        library = library_module(self._table.library)
        for guard in library.guards(collective):
            use = MUST_BE if guard.equals else MUST_NOT_BE
            yield use, self._string(guard.variable), NO_TEXT, 0, guard.value
        profile = self._profile
        settings = library.settings(collective, choice)
        for name, value in {**profile.forcing_settings, **settings}.items():
            at_call = profile.forces_each_call or name in profile.variables_read_at_call
            use = AROUND_CALL if at_call else AT_CREATION
            text = self._string(value) if isinstance(value, str) else NO_TEXT
            yield use, self._string(name), text, 0, 0 if isinstance(value, str) else value
        for name, value in profile.duplicate_hints.items():
            yield HINT, self._string(name), self._string(value), 0, 0

    def _variants(
        self, collective: Collective, choice: AlgorithmChoice, p: int
    ) -> Iterator[tuple[Any, ...]]:
        ranges = [
            (rule.start_bytes, rule.stop_bytes)
            for rule in self._table.rules
            if (rule.key.collective, rule.key.p, rule.choice) == (collective, p, choice)
        ]
        sizes = [*_variant_sizes(collective, choice, p)]
        for start, stop in zip(sizes, [*sizes[1:], math.inf], strict=True):
            if any(first < stop and start < last for first, last in ranges):
                yield self._variant(collective, choice, p, start)

    def _variant(
        self, collective: Collective, choice: AlgorithmChoice, p: int, nbytes: int
    ) -> tuple[Any, ...]:
        """Add the programs of a schedule; return its record."""

        def built(root: int) -> Schedule:
            return build(
                collective, choice.algorithm, p, root=root, nbytes=nbytes, params=choice.params
            )

        schedule, first = built(0), len(self._rows["program"])
        most = MAX_INSTRUCTIONS // TRANSFER_INSTRUCTIONS
        plans = [plan_schedule(schedule, most)]
        rotates = collective.is_rooted and _rotates(plans[0], plan_schedule(built(p - 1), most))
        if collective.is_rooted and not rotates:
            plans += [plan_schedule(built(root), most) for root in range(1, p)]
        for plan in plans:
            self._add_programs(plan)
        roots = (0, p - 1) if rotates else range(len(plans))
        ordered = collective.is_reduction and all(
            schedule_properties(built(root)).order_preserving for root in roots
        )
        return (
            nbytes,
            schedule.segment_bytes,
            schedule.n_chunks,
            first,
            len(plans),
            rotates,
            plans[0].chunk_step is not None,
            plans[0].chunk_step or 0,
            any(plan.shifts for plan in plans),
            max(max(plan.scratch_buffers) for plan in plans),
            max(plan.message_chunks for plan in plans),
            ordered,
            max(plan.n_requests for plan in plans),
            max(plan.n_slots for plan in plans),
            max(plan.slot_chunks for plan in plans),
            0,
        )

    def _add_programs(self, plan: SchedulePlan) -> None:
        first = len(self._rows["pattern"])
        self._rows["pattern"] += [
            (*(source or CONSECUTIVE), *(target or CONSECUTIVE)) for source, target in plan.runs
        ]
        for instructions, scratch in zip(plan.ranks, plan.scratch_buffers, strict=True):
            self._add("program", (self._n_instructions, len(instructions), scratch))
            self._n_instructions += len(instructions)
            if self._n_instructions > MAX_INSTRUCTIONS:
                raise InputError("it has too many messages for a flat file")
            if instructions:
                added = np.array(instructions, np.int32)
                added[:, RUNS] += np.where(added[:, RUNS] < 0, 0, first)
                self._instructions.append(added)


def _assemble(header: AnyArray, arrays: dict[str, AnyArray]) -> bytes:
    """Return header and arrays, each at a multiple of eight bytes, with the checksum."""
    parts, end = [], HEADER.itemsize
    for name, array in arrays.items():
        end += -end % 8
        header[f"{name}s"]["offset"], header[f"{name}s"]["count"] = end, len(array)
        content = array.tobytes()
        parts.append((end, content))
        end += len(content)
    header["magic"], header["format"], header["n_bytes"] = MAGIC, FORMAT, end
    made = bytearray(end)
    made[: HEADER.itemsize] = header.tobytes()
    for offset, content in parts:
        made[offset : offset + len(content)] = content
    header["checksum"] = zlib.crc32(made)
    made[: HEADER.itemsize] = header.tobytes()
    return bytes(made)


def _saved_seconds(rule: Rule) -> tuple[float, float, float]:
    """Return what a call saves by the measurements of its rule, seconds, with its interval.

    It is the mean over the sizes that were measured, and 0 where nothing was.
    """
    told = rule.evidence
    if rule.choice.is_default or not told.default_s or told.basis != MEASURED:
        return 0.0, 0.0, 0.0
    default = float(np.mean(told.default_s))
    low, high = (default * (1 - 1 / gain) for gain in told.gain_ci95)
    return float(np.mean(np.subtract(told.default_s, told.chosen_s))), low, high


def _variant_sizes(collective: Collective, choice: AlgorithmChoice, p: int) -> Iterator[int]:
    """Yield the sizes from which on a schedule has another number of chunks, bytes.

    Beyond MAX_EXACT_SEGMENTS only some numbers are used, and MAX_SEGMENTS is the last: segments are
    then longer than asked for.
    """
    yield 0
    if not is_segmented(collective, choice.algorithm, choice.params):
        return
    segment, last = describe(collective, choice.algorithm).params["segment"], 0
    segment = choice.params.get("segment", segment)
    segments = 1
    while segments <= MAX_SEGMENTS:
        nbytes = (segments - 1) * segment + 1
        made = build(
            collective,
            choice.algorithm,
            p,
            nbytes=nbytes,
            params=choice.params,
            verify_schedule=False,
        )
        if last and made.n_chunks != last:
            yield nbytes
        last = made.n_chunks
        octave = 1 << segments.bit_length() - 1
        segments += 1 if segments < MAX_EXACT_SEGMENTS else octave // SEGMENT_STEPS


def _rotates(first: SchedulePlan, last: SchedulePlan) -> bool:
    """Return whether the schedule for the last root is that for root 0 with turned ranks."""
    p = len(first.ranks)
    return all(
        last.ranks[(rank + p - 1) % p]
        == tuple(_turned(step, p - 1, p) for step in first.ranks[rank])
        for rank in range(p)
    )


def _turned(step: Instruction, shift: int, p: int) -> Instruction:
    if step.request < 0 or step.peer < 0:
        return step
    return step._replace(peer=(step.peer + shift) % p)
