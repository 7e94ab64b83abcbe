"""The crash harness: services, command lines and writers on one database, killed at any moment.

In each round a service runs, sometimes a second one beside it, and beside them command lines and
programs that use the database directly. Some kill themselves before a chosen statement, before or
right after a commit, or in the middle of a write to a file; the first service is killed at the
latest when all its requests are sent, while it answers the last of them. Then the database must be
sound and hold everything that was acknowledged, and nothing that is half there. From time to time
the service meets a full disk, files that it may not write to or that were moved away, or the
database is replaced by its backup.

What a round does follows from the seed and its number; only how far the processes are when another
one is killed also depends on the computer.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import resource
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import make_url, text

from tests.support import crash_actors as actors
from tests.support.children import Child
from tests.support.crash_model import (
    CLAIMED,
    IN_LOG,
    JOB,
    KEPT_JOBS,
    KEPT_TABLES,
    MEASUREMENTS,
    PUBLICATION,
    REVOKED,
    TABLE,
    TOKEN,
    Model,
    check,
    numbered_measurements,
    numbered_table,
)
from tests.support.stored import measurements_file
from tests.support.waiting import patience, until
from tuner import db
from tuner.core.table import table_record

FAULTS = 0.15  # of all rounds
REFUSED = (429, 503)  # statuses: the queue of jobs is full, the database cannot be used
ROUNDS_OF_A_DATABASE = 25  # then a new one is begun, or a backup of this one restored
STUDY = {
    "topology": {"name": "flat", "nodes": 4, "latency": "2us", "bandwidth": "12.5GB/s"},
    "collectives": ["allreduce"],
    "algorithms": ["ring"],
    "sizes": ["1MiB"],
}
READ_ONLY = (
    "the database may not be written to; check the permissions of its file and of its directory"
)
END_OTHERS = (
    "select pg_terminate_backend(pid) from pg_stat_activity"
    " where datname = current_database() and pid <> pg_backend_pid()"
)
MIN_BYTES = 1 << 16  # of a limit of file sizes, which the index of a log must not exceed


@dataclass
class Client:
    """Requests to a service; each answer is the acknowledgement of what it names."""

    address: str
    model: Model
    directory: Path

    def send(self, path: str, body: bytes, kill: Callable[[], None] | None = None) -> Any:
        """POST a body and return the JSON of a good answer, or None.

        kill    called after the request is sent, before its answer is read
        """
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=patience())
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            if kill is not None:
                kill()
            answer = connection.getresponse()
            content = json.loads(answer.read())
            assert answer.status in (200, 201, 202, *REFUSED), (path, answer.status, content)
            return content if answer.status not in REFUSED else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def ready(self) -> tuple[int, str]:
        """Return the status of /v1/ready and what it says."""
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=patience())
        connection.request("GET", "/v1/ready")
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        return answer.status, content.get("detail", "")

    def publish(self, n: int, kill: Callable[[], None] | None = None) -> bool:
        """Store a table and publish it; return whether both were acknowledged."""
        self.model.asked.add((TABLE, n))
        stored = self.send("/v1/tables", json.dumps(table_record(numbered_table(n))).encode(), kill)
        if stored is None:
            return False
        self.model.acknowledge(TABLE, n, stored["version"])
        body = json.dumps({"version": stored["version"]}).encode()
        published = self.send("/v1/publications", body)
        if published is not None:
            self.model.acknowledge(PUBLICATION, published["id"], published["version"])
        return published is not None

    def upload(self, n: int, kill: Callable[[], None] | None = None) -> bool:
        """Store measurements; return whether they were acknowledged."""
        self.model.asked.add((MEASUREMENTS, n))
        stored = self.send("/v1/measurements", _file(self.directory, n).read_bytes(), kill)
        if stored is not None:
            self.model.acknowledge(MEASUREMENTS, n, stored["id"])
        return stored is not None

    def enqueue(self, n: int, kill: Callable[[], None] | None = None) -> bool:
        """Ask for a study; return whether the job was acknowledged."""
        self.model.asked.add((JOB, n))
        job = self.send("/v1/studies", json.dumps({**STUDY, "name": str(n)}).encode(), kill)
        if job is not None:
            self.model.acknowledge(JOB, n, job["id"])
        return job is not None


def _file(directory: Path, n: int) -> Path:
    path = directory / f"{n}.ndjson"
    if not path.exists():
        measurements_file(path, numbered_measurements(n))
    return path


@dataclass
class Backup:
    """A backup, and what it must have."""

    path: Path
    model: Model


@dataclass
class Crashes:
    """Rounds on databases of one kind.

    fresh       a function that returns the URL of a new, empty database
    directory   for what the processes share; its own permissions and those above let all users in
    programs    the folder of pg_dump and pg_restore
    """

    fresh: Callable[[], str]
    directory: Path
    seed: int
    programs: str = ""
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.round, self.numbers, self.rng = 0, 0, random.Random(self.seed)
        self._begin(self.fresh(), Model())

    def run(self, rounds: int) -> None:
        """Run rounds; raise AssertionError, with the seed and the round, where anything is lost."""
        for _ in range(rounds):
            self.rng = random.Random(f"{self.seed} {self.round}")
            try:
                self._round()
            except BaseException as reason:
                reason.add_note(f"seed {self.seed}, round {self.round}, {self.url}")
                raise
            self.round += 1

    @property
    def is_sqlite(self) -> bool:
        """Return whether the database has files of its own."""
        return self.url.startswith("sqlite")

    def _begin(self, url: str, model: Model) -> None:
        self.url, self.model = url, model
        self.backup: Backup | None = None
        db.open_database(url).dispose()

    def _round(self) -> None:
        if self.round and self.round % ROUNDS_OF_A_DATABASE == 0:
            self._replace()
        if self.rng.random() < FAULTS:
            self.meet(self.rng.choice(list(self.faults)))
        else:
            self._crash()
            self._check()

    def meet(self, fault: str) -> None:
        """Let a service meet one of the `faults`."""
        self.counts[fault] += 1
        self.faults[fault]()
        self._check()

    def _check(self) -> None:
        engine = db.open_database(self.url, must_exist=True)
        check(engine, self.model)
        engine.dispose()

    def _replace(self) -> None:
        """Go on with the backup of this database, if there is one, or else with a new one."""
        if self.backup is None:
            self._begin(self.fresh(), Model())
            return
        self.counts["restored"] += 1
        url, model = self.fresh(), self.model.restored(self.backup.model)
        if self.is_sqlite:
            shutil.copy(self.backup.path, _path(url))
            _path(url).chmod(0o600)
        else:
            words = ["--no-owner", "--exit-on-error", f"--dbname={url}", str(self.backup.path)]
            subprocess.run([f"{self.programs}/pg_restore", *words], check=True)
        self._begin(url, model)

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers

    @property
    def faults(self) -> dict[str, Callable[[], None]]:
        """Return what a service on this kind of database can meet, by name."""
        if self.is_sqlite:
            return {
                "full disk": self._full_disk,
                "read-only file": self._read_only,
                "moved file": self._moved_away,
            }
        return {"read-only server": self._read_only_server}

    def _crash(self) -> None:
        """Run services and others beside them, and kill some."""
        prunes = self.rng.random() < 0.3
        self.model.pruned |= prunes
        first = Child(actors.run_service, self.url, self._death(0.3, 80), prunes)
        address = first.next_word()
        second = None
        if self.rng.random() < 0.3:
            second = Child(actors.run_service, self.url, self._death(0.5, 80))
        others = [self._beside(address) for _ in range(self.rng.randint(1, 3))]
        if address is not None:
            self._send_requests(first, Client(address, self.model, self.directory))
        for other in others:
            self._hear(other)
        for service in filter(None, (second, first)):
            service.signal(self.rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)))
            self.counts["killed services"] += service.end() == -signal.SIGKILL

    def _send_requests(self, service: Child, client: Client) -> None:
        """Send requests; kill the service while it answers the last one."""
        number = self.rng.randint(1, 4)
        for place in range(number):
            send = self.rng.choice((client.publish, client.publish, client.upload, client.enqueue))
            kill = service.kill if place == number - 1 and self.rng.random() < 0.7 else None
            self.counts["acknowledged requests"] += send(self._number(), kill)

    def _beside(self, address: str | None) -> Child:
        """Start a command line, a writer, or a backup."""
        choices: list[Callable[[], Child]] = [
            self._writer,
            self._writer,
            self._create_token,
            self._create_token,
            self._revoke_token,
            self._prune,
        ]
        if address is not None:
            choices.append(lambda: self._publish_command(address))
        choices.append(self._back_up)
        return self.rng.choice(choices)()

    def _hear(self, child: Child) -> None:
        """Note everything that a process has acknowledged until its end."""
        for kind, number, value in child.everything():
            if kind == "backup":
                self.backup = self._begun_backup
            elif kind == "published":
                version = json.loads(value)["version"]
                self.model.acknowledge(TABLE, number, version)
                self.model.acknowledge(IN_LOG, version, True)
            elif kind == CLAIMED:
                self.model.asked.add((kind, number))
            elif kind != "ended":
                self.model.acknowledge(kind, number, value)
        status = child.end()
        assert status in (0, -signal.SIGKILL, -signal.SIGXFSZ), f"a process ended with {status}"
        self.counts["killed others"] += status != 0

    def _writer(self) -> Child:
        work: list[tuple[str, int, Any]] = []
        for _ in range(self.rng.randint(1, 4)):
            kind, n, needed = self.rng.choice(list(actors.WRITERS)), self._number(), None
            if kind == MEASUREMENTS:
                n = self._unfinished_upload() or n
                needed = _file(self.directory, n)
            self.model.asked.add((kind, n))
            work.append((kind, n, needed))
        return Child(actors.write_directly, self.url, work, self._death(0.6))

    def _unfinished_upload(self) -> int | None:
        """Return the number of a file that was not acknowledged, or was, to be sent once more."""
        asked = sorted(self.model.asked_of(MEASUREMENTS))
        return self.rng.choice(asked) if asked and self.rng.random() < 0.5 else None

    def _create_token(self) -> Child:
        n = self._number()
        self.model.asked.add((TOKEN, n))
        return self._command(TOKEN, n, "token", "create", str(n), "--scope", "read")

    def _revoke_token(self) -> Child:
        known = sorted(self.model.all_of(TOKEN))
        if not known:
            return self._create_token()
        n = self.rng.choice(known)
        self.model.asked.add((REVOKED, n))
        return self._command(REVOKED, n, "token", "revoke", str(n))

    def _prune(self) -> Child:
        self.model.pruned = True
        kept = ("--keep-tables", str(KEPT_TABLES), "--keep-jobs", str(KEPT_JOBS))
        return self._command("ended", 0, "db", "prune", *kept)

    def _command(self, kind: str, n: int, *words: str) -> Child:
        return Child(actors.run_command, [*words, "--db", self.url], self._death(0.4), kind, n)

    def _publish_command(self, address: str) -> Child:
        n = self._number()
        self.model.asked.add((TABLE, n))
        path = self.directory / f"{n}.json"
        path.write_text(json.dumps(table_record(numbered_table(n))))
        words = ["publish", str(path), "--service", address, "--json"]
        return Child(actors.run_command, words, None, "published", n)

    def _back_up(self) -> Child:
        path = self.directory / f"backup-{self._number()}"
        self._begun_backup = Backup(path, self.model.snapshot())
        if self.is_sqlite:
            return Child(actors.back_up, self.url, path, self._death(0.3))
        return Child(actors.dump, self.url, path, self.programs)

    def _death(self, probability: float, statements: int = 20) -> actors.Death:
        if self.rng.random() > probability:
            return None
        kind = self.rng.choice((actors.STATEMENT, actors.COMMIT, actors.COMMITTED, actors.WRITE))
        if kind == actors.WRITE and self.is_sqlite:
            return kind, self._size() + self.rng.randrange(10_000)
        if kind in (actors.STATEMENT, actors.WRITE):
            return actors.STATEMENT, self.rng.randint(1, statements)
        return kind, self.rng.randint(1, statements // 5)

    def _size(self) -> int:
        """Return the bytes of the largest file of the database."""
        files = (_path(self.url, suffix) for suffix in ("", "-wal"))
        return max(MIN_BYTES, *(file.stat().st_size if file.exists() else 0 for file in files))

    def _full_disk(self) -> None:
        """Let a service meet the end of the disk; once there is room again it goes on."""
        with self._service() as (service, client):
            limit = self._size() + self.rng.randrange(20_000)
            resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (limit, -1))
            while client.publish(self._number()):
                pass
            status, said = client.ready()
            assert status == 200 or "cannot be written" in said, said
            resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (-1, -1))

    def _read_only(self) -> None:
        """Let a service meet a file that it may not write to, and then may."""
        if os.geteuid() == 0:
            os.chown(_path(self.url), actors.UNPRIVILEGED, actors.UNPRIVILEGED)
        engine = db.open_database(self.url)  # so that there are -wal and -shm, which are writable
        _path(self.url).chmod(0o400)
        with self._service(False, True) as (_, client):
            assert not client.publish(self._number())
            assert client.ready() == (503, READ_ONLY)
            _path(self.url).chmod(0o600)
        engine.dispose()

    def _moved_away(self) -> None:
        """Move a file of the database away from a service and back again."""
        moved = _path(self.url, self.rng.choice(("", "-wal", "-shm")))
        away = self.directory / "away"
        with self._service() as (_, client):
            assert client.publish(self._number())
            moved.rename(away)
            assert not client.publish(self._number())
            status, said = client.ready()
            assert (status, "was deleted or replaced" in said) == (503, True)
            assert not moved.exists()
            away.rename(moved)

    def _read_only_server(self) -> None:
        """Let a service meet a server that refuses to write, and then does."""
        name = make_url(self.url).database
        engine = db.open_database(self.url)
        with engine.connect() as connection, self._service() as (_, client):
            connection.execution_options(isolation_level="AUTOCOMMIT")
            alter = f"alter database {name} set default_transaction_read_only ="
            assert client.publish(self._number())
            connection.execute(text(f"{alter} on"))
            connection.execute(text(END_OTHERS))
            assert not client.publish(self._number())
            until(lambda: "may only be read" in client.ready()[1])  # once all connections are new
            assert client.ready()[0] == 503
            connection.execute(text(f"{alter} off"))
        engine.dispose()

    @contextmanager
    def _service(self, *circumstances: Any) -> Iterator[tuple[Child, Client]]:
        """Return a service, which must store again at the end, and is then killed."""
        service = Child(actors.run_service, self.url, None, *circumstances)
        try:
            client = Client(service.next_word(), self.model, self.directory)
            yield service, client
            until(lambda: client.ready()[0] == 200)
            until(lambda: client.publish(self._number()))
        finally:
            service.kill()
            service.end()


def _path(url: str, suffix: str = "") -> Path:
    """Return the path of an SQLite database, or of a file beside it."""
    return Path(f"{make_url(url).database}{suffix}")
