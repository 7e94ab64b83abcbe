"""`tuner table explain`: what a library's rules file chooses, by which line, and what is wrong."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from tuner.base.errors import InputError, UsageError
from tuner.base.spelling import unknown_name
from tuner.base.units import format_size, humanize, parse_size, plural
from tuner.cli.commands.select import resolve_shape
from tuner.cli.options import argument_types
from tuner.cli.options.argument_types import count_option
from tuner.cli.terminal.output import add_subcommand, print_cautions, print_result, print_text
from tuner.core.collective import Collective
from tuner.formats.file_rules import (
    AskedCall,
    FileRule,
    FileRules,
    assumptions,
    deciding_rule,
    describe,
    join_lines,
)
from tuner.formats.registry import LIBRARIES, recognise_format
from tuner.mpi_libraries import LIBRARY_MODULES
from tuner.mpi_libraries.products import title_of
from tuner.workflows.native_files import read_text

EXAMPLES = """examples:
  tuner table explain my.rules --collective allreduce --ranks 64 --size 256KiB
  tuner table explain my.rules --library openmpi@4.1.4
  tuner table explain tuning.json --collective bcast --nodes 8 --ppn 4 --size 1MiB --json
  tuner table explain nccl_tuner.conf

The file is one of Open MPI (its rules in either form, or han's), MPICH or MVAPICH (JSON of a layer,
or variables), Intel MPI or MVAPICH2 (variables), NCCL or RCCL (the tuner's CSV), or UCC. Without
--collective only the file is checked: rules that no call reaches, algorithms that the library does
not have, and such that some calls must not run."""

MAX_SHOWN = 80  # characters of a line of the file
_VERSION = re.compile(r"\d\w*([.+-]\w+)*")


def add_subcommand_explain(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the action."""
    explain = add_subcommand(
        actions, "explain", "say what a rules file chooses, and by which line", EXAMPLES, run
    )
    explain.add_argument("file", type=Path, metavar="RULES")
    explain.add_argument(
        "--library",
        default="",
        metavar="NAME[@VERSION]",
        help=f"library, such as openmpi@4.1.4: {', '.join(LIBRARIES)} (default: recognised by the"
        " content of the file, in the newest version known)",
    )
    explain.add_argument("--collective", type=argument_types.collective)
    explain.add_argument("--size", type=parse_size, help="size of the whole buffer, such as 256KiB")
    count_option(explain, "--ranks", "ranks of the communicator", metavar="P")
    count_option(explain, "--nodes", "number of nodes, where the file tells them apart")
    count_option(explain, "--ppn", "ranks per node", metavar="N")


def run(options: argparse.Namespace) -> None:
    """Explain a file."""
    name, sign, version = options.library.partition("@")
    if options.library and name not in LIBRARIES:
        raise UsageError(f"--library: {unknown_name('library', name, LIBRARIES)}")
    if sign and not _VERSION.fullmatch(version):
        raise UsageError(f"--library: expected a version as in openmpi@4.1.4, got {version!r}")
    shape = options.ranks, options.nodes, options.ppn
    call = _asked_call(options.collective, shape, options.size)
    text = read_text(options.file)
    try:
        form = recognise_format(text, name)
        library = f"{name or form.libraries[0]} {version}".rstrip()
        found = form.read(text, library)
        cautions = found.all_cautions()
    except InputError as reason:
        raise InputError(f"{options.file}: {reason}") from None
    decided = deciding_rule(found.rules, call) if call else None
    record: dict[str, Any] = {"file": str(options.file), "format": form.name, "library": library}
    record |= {"read_as": title_of(library if version else f"{library} {form.newest}".rstrip())}
    record |= {"rules": sum(rule.is_written for rule in found.rules)}
    record |= {"decision": _decision(found, decided, call, library)} if call else {}
    record |= {"cautions": [{"lines": lines, "text": text} for text, lines in cautions.items()]}
    print_result(options.json, record, lambda: _print(record, text.split("\n"), call))


def _asked_call(
    collective: Collective | None,
    shape: tuple[int | None, int | None, int | None],
    nbytes: int | None,
) -> AskedCall | None:
    if collective is None:
        if nbytes is not None or any(shape):
            raise UsageError("of which collective? give --collective, too")
        return None
    if sum(one is not None for one in shape) < 2:
        return AskedCall(collective, *shape, nbytes)
    nodes, ppn = resolve_shape(*shape)
    return AskedCall(collective, nodes * ppn, nodes, ppn, nbytes)


def _decision(
    found: FileRules, rule: FileRule | None, call: AskedCall, library: str
) -> dict[str, Any]:
    """Return the record of what runs, by which line, and why something else may run instead."""
    record: dict[str, Any] = {"runs": rule.runs if rule else "", "line": rule and rule.line}
    record |= {"by_rule": rule is not None and rule.is_written, "otherwise": found.otherwise}
    record |= {"calls": (rule.path or describe(rule.box) or "all calls") if rule else ""}
    record["assumed"] = assumptions(found.rules, call)
    record["before"] = found.before(call) if record["by_rule"] else ""
    record["note"] = ""
    known = LIBRARY_MODULES.get(library.partition(" ")[0])
    if known and rule and rule.choice and call.ranks and call.nbytes is not None:
        record["note"] = known.substitution_reason(
            call.collective, rule.choice, call.ranks, call.nbytes
        )
    return record


def _print(record: dict[str, Any], lines: list[str], call: AskedCall | None) -> None:
    print_text(
        f"{record['file']}: {plural(record['rules'], 'rule')} in the format {record['format']}, as"
        f" {record['read_as']} reads it"
    )
    if call is not None:
        _print_decision(record["decision"], lines, call)
    print_cautions(
        f"{join_lines(one['lines'])}: {humanize(one['text'])}" for one in record["cautions"]
    )
    if not record["cautions"] and not record["rules"]:
        print_text("the file has no rules")
    elif not record["cautions"]:
        print_text("every rule is reached by some call, and nothing in it is known to do harm")


def _print_decision(decision: dict[str, Any], lines: list[str], call: AskedCall) -> None:
    size = "" if call.nbytes is None else f" of {format_size(call.nbytes)}"
    ranks = "" if call.ranks is None else f" on {plural(call.ranks, 'rank')}"
    ranks += f" ({call.nodes} x {call.ppn})" if call.nodes else ""
    asked = f"{call.collective}{size}{ranks}"
    if not decision["by_rule"]:
        print_text(f"{asked}: no rule is for it, {decision['otherwise']}")
        return
    runs = decision["runs"] or "the library's own decision"
    print_text(f"{asked}: {runs}, by line {decision['line']}")
    written = re.sub(r"\s+", " ", lines[decision["line"] - 1]).strip()
    if len(written) > MAX_SHOWN:
        written = f"{written[:MAX_SHOWN]} ..."
    if re.search(r"\w", written):  # not where an object of JSON only begins
        print_text(f"  line {decision['line']}: {written}")
    print_text(f"  calls: {decision['calls']}")
    if decision["assumed"]:
        print_text(f"  assumed: {', '.join(decision['assumed'])}")
    print_cautions(filter(None, (humanize(decision["note"]), decision["before"])))
