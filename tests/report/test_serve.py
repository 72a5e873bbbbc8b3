"""The local page: it lists, it reads, it gives nothing else away and changes nothing."""

import base64
import hashlib
import http.client
import json
import os
import re
import socket
import struct
import threading
import time

import pytest
from typer.testing import CliRunner

from spurless.cli.main import app
from spurless.core.errors import UserError
from spurless.report.library import Library
from spurless.report.serve import serve
from tests.support.audits import make_audit
from tests.support.pages import EVIL, Page, make, only_our_script
from tests.support.runs import epoch_line

SETTINGS = 'seed = 0\n[method]\nname = "jtt"\n[data]\nname = "toy"\n'


@pytest.fixture
def shelf(tmp_path):
    """A folder with a finished run, one in training, one that stopped long ago, a damaged one and an audit."""
    root = tmp_path / "runs"
    for name, row in (("done/erm", make("erm", 0.2)), ("done/" + "lff", make("lff", 0.6))):
        (root / name).mkdir(parents=True)
        (root / name / "result.json").write_text(json.dumps(row))
    for name in ("going", "stopped"):
        (root / name).mkdir()
        (root / name / "settings.toml").write_text(SETTINGS)
        (root / name / "history.jsonl").write_text(epoch_line(epoch=7))
    for file in (root / "stopped").iterdir():
        os.utime(file, (time.time() - 9999,) * 2)
    (root / "damaged").mkdir()
    (root / "damaged" / "result.json").write_text("{")
    make_audit(root / "audit", points=5, number_of_rows=1)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "result.json").write_text(json.dumps(make("secret", 0.5)))
    (root / "linked").symlink_to(tmp_path / "outside")
    return root


@pytest.fixture
def get(shelf):
    server = serve(shelf, port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()

    def get(path, host=None, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=20)
        connection.putrequest(method, path, skip_host=host is not None)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        body = answer.read().decode()
        connection.close()
        return answer, body

    yield get
    server.shutdown()
    server.server_close()
    thread.join()


def test_it_listens_on_this_machine_only(shelf):
    with serve(shelf, port=0) as server:
        assert server.socket.getsockname()[0] == "127.0.0.1"


def test_the_list_says_what_each_run_is_doing(get):
    answer, body = get("/")
    assert answer.status == 200
    only_our_script(body)
    page = Page(body)
    names = [t for _, t in page.find("th", scope="row")]
    assert sorted(names) == ["audit", "damaged", "erm", "jtt", "lff"]
    first = page.find("li")[0][1]  # what trains comes first
    assert first.startswith("jtt on toy") and first.endswith("biased, epoch 7, loss 0.25")
    runs = [t for a, t in page.find("td") if a.get("data-name") == "runs"]
    assert sum("1 training" in text and "1 stopped" in text for text in runs) == 1
    assert [t for _, t in page.find("h2")][-2:] == ["Audits", "Cannot be read"]
    scores = [t for a, t in page.find("td") if a.get("data-name") == "conflicting"]
    assert any(text.startswith(f"{make('erm', 0.2)['scores']['conflicting']:.1f} [") for text in scores)


def seeds_of(shelf, method, scores, seeds=(0, 1, 2), **more):
    """Finished runs that differ in their seed, in folders whose names are hashes."""
    for seed, unbiased in zip(seeds, scores, strict=True):
        row = make(method, 0.5, seed) | more
        row["scores"] = row["scores"] | {"unbiased": unbiased, "worst_group": unbiased - 50}
        folder = shelf / "cells" / f"{abs(hash((method, seed, unbiased))):016x}"
        folder.mkdir(parents=True)
        (folder / "result.json").write_text(json.dumps(row))


def test_seeds_are_averaged_and_hashes_are_no_names(tmp_path):
    seeds_of(tmp_path, "pgd", (70.0, 72.0, 74.0))
    seeds_of(tmp_path, "erm", (50.0, 60.0), (0, 1))
    library = Library(tmp_path)
    (group,) = library.view().groups
    assert group.name == "toy" and group.columns[0] == "unbiased"
    assert [(line.name, line.statuses) for line in group.lines] == [
        ("erm", [("done", "2 done")]),
        ("pgd", [("done", "3 done")]),
    ]
    assert [line.cells[0] for line in group.lines] == [("55.0 ± 7.1", False), ("72.0 ± 2.0", True)]
    page = library.page(group.lines[1].link.removeprefix("/"))
    assert page.count("seed 2") and "erm" not in Page(page).find("h1")[0][1]
    assert Page(library.page(group.link.removeprefix("/"))).find("h1")[0][1] == "toy"
    assert library.page("line/0000") is None and library.page("data/../x") is None


def test_a_seed_that_ran_twice_counts_once_by_its_latest_run(tmp_path):
    seeds_of(tmp_path, "pgd", (70.0,), (0,))
    (first,) = (tmp_path / "cells").iterdir()
    os.utime(first / "result.json", (1, 1))
    seeds_of(tmp_path, "pgd", (80.0, 90.0), (0, 1))
    (group,) = Library(tmp_path).view().groups
    assert group.lines[0].cells[0].text.startswith("85.0 ±")


def test_a_group_of_two_samples_has_its_n_and_makes_nobody_the_best(tmp_path):
    seeds_of(tmp_path, "pgd", (70.0,), (0,))
    seeds_of(tmp_path, "erm", (60.0,), (0,))
    for file in tmp_path.rglob("result.json"):
        row = json.loads(file.read_text())
        if row["method"] == "erm":
            row["scores"]["n"]["worst_group"] = 2
            file.write_text(json.dumps(row))
    (group,) = Library(tmp_path).view().groups
    worst = group.columns.index("worst_group")
    assert group.lines[0].cells[worst].text.endswith("(n = 2)")
    assert [line.cells[worst].best for line in group.lines] == [False, False]
    assert [line.cells[0].best for line in group.lines] == [False, True]


def test_the_rows_follow_the_files(get, shelf):
    assert "epoch 8" not in get("/rows")[1]
    with open(shelf / "going" / "history.jsonl", "a") as file:
        file.write(epoch_line(epoch=8))
    assert "biased, epoch 8" in get("/rows")[1]
    (shelf / "going" / "result.json").write_text(json.dumps(make("jtt", 0.5)))
    rows = {r["name"]: r for r in json.loads(get("/runs.json")[1])["runs"]}
    assert rows["going"]["status"] == "done" and rows["going"]["scores"][0][0] == "unbiased"


def test_files_of_another_program_cost_one_row_only(get, shelf):
    for name, file, found in (
        ("packages", "audit.json", {"vulnerabilities": {}}),
        ("other", "result.json", {"history": {"loss": [0.5, 0.25]}}),
    ):
        (shelf / name).mkdir()
        (shelf / name / file).write_text(json.dumps(found))
    rows = {r["name"]: r["status"] for r in json.loads(get("/runs.json")[1])["runs"]}
    assert (rows["packages"], rows["other"], rows["done/erm"]) == ("damaged", "damaged", "done")
    assert get("/")[0].status == 200


def test_what_a_client_does_wrong_is_no_traceback(shelf, capfd):
    server = serve(shelf, port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    request = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(server.server_address) as connection:
        connection.sendall(request % b"http://[/")
        assert connection.recv(100).startswith(b"HTTP/1.1 500")
    for sent in (request % b"/", b"GET / HTT"):
        connection = socket.create_connection(server.server_address)
        connection.sendall(sent)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # gone without a word
        connection.close()
    time.sleep(0.3)
    server.shutdown()
    thread.join()
    server.server_close()
    assert capfd.readouterr().err == ""


def test_reports_are_made_on_request(get):
    answer, body = get("/run/done/erm")
    assert answer.status == 200
    assert Page(body).find("h1")[0][1] == "erm on toy"
    assert "Shortcut found" in get("/audit/audit")[1]
    assert Page(get("/all")[1]).find("td", class_="number best")
    assert "jtt on toy" in get("/run/going")[1]
    answer, body = get("/run/damaged")
    assert answer.status == 500 and "damaged" in body


@pytest.mark.parametrize(
    "path",
    "/run/../secret.txt /run/%2e%2e/secret.txt /run/..%2fsecret.txt /../secret.txt //secret.txt /run/linked "
    "/run/done/erm/result.json /run/done /run//etc/passwd /audit/../outside /run/%00 /audit.json /static/x /run/%c3%28 "
    "/run/..%5c..%5csecret.txt /run/done/erm/../../../outside /run/outside".split(),
)
def test_nothing_but_the_runs_can_be_reached(get, path):
    answer, body = get(path)
    assert answer.status == 404
    assert "secret" not in body and "root:" not in body


def test_only_reading_is_answered(get, shelf):
    before = {p: p.stat().st_mtime_ns for p in shelf.rglob("*")}
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert get("/run/done/erm", method=method)[0].status == 501
    for path in ("/", "/rows", "/runs.json", "/all", "/run/done/erm", "/run/going", "/audit/audit"):
        assert get(path)[0].status == 200
    answer, body = get("/", method="HEAD")
    assert answer.status == 200 and body == "" and int(answer.headers["Content-Length"]) > 1000
    assert {p: p.stat().st_mtime_ns for p in shelf.rglob("*")} == before


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "10.0.0.5", "", "127.0.0.1.evil.example", "localhost.evil"]
)
def test_another_name_for_this_machine_is_refused(get, host):
    """A page elsewhere whose name is made to point here (DNS rebinding) must not read the runs."""
    for path in ("/", "/runs.json", "/run/done/erm"):
        answer, body = get(path, host=host)
        assert answer.status == 403
        assert "erm" not in body


def test_headers_keep_the_page_to_itself(get):
    answer, _ = get("/")
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Access-Control-Allow-Origin"] is None
    assert get("/", host="localhost:1234")[0].status == 200


def test_names_are_text(get, shelf):
    name = EVIL.replace("/", "")
    (shelf / name).mkdir()
    (shelf / name / "result.json").write_text(json.dumps(make(EVIL, 0.5) | {"data": EVIL}))
    bad = os.fsdecode(b"caf\xe9 100%")
    (shelf / bad).mkdir()
    (shelf / bad / "result.json").write_text(json.dumps(make("erm", 0.5)))
    body = get("/")[1]
    only_our_script(body)
    page = Page(body)
    assert EVIL in [t for _, t in page.find("th", scope="row")] and EVIL in [t for _, t in page.find("h2")]
    links = {t: a["href"] for a, t in page.find("a")}
    assert Page(get(links[EVIL])[1]).find("h1")[0][1] == f"{EVIL} on {EVIL}"
    assert name in [r["name"] for r in json.loads(get("/runs.json")[1])["runs"]]
    assert get("/run/caf%E9%20100%25")[0].status == 200


def test_mistakes_are_said_in_one_line(tmp_path, shelf):
    with pytest.raises(UserError, match="not a folder"):
        serve(tmp_path / "gone")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = CliRunner().invoke(app, ["serve", str(shelf), "--port", str(taken.getsockname()[1])])
    assert result.exit_code == 2
    assert "Name another --port" in result.output


def test_a_run_that_is_the_folder_itself(tmp_path):
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "result.json").write_text(json.dumps(make("erm", 0.5)))
    with serve(tmp_path / "alone", port=0) as server:
        library = server.RequestHandlerClass.library
        assert list(library.places()) == ["run/alone"]
        assert "erm on toy" in library.page("run/alone")


DEEP = "[" * 100_000 + "]" * 100_000


def test_damaged_deep_and_strange_files_are_rows_that_say_so(get, shelf):
    for name, text in (
        ("deep", f'{{"status": {DEEP}}}'),
        ("bytes", "\x00\udcff"),
        ("list", "[1, 2]"),
        ("big", "9" * 9999),
    ):
        (shelf / name).mkdir()
        (shelf / name / "result.json").write_text(text, errors="surrogateescape")
    os.mkfifo(shelf / "done" / "fifo")
    for name in ("fifo-run", "fifo-settings"):
        (shelf / name).mkdir()
        os.mkfifo(shelf / name / ("result.json" if name == "fifo-run" else "settings.toml"))
    (shelf / "device").mkdir()
    (shelf / "device" / "result.json").symlink_to("/dev/zero")
    (shelf / "epochs").mkdir()
    (shelf / "epochs" / "settings.toml").write_text(SETTINGS)
    (shelf / "epochs" / "history.jsonl").write_text(f"{DEEP}\n[]\n")
    answer, body = get("/")
    assert answer.status == 200 and "/run/done/erm" in body
    rows = {r["name"]: r for r in json.loads(get("/runs.json")[1])["runs"]}
    for name in ("deep", "bytes", "list", "big", "fifo-run", "fifo-settings", "device"):
        assert rows[name]["status"] == "damaged" and rows[name]["epoch"], name
    assert rows["done/erm"]["status"] == "done"
    assert get("/all")[0].status == 200 and get("/run/deep")[0].status == 500


def test_the_policy_is_a_header_and_lets_our_scripts_run(get):
    for path in ("/", "/run/done/erm", "/rows", "/nothing"):
        answer, body = get(path)
        header = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in header and "frame-ancestors 'none'" in header
        for script in re.findall(r"<script>(.*?)</script>", body, re.DOTALL):
            digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in header


@pytest.fixture
def address(shelf):
    server = serve(shelf, port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server.server_address
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_body_is_not_the_next_request(address):
    inner = b"GET /runs.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for head in (b"Content-Length: %d\r\n" % len(inner), b"Transfer-Encoding: chunked\r\n", b""):
        with socket.create_connection(address, timeout=20) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n" + inner)
            received = b""
            try:
                while more := connection.recv(65536):
                    received += more
            except ConnectionResetError:  # what was not read is thrown away
                pass
        assert received.count(b"HTTP/1.1 ") <= 1 and b'{"runs"' not in received


def test_slow_clients_are_cut(address, monkeypatch):
    monkeypatch.setattr("spurless.report.serve.WHOLE", 1.0)
    start = time.monotonic()
    with socket.create_connection(address, timeout=20) as connection:
        connection.settimeout(0.1)
        while time.monotonic() - start < 15:  # a byte now and then, and never an end
            try:
                connection.sendall(b"G")
                if connection.recv(10) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
    assert time.monotonic() - start < 10


def test_two_hundred_clients_at_once(address):
    """All connect before the first is read, beside twenty that say nothing; each is answered."""
    silent = [socket.create_connection(address) for _ in range(20)]
    clients, answers = 200, []
    together = threading.Barrier(clients)

    def ask():
        together.wait()
        with socket.create_connection(address, timeout=60) as connection:
            connection.sendall(b"GET /rows HTTP/1.1\r\nHost: localhost\r\n\r\n")
            received = b""
            while more := connection.recv(65536):
                received += more
            answers.append(received)

    threads = [threading.Thread(target=ask) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in silent:
        connection.close()
    assert len(answers) == clients and all(a.startswith(b"HTTP/1.1 200") and b"done/erm" in a for a in answers)
