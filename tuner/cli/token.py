"""Make, list and revoke the tokens that programs show to a service."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from tuner import db
from tuner.cli import parsing
from tuner.cli.output import add_action, emit, print_table, print_text
from tuner.cli.serve import add_database
from tuner.errors import InputError

EXAMPLES = """examples:
  tuner token create jobs --scope read --db sqlite:///tuner.db
  tuner token create probe-of-rack-7 --scope read,submit
  tuner token list
  tuner token revoke jobs

A token is shown once, when it is made: the database keeps only a hash of it. Give it to programs as
TUNER_TOKEN, or send `Authorization: Bearer TOKEN`. A revoked one is refused within seconds."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    create = _action(actions, "create", "make a token and print it", run_create)
    create.add_argument("name", help="who will use it")
    create.add_argument(
        "--scope", type=parsing.names, required=True,
        help="read (tables and everything else), submit (measurements, jobs, feedback), publish"
        " (tables); a comma list",
    )  # fmt: skip
    _action(actions, "list", "print names and scopes, also of revoked tokens", run_list)
    revoke = _action(actions, "revoke", "refuse a token from now on", run_revoke)
    revoke.add_argument("name")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    run: object,
) -> argparse.ArgumentParser:
    action = add_action(actions, name, summary, EXAMPLES, run)
    add_database(action)
    return action


def run_create(options: argparse.Namespace) -> None:
    """Print the token."""
    unknown = sorted(set(options.scope) - set(db.SCOPES))
    if unknown:
        raise InputError(f"there is no scope {unknown[0]!r}; known: {', '.join(db.SCOPES)}")
    engine = db.open_database(options.db)
    with db.transaction(engine) as session:
        token = db.create_token(session, options.name, options.scope)
    emit(options, {"name": options.name, "token": token}, lambda: print(token))


def run_list(options: argparse.Namespace) -> None:
    """Print what is known about every token; not the tokens, which nobody knows."""
    engine = db.open_database(options.db)
    with db.reading(engine) as session:
        tokens = db.list_tokens(session)
    records = [_record(token) for token in tokens]
    columns = ("name", "scopes", "created_at", "last_used_at", "revoked_at")

    def show() -> None:
        rows = [[_cell(record[column]) for column in columns] for record in records]
        titles = [column.removesuffix("_at").replace("_", " ") for column in columns]
        print_table("", titles, rows, spare=("created",), prose=("scopes",))

    emit(options, records, show)


def _record(token: db.Token) -> dict[str, Any]:
    record = asdict(token)
    times = {name: value.isoformat(timespec="seconds") if value else None
             for name, value in record.items() if name.endswith("_at")}  # fmt: skip
    return {**record, **times, "scopes": sorted(token.scopes)}


def _cell(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else value or "-"


def run_revoke(options: argparse.Namespace) -> None:
    """Revoke; services notice within seconds."""
    engine = db.open_database(options.db)
    with db.transaction(engine) as session:
        db.revoke_token(session, options.name)
    emit(options, {"revoked": options.name}, lambda: print_text(f"{options.name} is revoked"))
