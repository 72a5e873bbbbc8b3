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
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from spurless.core.errors import UserError, first_line
from spurless.report.page import build, environment, source
from spurless.report.sources import AUDIT, Material, read_json, run_row, walk
from spurless.report.tables import finished, score
from spurless.train.run_folder import HISTORY, RESULT, RunFolder

WHOLE = 30.0  # seconds for a client's request and its answer
ALIVE = 120.0  # seconds since a run's last sign of life after which it is called stopped
COLUMNS = ("unbiased", "conflicting", "aligned", "worst_group", "average")


class Library:
    """The runs and audits below a folder. What was read is kept until its files change."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder).resolve()
        self.known: dict[Path, tuple[Any, dict[str, Any]]] = {}

    def places(self) -> dict[str, Path]:
        """By name, which is the path below the folder: each run's folder, and each audit.json."""
        found = {}
        for place in walk(self.folder):
            own = place.parent if place.name == AUDIT else place
            name = own.relative_to(self.folder).as_posix()
            name = self.folder.name if name == "." else name
            found[f"audit/{name}" if place.name == AUDIT else f"run/{name}"] = place
        return found

    def rows(self) -> list[dict[str, Any]]:
        """One row for each, the latest first."""
        rows = [self._row(name, place) for name, place in self.places().items()]
        return sorted(rows, key=lambda r: (r["status"] != "training", -r["changed"]))

    def page(self, name: str) -> str | None:
        """The report on one of them, or on all finished runs; None where there is no such thing."""
        places = self.places()
        if name == "all":
            done = [f"run/{r['name']}" for r in self.rows() if r["status"] == "done"]
            rows = [run_row(places[name]) for name in sorted(done) if name in places]
            return build(Material(runs=rows), f"All runs in {self.folder.name}")
        place = places.get(name)
        if place is None:
            return None
        return build(
            Material(audits=[(read_json(place), place.parent)])
            if place.name == AUDIT
            else Material(runs=[run_row(place)])
        )

    def _row(self, name: str, place: Path) -> dict[str, Any]:
        files = [place] if place.name == AUDIT else [place / n for n in (RESULT, HISTORY, "settings.toml")]
        stamps = [_stamp(file) for file in files]
        if self.known.get(place, (None, {}))[0] != stamps:
            try:
                facts = _audit_facts(read_json(place)) if place.name == AUDIT else _run_facts(place)
            except Exception as error:
                # Whatever a file holds, or another program wrote under this name: it costs one row, not the list.
                facts = {"status": "damaged", "method": "", "data": "", "scores": [], "epoch": first_line(error)}
            self.known[place] = stamps, facts
        row = dict(self.known[place][1])
        changed = max((s[0] for s in stamps if s), default=0) / 1e9
        if row["status"] == "unfinished":
            row["status"] = "training" if time.time() - changed < ALIVE else "stopped"
        return row | {"name": name.partition("/")[2], "link": "/" + quote(os.fsencode(name)), "changed": changed}


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:  # not there, or gone in this moment
        return None
    return found.st_mtime_ns, found.st_size


def _run_facts(place: Path) -> dict[str, Any]:
    row = run_row(place)
    history = row.get("history") or RunFolder(place).history()
    last = history[-1] if history else {}
    epoch = f"{last.get('stage')}, epoch {last.get('epoch')}" if last else ""
    if last and not finished(row) and isinstance(last.get("loss"), float):
        epoch += f", loss {last['loss']:.3g}"
    return {
        "status": str(row.get("status")),
        "method": row.get("method"),
        "data": row.get("data"),
        "scores": [(m, str(s)) for m in COLUMNS[:3] if (s := score(row, m))] or _average(row),
        "epoch": epoch,
    }


def _average(row: dict[str, Any]) -> list[tuple[str, str]]:
    found = score(row, "average")
    return [("average", str(found))] if found else []


def _audit_facts(audit: Any) -> dict[str, Any]:
    data = audit.get("data") or {}
    return {"status": str(audit["verdict"]), "method": "audit", "data": data.get("name"), "scores": [], "epoch": ""}


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
            return HTTPStatus.OK, "application/json", json.dumps({"runs": self.library.rows()})
        if path == "/favicon.ico":
            return HTTPStatus.NO_CONTENT, "image/x-icon", ""
        page = self.library.page(path.removeprefix("/"))
        if page is None:
            return HTTPStatus.NOT_FOUND, "text/plain", "There is no such run."
        return HTTPStatus.OK, "text/html", page

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        data = text.encode(errors="replace")
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.send_header("Content-Security-Policy", policy())
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
    policy = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment().get_template("serve.html.j2")
    return page.render(
        title=f"Runs in {library.folder.name}",
        rows=library.rows(),
        style=source("style.css"),
        script=script,
        script_hash=policy,
    )


def fragment(library: Library) -> str:
    """The rows of the list alone, which the page asks for again and again."""
    return environment().get_template("serve_rows.html.j2").render(rows=library.rows())
