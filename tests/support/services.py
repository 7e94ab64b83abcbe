"""Services that answer as a test wants: by HTTP, or by whatever bytes it sends."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.ladders import table_of
from tests.support.waiting import be_slow
from tuner.core.collective import Collective
from tuner.core.table import AlgorithmChoice, table_record
from tuner.runtime.table_source import TableRequest

HOST = "127.0.0.1"
LIBRARY = "openmpi 5.0.11"
ETAG = '"7-0123456789ab"'


@dataclass
class Reply:
    """One answer."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Seen:
    """One request as the service got it."""

    method: str
    path: str
    headers: Message
    body: bytes


class Service:
    """An HTTP server whose answers come from `reply`, replaceable at any time."""

    def __init__(self, reply: Callable[[Seen], Reply], port: int = 0) -> None:
        self.reply = reply
        self.seen: list[Seen] = []
        methods = {f"do_{method}": self._answer for method in ("GET", "POST")}
        handler = type("Handler", (_Silent,), methods)
        self.server = ThreadingHTTPServer((HOST, port), handler)
        self.server.daemon_threads = True
        self.url = f"http://{HOST}:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """From now on connections are refused."""
        self.server.shutdown()
        self.server.server_close()

    @property
    def _answer(self) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
            self.seen.append(Seen(handler.command, handler.path, handler.headers, body))
            reply = self.reply(self.seen[-1])
            handler.send_response(reply.status)
            headers = {"Content-Length": str(len(reply.body)), **reply.headers}
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(reply.body)

        return answer


class _Silent(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def always(reply: Reply) -> Callable[[Seen], Reply]:
    """The same answer whatever is asked."""
    return lambda _: reply


def text_of(algorithm: str = "ring", library: str = LIBRARY) -> str:
    """A table with one rule for allreduce on 8 ranks."""
    ladders = {(Collective.ALLREDUCE, 8): [(0, AlgorithmChoice(algorithm))]}
    return json.dumps(table_record(table_of(ladders, library=library)))


GOOD = text_of().encode()


def good(_: Seen) -> Reply:
    """Version 7 of a good table."""
    return Reply(GOOD, headers={"ETag": ETAG})


def wanted(service: str, **more: Any) -> TableRequest:
    """A request that is not patient."""
    return TableRequest(LIBRARY, service=service, **{"timeout_s": 2.0, **more})


@contextmanager
def serving(reply: Callable[[Seen], Reply]) -> Iterator[Service]:
    service = Service(reply)
    try:
        yield service
    finally:
        service.stop()


@contextmanager
def misbehaving(behave: Callable[[socket.socket], None], port: int = 0) -> Iterator[str]:
    """The URL of a socket server; `behave` gets each connection after its request has come in."""
    listener = socket.create_server((HOST, port))

    def attend(connection: socket.socket) -> None:
        with connection:
            connection.recv(65536)
            try:
                behave(connection)
            except OSError:  # the client has gone, as it should
                return

    def listen() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=attend, args=(connection,), daemon=True).start()

    threading.Thread(target=listen, daemon=True).start()
    try:
        yield f"http://{HOST}:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def hang(connection: socket.socket) -> None:
    """Say nothing until the client goes."""
    connection.recv(1)


def drip(connection: socket.socket) -> None:
    """A promise of much, kept byte by byte."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        be_slow(0.05)


def drip_headers(connection: socket.socket) -> None:
    """Not even the headers come to an end."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    while True:
        connection.sendall(b"x")
        be_slow(0.05)


def garbage(connection: socket.socket) -> None:
    """No HTTP at all."""
    connection.sendall(bytes(range(256)) * 20)


def truncate(connection: socket.socket) -> None:
    """Less than promised."""
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"kind": "table"')


def endless(connection: socket.socket) -> None:
    """More than any table, without a length."""
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        connection.sendall(b" " * 1_000_000)
