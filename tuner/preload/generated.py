"""The part of the C library that is made from the records of collectives and of the flat file.

It has the declarations of the file's records, a row for each collective, and for each collective
the functions that a program calls instead of the library's: `MPI_X`, `PMPI_X`, and both with `_c`
for large counts.
"""

from __future__ import annotations

import numpy as np

from tuner.core.collective import Collective, Held
from tuner.core.rank_plan import InstructionKind
from tuner.core.schedule import MAX_SCRATCH_BYTES
from tuner.core.table import OPERATORS
from tuner.preload import flat_table

_C_TYPES = {"u8": "uint64_t", "u4": "uint32_t", "u1": "uint8_t", "i4": "int32_t", "f8": "double"}
_C_TYPES["i8"] = "int64_t"
_CONSTANTS = (
    "MAGIC",
    "FORMAT",
    "NO_TEXT",
    "DEFAULT_KIND",
    "FORCED_KIND",
    "SCHEDULE_KIND",
    "AROUND_CALL",
    "AT_CREATION",
    "MUST_BE",
    "MUST_NOT_BE",
    "HINT",
)


def header() -> str:
    """Return `generated.h`: constants, records and the names of the collectives."""
    parts = ["#include <stdint.h>", ""]
    parts += [f"#define {name} {getattr(flat_table, name):#x}" for name in _CONSTANTS]
    parts.append(f"#define MAX_SCRATCH_BYTES {MAX_SCRATCH_BYTES:#x}")
    names = [collective.name for collective in Collective]
    parts += ["", f"enum {{ {', '.join(names)}, N_COLLECTIVES, N_SIDES = {len(_sides())} }};"]
    parts += [f"enum {{ {', '.join(f'DO_{kind.name}' for kind in InstructionKind)} }};", ""]
    parts += [_struct(name, dtype) for name, dtype in flat_table.DTYPES.items()]
    parts.append("struct span { uint64_t offset, count; };")
    parts.append(_struct("header", flat_table.HEADER))
    return "\n".join(parts) + "\n"


def _struct(name: str, dtype: np.dtype[np.void]) -> str:
    fields = []
    for field, (kind, *_) in (dtype.fields or {}).items():
        of_many, length = kind.subdtype or (kind, ())
        kind_name = "struct span" if of_many.names else _C_TYPES[of_many.str[1:]]
        fields.append(f"    {kind_name} {field}{''.join(f'[{n}]' for n in length)};\n")
    return f"struct {name} {{\n{''.join(fields)}}};\n"


def wrappers() -> str:
    """Return `wrappers.c`: the functions that programs call, and the row of each collective."""
    functions = [_functions(one, "", "int") for one in Collective]
    large = [_functions(one, "_c", "MPI_Count") for one in Collective if one.has_data]
    rows = ",\n".join(f"    [{one.name}] = {_row(one)}" for one in Collective)
    return "\n".join(
        (
            '#include "tuner.h"\n',
            *functions,
            f"const struct collective collectives[N_COLLECTIVES] = {{\n{rows}}};\n",
            f"const struct side sides[N_SIDES] = {{\n{''.join(_sides())}}};\n",
            "#if MPI_VERSION >= 4",
            *large,
            "#endif",
            _resolver(),
        )
    )


def _row(collective: Collective) -> str:
    spec = collective.spec
    flags = {
        "is_rooted": collective.is_rooted,
        "reduces": collective.is_reduction,
        "has_data": collective.has_data,
        "has_one_buffer": collective.has_one_buffer,
        "has_blocks": collective.has_blocks,
        "scatters": spec.after is Held.BLOCK,
        "exchanges": collective.gives_in_scratch,
        "is_ragged": collective.is_ragged,
        "others_give": collective.gives(at_root=False),
        "others_take": collective.takes(at_root=False),
    }
    fields = ", ".join(f".{name} = {int(value)}" for name, value in flags.items())
    return f'{{.name = "{collective.value}", .library = call_{spec.mpi}, {fields}}}'


def _sides() -> list[str]:
    """Return a row for each call that a collective is compared with, itself first."""
    rows = []
    for one in Collective:
        if one.is_ragged:
            continue
        known = [((one,), 2), *((others, 2) for others in one.substitutes)]
        known += [((one,), 4), ((one, one), 1)] if one.has_data else []
        for others, halves in known:
            first, second = (*(other.name for other in others), "-1")[:2]
            rows.append(f"    {{{one.name}, {first}, {second}, {halves}}},\n")
    return rows


def _parameters(collective: Collective, count: str) -> list[tuple[str, str]]:
    """Return types and names of the parameters of a collective in MPI's C functions."""
    parameters = []
    if collective.is_ragged:
        counts, places = f"const {count} *", f"const {'int' if count == 'int' else 'MPI_Aint'} *"
        one_block = [(count, "sendcount")]
        blocks = [(counts, "sendcounts"), (places, "sdispls")]
        parameters += [("const void *", "sendbuf")]
        parameters += one_block if collective.states_all_lengths else blocks
        parameters += [("MPI_Datatype", "sendtype"), ("void *", "recvbuf"), (counts, "recvcounts")]
        parameters += [(places, "rdispls"), ("MPI_Datatype", "recvtype")]
    elif collective.has_one_buffer:
        parameters += [("void *", "buffer"), (count, "count"), ("MPI_Datatype", "datatype")]
    elif collective.is_reduction:
        parameters += [("const void *", "sendbuf"), ("void *", "recvbuf"), (count, "count")]
        parameters += [("MPI_Datatype", "datatype"), ("MPI_Op", "op")]
    elif collective.has_data:
        parameters += [("const void *", "sendbuf"), (count, "sendcount")]
        parameters += [("MPI_Datatype", "sendtype"), ("void *", "recvbuf"), (count, "recvcount")]
        parameters.append(("MPI_Datatype", "recvtype"))
    if collective.is_rooted:
        parameters.append(("int", "root"))
    return [*parameters, ("MPI_Comm", "comm")]


# The field of `struct call` that each parameter is in; those of one buffer are in two.
_FIELDS = {
    "buffer": ("send", "receive"),
    "count": ("send_count", "receive_count"),
    "datatype": ("send_type", "receive_type"),
    "sendbuf": ("send",),
    "sendcount": ("send_count",),
    "sendcounts": ("send_counts",),
    "sdispls": ("send_places",),
    "sendtype": ("send_type",),
    "recvbuf": ("receive",),
    "recvcount": ("receive_count",),
    "recvcounts": ("receive_counts",),
    "rdispls": ("receive_places",),
    "recvtype": ("receive_type",),
    "op": ("op",),
    "root": ("root",),
    "comm": ("comm",),
}


def _bytes(collective: Collective) -> str:
    """Return the expression for the bytes of a call over the whole buffer.

    Of the arguments that are significant on a rank, those of the larger buffer count.
    """
    if not collective.has_data:
        return "0"
    if collective.states_all_lengths:
        return "add_up_bytes(recvcounts, sizeof *recvcounts, known->size, recvtype)"
    sent, received = (
        "signature_bytes(sendcount, sendtype)",
        "signature_bytes(recvcount, recvtype)",
    )
    at_root = sent if collective.spec.after is Held.BLOCK else received
    elsewhere = received if collective.takes(at_root=False) else sent
    if collective.has_one_buffer or collective.is_reduction:
        size = "signature_bytes(count, datatype)"
    elif collective.is_rooted:
        size = f"(known->rank == root ? {at_root} : {elsewhere})"
    else:
        size = received
    return f"{size} * known->size" if collective.has_blocks else size


def _list(collective: Collective) -> str:
    """Return the expression for the number of the list of rules in a shape."""
    first = f"{len(OPERATORS)} * {collective.name}"
    return f"{first} + is_commutative(op)" if collective.is_reduction else first


def _search(collective: Collective, name: str, passed: str, packed: str) -> str:
    """Return the statements that find the rule for a call, and describe the call.

    Calls without a rule are passed to the library before they are described, where possible.
    """
    library = f"return library_{name}({passed});"
    left = f"""\
    if ((!rule || rule->choice == LEFT_CHOICE) && !known->is_recorded)
        {library}
"""
    call = f"""\
    struct call call = {{.collective = {collective.name}, .library = call_{name}, {packed}}};"""
    if collective.is_ragged and not collective.states_all_lengths:
        arguments = f"&call, known, {_list(collective)}, sizeof *recvcounts, &nbytes"
        return f"""\
    if (!known->follows[{collective.name}])
        {library}
{call}
    const struct rule *rule = find_ragged_rule({arguments});
{left}"""
    return f"""\
    const struct rule *rule = NULL;
    if (known->follows[{collective.name}])
        rule = find_rule(known, {_list(collective)}, nbytes = {_bytes(collective)});
{left}{call}"""


def _functions(collective: Collective, suffix: str, count: str) -> str:
    name = collective.spec.mpi + suffix
    parameters = _parameters(collective, count)
    declared = ", ".join(f"{kind} {called}".replace("* ", "*") for kind, called in parameters)
    passed = ", ".join(called for _, called in parameters)
    packed = ", ".join(
        f".{field} = {'(void *)' if called == 'sendbuf' and field == 'receive' else ''}{called}"
        for _, called in parameters
        for field in _FIELDS[called]
    )
    unpacked = ", ".join(
        (f"({count})" if (kind == count and count != "int") or called.endswith("count") else "")
        + f"call->{_FIELDS[called][-1]}"
        for kind, called in parameters
    )
    return f"""\
static int (*library_{name})({declared});
static int (*tool_{name})({declared});

static int call_{name}(const struct call *call)
{{
    return library_{name}({unpacked});
}}

static int follow_{name}({declared})
{{
    struct communicator *known = find_communicator(comm);
    int64_t nbytes = 0;
{_search(collective, name, passed, packed)}
    return known->is_recorded ? record(&call, known, rule, nbytes)
                              : follow(&call, known, rule, nbytes);
}}

EXPORTED int PMPI_{name}({declared})
{{
    return follow_{name}({passed});
}}

EXPORTED int MPI_{name}({declared})
{{
    return tool_{name} ? tool_{name}({passed}) : follow_{name}({passed});
}}
"""


def _resolver() -> str:
    """Return the function that finds the library's own functions, and those of a tool."""

    def lines(names: list[str]) -> str:
        return "".join(
            f'    resolve("{name}", (void **)&library_{name}, (void **)&tool_{name});\n'
            for name in names
        )

    names = [one.spec.mpi for one in Collective]
    large = [f"{one.spec.mpi}_c" for one in Collective if one.has_data]
    return (
        f"void resolve_collectives(void)\n{{\n{lines(names)}#if MPI_VERSION >= 4\n{lines(large)}"
        "#endif\n}\n"
    )
