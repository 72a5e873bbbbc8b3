"""`spurless review`: a local page on which a person decides about the findings of an audit, and mends their groups.

It listens on this machine only. Everything lies below an address with a secret token, only POST changes anything, and
no address becomes a path: pictures are asked for by the number of their sample.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import webbrowser
from collections.abc import Callable, Mapping
from csv import writer
from dataclasses import replace
from http import HTTPStatus
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from spurless.auditing.decisions import CHOICES, FILE, TABLE, Decided, Decisions, Group
from spurless.auditing.grouping import Grouping
from spurless.auditing.samples import FIXED, Finding, Material, read_samples
from spurless.core.errors import DataError, UserError
from spurless.core.files import atomic, from_json
from spurless.core.messages import inert, log
from spurless.report.page import environment, source
from spurless.report.pictures import Album
from spurless.report.serve import Handler, Server
from spurless.report.sources import AUDIT, read_json
from spurless.report.texts import spans

HOST = "127.0.0.1"
LARGEST = 100_000  # bytes of a request's body
EACH = 12  # samples of a row that are shown


class Review:
    """The findings of an audit, what was decided so far, and the files that say so."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.material: Material = read_samples(folder)
        audit = read_json(self.folder / AUDIT)
        self.name = str((audit.get("data") or {}).get("name") or self.folder.name)
        self.lock = threading.Lock()
        self.decided = [Decided(f.name, f.kind) for f in self.material.findings]
        self._take_up()
        self.groupings = [self._grouping(k) for k in range(len(self.decided))]

    def _take_up(self) -> None:
        """What was decided before; edits only where they were made on the same samples."""
        if not (self.folder / FILE).exists():
            return
        before = Decisions.read(self.folder / FILE)
        same = before.digest == self.material.digest
        if not same and any(f.edits for f in before.findings):
            log.warning(f"The audit was repeated: {FILE} keeps its decisions, and the groups are the audit's again.")
        old = {f.name: f for f in before.findings}
        for k, new in enumerate(self.decided):
            if new.name in old:
                kept = old[new.name]
                self.decided[k] = replace(new, decision=kept.decision, edits=kept.edits if same else ())

    def _grouping(self, k: int) -> Grouping:
        finding = self.material.findings[k]
        return Grouping(finding.codes, finding.values, self.material.features).replayed(self.decided[k].edits)

    def apply(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out what the page asks for, save it, and return the finding as the page shows it."""
        with self.lock:
            k = asked.get("finding")
            if type(k) is not int or not 0 <= k < len(self.decided):
                raise DataError(f"There is no finding {k!r}.")
            if asked.get("op") == "decide":
                if asked.get("decision") not in (None, *CHOICES):
                    raise DataError(f"A decision is one of {', '.join(CHOICES)}.")
                self.decided[k] = replace(self.decided[k], decision=asked["decision"])
            elif asked.get("op") == "undo":
                self.decided[k] = replace(self.decided[k], edits=self.decided[k].edits[:-1])
                self.groupings[k] = self._grouping(k)
            else:
                self._edit(k, {name: value for name, value in asked.items() if name != "finding"})
            self.save()
            return self.state(k)

    def _edit(self, k: int, edit: dict[str, Any]) -> None:
        self.groupings[k].apply(edit)
        self.decided[k] = replace(self.decided[k], edits=(*self.decided[k].edits, edit))

    def decisions(self) -> Decisions:
        """What was decided so far."""
        findings = tuple(
            replace(d, groups=tuple(Group(name, n) for name, n in zip(g.names, g.counts(), strict=True)))
            for d, g in zip(self.decided, self.groupings, strict=True)
        )
        return Decisions(self.name, self.material.digest, findings, path=self.folder / FILE)

    def save(self) -> None:
        """Write decisions.json, and decisions.csv with a column for each shortcut."""
        decisions = self.decisions()
        decisions.write(self.folder / FILE)
        if decisions.table is None:
            (self.folder / TABLE).unlink(missing_ok=True)
            return
        chosen = [k for k, d in enumerate(self.decided) if d.decision == "shortcut"]
        text = StringIO()
        write = writer(text)
        write.writerow(map(inert, [*FIXED[:4], *(self.decided[k].name for k in chosen)]))
        for i, path in enumerate(self.material.places):
            codes = [(self.groupings[k].names, self.groupings[k].codes[i]) for k in chosen]
            write.writerow(map(inert, [*path[:4], *(names[c] if c >= 0 else "" for names, c in codes)]))
        with atomic(self.folder / TABLE) as unfinished:
            unfinished.write_text(text.getvalue(), encoding="utf-8", newline="")

    # What the page shows

    def state(self, k: int) -> dict[str, Any]:
        """A finding: its decision, and its groups with the samples that are shown of each."""
        finding, grouping = self.material.findings[k], self.groupings[k]
        shown = np.array(self.material.shown, dtype=np.int64)
        groups = []
        for g, (name, n) in enumerate(zip(grouping.names, grouping.counts(), strict=True)):
            inside = shown[grouping.codes[shown] == g] if len(shown) else shown
            aligned = finding.aligned[inside]
            rows = {"aligned": inside[aligned][:EACH].tolist(), "conflicting": inside[~aligned][:EACH].tolist()}
            groups.append({"name": name, "n": n} | rows)
        counts = _counts(finding)
        decided = self.decided[k]
        return {"finding": k, "name": finding.name, "words": finding.words, "text": finding.text,
                "verdict": finding.verdict,
                "decision": decided.decision, "edits": len(decided.edits), "groups": groups} | counts  # fmt: skip

    def everything(self) -> dict[str, Any]:
        """All findings, and what is shown of each sample."""
        items = {}
        for i in self.material.shown:
            _, row, name, label, prediction = self.material.places[i]
            picture, heat = self.material.pictures.get(i, (None, None))
            items[i] = {
                "caption": f"{name or f'sample {row}'}: {label}, predicted {prediction}",
                "label": label,
                "prediction": prediction,
                "picture": picture is not None,
                "map": heat is not None,
                "text": spans(self.material.texts[i]) if i in self.material.texts else None,
            }
        return {"findings": [self.state(k) for k in range(len(self.decided))], "items": items}


def _counts(finding: Finding) -> dict[str, int]:
    asked = finding.codes >= 0
    return {"aligned": int((asked & finding.aligned).sum()), "conflicting": int((asked & ~finding.aligned).sum())}


class Reviewer(Handler):
    """Answers GET below the token, and POST of edits; the rest is as `spurless serve` has it."""

    review: Review
    album: Album
    token: str
    done: threading.Event

    def _find(self, path: str) -> tuple[HTTPStatus, str, str]:
        folder = self._place(path)
        if folder is None:
            return HTTPStatus.NOT_FOUND, "text/plain", "Open the whole address that the command printed."
        if folder == "":
            return HTTPStatus.OK, "text/html", page(self.review)
        if folder == "state.json":
            return HTTPStatus.OK, "application/json", json.dumps(self.review.everything())
        kind, _, number = folder.partition("/")
        if kind in ("picture", "map") and number.isdecimal() and len(number) < 10:
            return self._picture(kind, int(number))
        return HTTPStatus.NOT_FOUND, "text/plain", "There is no such page."

    def _place(self, path: str) -> str | None:
        """What an address names below the token; None where it has another one."""
        parts = path.split("/", 2)
        if len(parts) < 3 or not hmac.compare_digest(parts[1].encode("utf-8", "replace"), self.token.encode()):
            return None
        return parts[2]

    def _picture(self, kind: str, i: int) -> tuple[HTTPStatus, str, str]:
        paths = self.review.material.pictures.get(i, (None, None))
        drawn = self.album.picture(paths[kind == "map"])
        if drawn is None:
            return HTTPStatus.NOT_FOUND, "text/plain", "There is no such picture."
        return HTTPStatus.OK, drawn["uri"].partition(";")[0].removeprefix("data:"), drawn["uri"]

    def do_POST(self) -> None:  # noqa: N802 (the name is the protocol's)
        self.close_connection = True
        status, answer = self._posted()
        self._answer(status, "application/json", json.dumps(answer))

    def _posted(self) -> tuple[HTTPStatus, dict[str, Any]]:
        """Do what is asked, if it comes from the page itself."""
        refused = self._refused()
        if refused is not None:
            return refused[0], {"error": refused[1]}
        try:
            asked = from_json(self.rfile.read(int(self.headers["Content-Length"])))
            if not isinstance(asked, dict):
                raise DataError("An edit is a JSON object.")
            if asked.get("op") == "done":
                self.done.set()
                return HTTPStatus.OK, {"done": True}
            return HTTPStatus.OK, self.review.apply(asked)
        except (UserError, ValueError, RecursionError) as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except OSError as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"It cannot be saved ({error.strerror})."}

    def _refused(self) -> tuple[HTTPStatus, str] | None:
        headers = self.headers
        if self._place(self.path) != "edit":
            return HTTPStatus.NOT_FOUND, "Open the whole address that the command printed."
        here = f"{HOST}:{self.connection.getsockname()[1]}"
        if headers.get("Host") != here or headers.get("Origin", f"http://{here}") != f"http://{here}":
            return HTTPStatus.FORBIDDEN, "Another page may not change anything here."
        if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return HTTPStatus.FORBIDDEN, "Another page may not change anything here."
        if headers.get_content_type() != "application/json":
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "An edit is application/json."
        length = headers.get("Content-Length", "")
        if not length.isdecimal() or "Transfer-Encoding" in headers:
            return HTTPStatus.LENGTH_REQUIRED, "An edit says how long it is."
        if len(length) > 9 or int(length) > LARGEST:
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"An edit has at most {LARGEST:,} bytes."
        return None

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        if kind.startswith("image/") and text.startswith("data:"):
            self._send(status, kind, base64.b64decode(text.partition(",")[2]), policy())
        else:
            self._send(status, f"{kind}; charset=utf-8", text.encode(errors="replace"), policy())


def policy() -> str:
    """What the page may do: run the one script of ours, show pictures of this server, and ask it."""
    rules = ["default-src 'none'", "img-src 'self' data:", "style-src 'unsafe-inline'", "connect-src 'self'"]
    rules += [f"script-src 'sha256-{_hash('review.js')}'", "base-uri 'none'", "form-action 'none'"]
    return "; ".join([*rules, "frame-ancestors 'none'"])


def _hash(name: str) -> str:
    return base64.b64encode(hashlib.sha256(source(name).encode()).digest()).decode()


def page(review: Review) -> str:
    """The page without its findings, which its script asks for."""
    return (
        environment()
        .get_template("review.html.j2")
        .render(
            title=f"Review of {review.name}",
            style=source("style.css") + source("review.css"),
            script=source("review.js"),
        )
    )


def open_review(audit: str | Path, port: int = 0) -> tuple[Server, str]:
    """A server that is ready to run, and the address of its page. Port 0 takes a free one."""
    given = Path(audit)
    review = Review(given.parent if given.name == AUDIT else given)

    class Bound(Reviewer):
        pass

    Bound.review, Bound.album, Bound.host = review, Album(review.folder, budget=10**12), HOST
    Bound.token, Bound.done = secrets.token_urlsafe(18), threading.Event()
    try:
        server = Server((HOST, port), Bound)
    except (OSError, OverflowError) as error:
        raise UserError(f"{HOST}:{port} cannot be used ({error}). Name another --port, or 0 for a free one.") from None
    return server, f"http://{HOST}:{server.server_address[1]}/{Bound.token}/"


def review(audit: str | Path, port: int = 0, browser: bool = True, tell: Callable[[str], object] = print) -> Decisions:
    """Let a person decide about the findings of an audit on a local page, until the page says that it is done.

    `audit` is an audit's folder. Every decision is saved at once, in decisions.json and decisions.csv there; Ctrl-C
    ends it too. `browser` opens the page; `tell` is given its address. Returns the decisions.

    >>> spurless.review("runs/audit-birds").shortcuts  # doctest: +SKIP
    ('background',)
    """
    server, address = open_review(audit, port)
    handler: Any = server.RequestHandlerClass
    tell(f"Review at {address} (Ctrl-C ends it)")
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            if browser:
                webbrowser.open(address)
            handler.done.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.shutdown()
            thread.join()
    made: Decisions = handler.review.decisions()
    return made
