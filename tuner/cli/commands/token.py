"""Make, list and revoke the tokens that programs show to a service."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from tuner import db
from tuner.base.errors import InputError, UsageError, shortened_repr
from tuner.base.spelling import unknown_name
from tuner.base.units import format_timestamp, parse_duration
from tuner.cli.options import argument_types
from tuner.cli.options.database import add_database_option
from tuner.cli.terminal.output import add_subcommand, print_result, print_table, print_text

EXAMPLES = """examples:
  tuner token create jobs --scope read --db sqlite:///tuner.db
  tuner token create probe-of-rack-7 --scope read,submit --expires 90d
  tuner token list
  tuner token revoke jobs

A token is shown once, when it is made: the database keeps only a hash of it. Give it to programs as
TUNER_TOKEN, or send `Authorization: Bearer TOKEN`. A revoked one is refused within seconds."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    create = _action(actions, "create", "make a token and print it", run_create)
    create.add_argument("name", help="name of the client that gets the token")
    create.add_argument(
        "--scope",
        type=argument_types.name_list,
        required=True,
        help="scopes, separated by commas: read (tables and everything else), submit"
        " (measurements, jobs, feedback), publish (tables)",
    )
    create.add_argument(
        "--expires",
        type=parse_expiry,
        metavar="WHEN",
        help="expiry: a time from now, such as 90d or 12h, or a date, such as 2027-01-31, which"
        " begins at 00:00 UTC (default: never)",
    )
    _action(actions, "list", "print names and scopes, also of revoked tokens", run_list)
    revoke = _action(actions, "revoke", "refuse a token from now on", run_revoke)
    revoke.add_argument("name")


def _action(
    actions: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    run: object,
) -> argparse.ArgumentParser:
    action = add_subcommand(actions, name, summary, EXAMPLES, run)
    add_database_option(action)
    return action


def run_create(options: argparse.Namespace) -> None:
    """Create a token and print it."""
    unknown = sorted(set(options.scope) - set(db.SCOPES))
    if unknown:
        raise UsageError(unknown_name("scope", unknown[0], db.SCOPES))
    engine = db.open_database(options.db)
    with db.transaction(engine) as session:
        token = db.create_token(session, options.name, options.scope, options.expires)
    record = {"name": options.name, "token": token, "expires_at": _written(options.expires)}
    print_result(options.json, record, lambda: print(token))


def parse_expiry(text: str) -> datetime:
    """Parse `90d`, a date or a time in ISO 8601 to a time; raise InputError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return _after(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _after(duration: str) -> datetime:
    try:
        return datetime.now(UTC) + timedelta(seconds=parse_duration(duration))
    except (InputError, OverflowError):
        raise InputError(
            f"expected a time such as 90d or 2027-01-31, got {shortened_repr(duration)}"
        ) from None


def run_list(options: argparse.Namespace) -> None:
    """Print what is known about every token, but not the tokens, which are not stored."""
    engine = db.open_database(options.db, must_exist=True)
    with db.read_session(engine) as session:
        tokens = db.list_tokens(session)
    records = [_record(token) for token in tokens]
    columns = ("name", "scopes", "state", "expires", "last used", "created")

    def show() -> None:
        rows = [_row(token) for token in tokens]
        print_table("", columns, rows, droppable=("created", "last used"), wrappable=("scopes",))

    print_result(options.json, records, show)


def _record(token: db.Token) -> dict[str, Any]:
    record = asdict(token)
    times = {name: _written(value) for name, value in record.items() if name.endswith("_at")}
    return {**record, **times, "scopes": sorted(token.scopes)}


def _row(token: db.Token) -> tuple[str, ...]:
    state = "revoked" if token.revoked_at else "expired" if token.expired else "valid"
    times = (token.expires_at, token.last_used_at, token.created_at)
    return (
        token.name,
        ", ".join(sorted(token.scopes)),
        state,
        *(f"{time.astimezone(UTC):%Y-%m-%d %H:%M}" if time else "never" for time in times),
    )


def _written(moment: datetime | None) -> str | None:
    return None if moment is None else format_timestamp(moment)


def run_revoke(options: argparse.Namespace) -> None:
    """Revoke a token; services notice within seconds."""
    engine = db.open_database(options.db, must_exist=True)
    with db.transaction(engine) as session:
        db.revoke_token(session, options.name)
    print_result(
        options.json, {"revoked": options.name}, lambda: print_text(f"{options.name} is revoked")
    )
