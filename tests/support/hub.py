"""A stand-in for the Hugging Face Hub on this machine: the addresses that uploading and fetching a model ask for."""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SHA = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Keeps one commit of each repository in `server.repositories`: files by name."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, content=b"", code=200, headers=None):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self):
        self.answer({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})

    def do_POST(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/repos/create":
            table = json.loads(body)
            name = "/".join(filter(None, (table.get("organization"), table["name"])))
            self.server.repositories.setdefault(name, {})
            self.server.created.append(table)
            self.answer({"url": f"{self.server.address}/{name}", "name": name, "id": name})
        elif self.path == "/api/validate-yaml":
            self.server.cards.append(json.loads(body)["content"])
            self.answer({"warnings": [], "errors": []})
        elif found := re.fullmatch(r"/api/models/(.+)/preupload/main", self.path):
            files = json.loads(body)["files"]
            self.answer({"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in files]})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/main", self.path):
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    self.server.repositories[found[1]][value["path"]] = base64.b64decode(value["content"])
            where = f"{self.server.address}/{found[1]}/commit/{SHA}"
            self.answer({"success": True, "commitOid": SHA, "commitUrl": where, "hookOutput": ""})
        else:
            self.answer({"error": self.path}, 501)

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        path = self.path.partition("?")[0]
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(/.*)?", path):
            files = self.server.repositories.get(found[1])
            if files is None:
                self.refuse()
            elif (found[2] or "").startswith("/tree"):
                self.answer([{"type": "file", "path": n, "size": len(b), "oid": oid(b)} for n, b in files.items()])
            else:
                self.answer({"id": found[1], "sha": SHA, "siblings": [{"rfilename": name} for name in files]})
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            content = self.server.repositories[found[1]][found[2]]
            self.answer(content, headers={"ETag": f'"{oid(content)}"', "X-Repo-Commit": SHA})
        else:
            self.refuse()

    def do_HEAD(self):
        self.do_GET()


def oid(content):
    return hashlib.sha1(content).hexdigest()


@contextmanager
def stand_in():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_address[1]}"
    server.repositories, server.created, server.cards, server.asked = {}, [], [], []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
