"""A local page that lists the runs of a folder and follows them while they train. It only ever reads.

No address is turned into a path: a report is looked up among the runs that were found below the folder.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import ipaddress
import json
import os
import re
import socket
import sys
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from spurless.core.errors import UserError
from spurless.report.library import Library
from spurless.report.page import environment, source

WHOLE = 30.0  # seconds for a client's request and its answer


def serve(folder: str | Path, host: str = "127.0.0.1", port: int = 8000) -> ThreadingHTTPServer:
    """A server that is ready to run: `serve(...).serve_forever()`. Port 0 takes a free one."""
    if not Path(folder).is_dir():
        raise UserError(f"{folder} is not a folder; name one that holds runs, such as runs.")
    library = Library(folder)

    class Bound(Handler):
        pass

    class Bounded(Server):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    Bound.library, Bound.host = library, host
    try:
        return Bounded((host, port), Bound)
    except (OSError, OverflowError) as error:
        raise UserError(f"{host}:{port} cannot be used ({error}). Name another --port, or 0 for a free one.") from None


class Server(ThreadingHTTPServer):
    """One thread a client, for at most `WHOLE` seconds each; so many clients may wait to be accepted."""

    request_queue_size = 256
    daemon_threads = True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # A timeout of the socket is for each read: who sends a byte now and then must be cut, too.
        cut = threading.Timer(WHOLE, _cut, (request,))
        cut.daemon = True
        cut.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            cut.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a browser that does not wait for its answer, or was cut
            super().handle_error(request, client_address)


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD, and nothing else: one request a connection."""

    library: Library
    host: str
    server_version, sys_version = "spurless", ""
    protocol_version = "HTTP/1.1"
    timeout = 10  # seconds for each read and write

    def do_GET(self) -> None:
        self.close_connection = True  # what follows, such as a body, is not read as another request
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", "A request for a page has no body.")
            return
        if not allowed(self.headers.get("Host"), self.host):
            # A page of the network that had its name point here (DNS rebinding) would send that name.
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "Open this page by its address, not by another name.")
            return
        try:
            path = os.fsdecode(unquote_to_bytes(urlsplit(self.path).path))
            status, kind, text = self._find(path)
        except (UserError, ValueError, OSError, RecursionError) as error:
            status, kind, text = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", str(error)
        self._answer(status, kind, text)

    do_HEAD = do_GET  # noqa: N815 (the name is the protocol's)

    def _find(self, path: str) -> tuple[HTTPStatus, str, str]:
        if path == "/":
            return HTTPStatus.OK, "text/html", listing(self.library)
        if path == "/rows":
            return HTTPStatus.OK, "text/html", fragment(self.library)
        if path == "/runs.json":
            return HTTPStatus.OK, "application/json", json.dumps({"runs": self.library.for_machines()})
        if path == "/favicon.ico":
            return HTTPStatus.NO_CONTENT, "image/x-icon", ""
        page = self.library.page(path.removeprefix("/"))
        if page is None:
            return HTTPStatus.NOT_FOUND, "text/plain", "There is no such run."
        return HTTPStatus.OK, "text/html", page

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        self._send(status, f"{kind}; charset=utf-8", text.encode(errors="replace"), policy())

    def _send(self, status: HTTPStatus, kind: str, data: bytes, policy: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.send_header("Content-Security-Policy", policy)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Quiet: the terminal belongs to whoever started it."""


HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def allowed(header: str | None, bound: str) -> bool:
    """Whether a Host header names this machine: an address, localhost, or the name that was given to --host.

    >>> allowed("127.0.0.1:8000", "127.0.0.1"), allowed("[::1]:8000", "::1"), allowed("localhost", "127.0.0.1")
    (True, True, True)
    >>> allowed("evil.example:8000", "127.0.0.1"), allowed(None, "127.0.0.1"), allowed("10.0.0.5", "127.0.0.1")
    (False, False, False)
    >>> allowed("10.0.0.5:8000", "0.0.0.0"), allowed("evil.example", "0.0.0.0"), allowed("lab:80", "lab")
    (True, False, True)
    """
    name = re.sub(r":\d+$", "", header or "").strip("[]").lower()
    if name in ("localhost", bound.lower()):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback or not _loopback(bound)


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@functools.cache
def policy() -> str:
    """What a page may do: run the two scripts of ours, ask this server again, and nothing else."""
    scripts = [hashlib.sha256(source(name).encode()).digest() for name in ("serve.js", "script.js")]
    ours = " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in scripts)
    rules = ["default-src 'none'", "img-src data:", "style-src 'unsafe-inline'", "connect-src 'self'"]
    rules += [f"script-src {ours}", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"]
    return "; ".join(rules)


def listing(library: Library) -> str:
    """The page with the list."""
    script = source("serve.js")
    return environment().get_template("serve.html.j2").render(
        title=f"Runs in {library.folder.name}",
        view=library.view(),
        style=source("style.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip


def fragment(library: Library) -> str:
    """The list alone, which the page asks for again and again."""
    return environment().get_template("serve_rows.html.j2").render(view=library.view())
