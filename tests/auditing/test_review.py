"""`spurless review`: what its page may do, what it saves, and that nobody else can change anything."""

import csv
import http.client
import json
import threading
import urllib.request
from urllib.parse import urlsplit

import numpy as np
import pytest
from typer.testing import CliRunner

import spurless
from spurless.auditing.decisions import Decided, Decisions
from spurless.auditing.grouping import Grouping, two_means
from spurless.auditing.review import LARGEST, Review, open_review
from spurless.auditing.samples import read_samples
from spurless.core.errors import DataError, FolderError, UserError
from tests.support.pages import EVIL
from tests.support.reviews import make_review, running


@pytest.fixture
def folder(tmp_path):
    return make_review(tmp_path / "audit")


@pytest.fixture
def site(folder):
    with running(folder) as found:
        yield found


def send(address, path="edit", body=b"{}", method="POST", **headers):
    url = urlsplit(address)
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=20)
    given = {"Content-Type": "application/json", "Content-Length": str(len(body))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    connection.putrequest(method, path if path.startswith("/") else url.path + path, skip_host="Host" in given)
    for name, value in given.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def edit(address, **asked):
    answer, content = send(address, body=json.dumps(asked).encode())
    return answer.status, json.loads(content)


def table(folder):
    with (folder / "decisions.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# Who may do what


def test_it_listens_on_this_machine_below_a_secret(folder):
    first, second = open_review(folder), open_review(folder)
    try:
        assert first[0].socket.getsockname()[0] == "127.0.0.1"
        tokens = [urlsplit(address).path.strip("/") for _, address in (first, second)]
        assert tokens[0] != tokens[1] and all(len(token) >= 20 for token in tokens)
    finally:
        first[0].server_close()
        second[0].server_close()


DECIDE = json.dumps({"finding": 0, "op": "decide", "decision": "shortcut"}).encode()
REFUSED = {
    "no token": ({"path": "/edit"}, 404),
    "wrong token": ({"path": "/AAAAAAAAAAAAAAAAAAAAAAAA/edit"}, 404),
    "no path": ({"path": "*"}, 404),
    "another place": ({"path": "edit/more"}, 404),
    "another origin": ({"Origin": "http://evil.example"}, 403),
    "an opaque origin": ({"Origin": "null"}, 403),
    "another port of this machine": ({"Origin": "http://127.0.0.1:1"}, 403),
    "another site": ({"Sec_Fetch_Site": "cross-site"}, 403),
    "another name (DNS rebinding)": ({"Host": "evil.example"}, 403),
    "a form": ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
    "plain text": ({"Content_Type": "text/plain"}, 415),
    "no length": ({"Content_Length": None}, 411),
    "a wrong length": ({"Content_Length": "-1"}, 411),
    "too long": ({"Content_Length": str(LARGEST + 1)}, 413),
    "far too long": ({"Content_Length": "9" * 5000}, 413),
    "no JSON": ({"body": b"{"}, 400),
    "not an object": ({"body": b"[]"}, 400),
    "deep": ({"body": b"[" * 50_000}, 400),
    "no such finding": ({"body": b'{"finding": 7, "op": "decide", "decision": "shortcut"}'}, 400),
    "a finding by truth": ({"body": b'{"finding": true, "op": "decide", "decision": "shortcut"}'}, 400),
    "no such decision": ({"body": b'{"finding": 0, "op": "decide", "decision": "yes"}'}, 400),
    "no such edit": ({"body": b'{"finding": 0, "op": "delete"}'}, 400),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_come_from_the_page_changes_nothing(site, folder, case):
    how, status = REFUSED[case]
    answer, content = send(site[0], **({"body": DECIDE} | how))
    assert answer.status == status, content
    assert json.loads(content)["error"]
    assert not (folder / "decisions.json").exists()
    assert [f.decision for f in site[1].review.decisions().findings] == [None, None]


def test_the_same_from_the_page_is_done(site, folder):
    origin = site[0].rpartition("/")[0].rpartition("/")[0]
    answer, content = send(site[0], body=DECIDE, Origin=origin, Sec_Fetch_Site="same-origin")
    assert (answer.status, json.loads(content)["decision"]) == (200, "shortcut")
    assert Decisions.read(folder).shortcuts == ("background",)


def test_get_shows_and_changes_nothing(site, folder):
    before = sorted(p for p in folder.rglob("*") if p.is_file())
    for path in ("", "state.json", "picture/3", "map/3", "edit", "edit?finding=0&op=decide&decision=shortcut"):
        answer, _ = send(site[0], path, b"", "GET")
        assert answer.status == (404 if path.startswith("edit") else 200)
        assert "default-src 'none'" in answer.getheader("Content-Security-Policy")
        assert answer.getheader("Cache-Control") == "no-store"
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS"):
        assert send(site[0], method=method)[0].status == 501
    assert sorted(p for p in folder.rglob("*") if p.is_file()) == before
    assert send(site[0], "picture/3", b"", "GET")[1].startswith((b"\x89PNG", b"\xff\xd8"))


PATHS = ("../audit.json", "picture/../../audit.json", "picture/%2e%2e%2faudit.json", "picture/-1", "picture/99999999")
PATHS += ("picture/3/../4", "audit.json", "review/shown.json", "picture/%00", "picture/")


@pytest.mark.parametrize("path", PATHS)
def test_no_address_becomes_a_path(site, path):
    from urllib.parse import quote

    answer, content = send(site[0], quote(path, safe="/%."), b"", "GET")
    assert answer.status == 404
    assert b"birds" not in content


def test_pictures_outside_the_audit_are_not_shown(folder):
    (folder.parent / "secret.png").write_bytes((folder / "pictures" / "usual-0-0-0.png").read_bytes())
    file = folder / "review" / "shown.json"
    shown = json.loads(file.read_text())
    shown["pictures"]["3"] = ["../secret.png", str(folder.parent / "secret.png")]
    file.write_text(json.dumps(shown))
    with running(folder) as (address, _):
        assert send(address, "picture/3", b"", "GET")[0].status == 404
        assert send(address, "map/3", b"", "GET")[0].status == 404


def test_names_of_the_audit_are_text(tmp_path):
    make_review(tmp_path / "a", findings=((EVIL, ("a", "b")), ("x", (EVIL, "d"))), labels=(EVIL, "dog"))
    with running(tmp_path / "a") as (address, _):
        page = urllib.request.urlopen(address).read().decode()
        assert EVIL not in page and page.count("<script") == 1
        answer, content = send(address, "state.json", b"", "GET")
        assert answer.getheader("Content-Type").startswith("application/json")
        assert json.loads(content)["findings"][0]["name"] == EVIL


# What is decided


def test_decisions_are_saved_with_the_groups_of_shortcuts_only(site, folder):
    assert edit(site[0], finding=0, op="decide", decision="shortcut")[0] == 200
    assert edit(site[0], finding=1, op="decide", decision="legitimate")[0] == 200
    made = Decisions.read(folder / "decisions.json")
    assert (made.shortcuts, made.legitimate, made.undecided) == (("background",), ("brightness",), ())
    rows = table(folder)
    assert list(rows[0]) == ["split", "row", "name", "label", "background"]
    assert rows[5] == {
        "split": "train",
        "row": "5",
        "name": "5.png",
        "label": "waterbird",
        "background": "like landbird",
    }
    edit(site[0], finding=0, op="decide", decision="not sure")
    assert Decisions.read(folder).undecided == ("background",)
    assert not (folder / "decisions.csv").exists()  # nothing is a shortcut any more


def test_no_cell_of_the_table_is_run_by_a_spreadsheet(site, folder):
    edit(site[0], finding=0, op="decide", decision="shortcut")
    edit(site[0], finding=0, op="name", group=0, name="=HYPERLINK(1)")
    assert {row["background"] for row in table(folder)} == {"'=HYPERLINK(1)", "like waterbird"}


def test_groups_are_named_split_merged_and_moved_and_each_edit_is_undone(site, folder):
    address = site[0]
    edit(address, finding=0, op="decide", decision="shortcut")
    names = lambda found: [(g["name"], g["n"]) for g in found["groups"]]  # noqa: E731
    _, found = edit(address, finding=0, op="name", group=0, name="  forest  ")
    assert names(found) == [("forest", 16), ("like waterbird", 8)]
    _, found = edit(address, finding=0, op="split", group=0)  # the features tell the first half from the second
    assert names(found) == [("forest", 8), ("like waterbird", 8), ("forest 2", 8)]
    _, found = edit(address, finding=0, op="merge", groups=[1, 2])
    assert names(found) == [("forest", 8), ("like waterbird", 16)]
    _, found = edit(address, finding=0, op="move", samples=[0, 2], group=1)
    assert names(found) == [("forest", 6), ("like waterbird", 18)]
    _, found = edit(address, finding=0, op="move", samples=[4], group=None, name="beach")
    assert names(found) == [("forest", 5), ("like waterbird", 18), ("beach", 1)]
    assert [row["background"] for row in table(folder)][:5] == [
        "like waterbird", "like waterbird", "like waterbird", "like waterbird", "beach",
    ]  # fmt: skip
    again = Review(folder)  # whoever comes back tomorrow
    assert names(again.state(0)) == names(found)
    assert Decisions.read(folder).findings[0].groups[2].name == "beach"
    for expected in (18, 16, 8, 8, 8):
        _, found = edit(address, finding=0, op="undo")
        assert found["groups"][1]["n"] == expected
    assert (names(found), found["edits"]) == ([("like landbird", 16), ("like waterbird", 8)], 0)
    assert edit(address, finding=0, op="undo")[0] == 200  # nothing is left to undo


BAD = (
    {"op": "name", "group": 0, "name": " "},
    {"op": "name", "group": 0, "name": "a" * 61},
    {"op": "name", "group": 0, "name": "a\u202eb"},
    {"op": "name", "group": 2, "name": "a"},
    {"op": "name", "group": True, "name": "a"},
    {"op": "split", "group": -1},
    {"op": "merge", "groups": [0, 0]},
    {"op": "merge", "groups": [0, 5]},
    {"op": "merge", "groups": 3},
    {"op": "move", "samples": [], "group": 0},
    {"op": "move", "samples": [3], "group": 0},
    {"op": "move", "samples": [0, 9], "group": 0},
    {"op": "move", "samples": ["0"], "group": 0},
    {"op": "move", "samples": [0], "group": 9},
    {"op": "move", "samples": [0], "group": None, "name": "\n\t"},
)


@pytest.mark.parametrize("wrong", BAD, ids=str)
def test_an_edit_that_does_not_fit_changes_nothing(wrong):
    made = Grouping(np.array([0, 0, 1, -1]), ["a", "b"], np.zeros((4, 1)))
    with pytest.raises(DataError):
        made.apply(wrong)
    assert (made.codes.tolist(), made.names) == ([0, 0, 1, -1], ["a", "b"])


def test_a_group_of_samples_that_are_all_alike_is_not_split():
    made = Grouping(np.array([0, 0]), ["a"], np.ones((2, 3)))
    with pytest.raises(DataError, match="alike"):
        made.apply({"op": "split", "group": 0})
    assert made.names == ["a"]


def test_two_means_finds_two_clusters_and_is_the_same_every_time():
    x = np.concatenate([np.random.default_rng(0).normal(c, 1, (n, 4)) for c, n in ((0, 60), (9, 20))])
    found = two_means(x)
    assert found.tolist() == [False] * 60 + [True] * 20
    assert (two_means(x) == found).all()


def test_groups_have_different_names_and_empty_ones_go():
    made = Grouping(np.array([0, 1, 1]), ["a", "b"], np.arange(3.0)[:, None])
    made.apply({"op": "name", "group": 1, "name": "a"})
    assert made.names == ["a", "a (2)"]
    made.apply({"op": "move", "samples": [0], "group": 1})
    assert (made.names, made.codes.tolist()) == (["a (2)"], [0, 0, 0])


def test_an_audit_of_other_samples_keeps_the_decision_and_drops_the_edits(folder, capsys):
    review = Review(folder)
    review.apply({"finding": 0, "op": "decide", "decision": "shortcut"})
    review.apply({"finding": 0, "op": "merge", "groups": [0, 1]})
    file = folder / "review" / "samples.csv"
    file.write_text(file.read_text().replace("22.png", "other.png"))
    again = Review(folder)
    assert again.decided[0].decision == "shortcut"
    assert len(again.state(0)["groups"]) == 2


def test_texts_are_shown_with_their_weights(tmp_path):
    made = Review(make_review(tmp_path / "a", texts=True)).everything()
    assert [s["side"] for s in made["items"][0]["text"] if s["text"].strip()] == ["", "for", "against"]


@pytest.mark.parametrize("damage", ["gone", "shown", "features", "value"])
def test_what_cannot_be_reviewed_says_so(folder, damage):
    place = folder / "review"
    if damage == "gone":
        (place / "samples.csv").unlink()
    elif damage == "shown":
        (place / "shown.json").write_text("{}")
    elif damage == "features":
        np.save(place / "features.npy", np.array([{}], dtype=object), allow_pickle=True)
    else:
        (place / "samples.csv").write_text((place / "samples.csv").read_text().replace("like landbird", "else"))
    with pytest.raises(FolderError):
        read_samples(folder)


DAMAGED = ("", "[]", "{}", '{"schema": 2, "data": "", "digest": "", "findings": []}')
DAMAGED += ('{"schema": 1, "data": "", "digest": "", "findings": [{"name": "a", "kind": "", "decision": "x"}]}',)


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_file_of_decisions_is_refused_by_name(tmp_path, text):
    (tmp_path / "d.json").write_text(text)
    with pytest.raises(UserError, match=r"d\.json"):
        Decisions.read(tmp_path / "d.json")


def test_decisions_come_back():
    made = Decisions("x", "0", (Decided("a", "mark", "shortcut", (), ({"op": "split", "group": 0},)),))
    assert Decisions.from_json(made.to_json()) == made


def test_python_waits_for_the_page_and_returns_the_decisions(folder):
    addresses, returned = [], []
    wait = lambda: returned.append(spurless.review(folder, browser=False, tell=addresses.append))  # noqa: E731
    thread = threading.Thread(target=wait)
    thread.start()
    while not addresses:
        thread.join(0.01)
    address = addresses[0].split()[2]
    edit(address, finding=1, op="decide", decision="legitimate")
    assert edit(address, op="done") == (200, {"done": True})
    thread.join(20)
    assert returned[0].legitimate == ("brightness",)
    assert isinstance(returned[0], spurless.Decisions)


def test_the_command_names_what_to_do_next(folder, monkeypatch):
    def decide(audit, port, browser, tell):
        review = Review(audit)
        review.apply({"finding": 0, "op": "decide", "decision": "shortcut"})
        return review.decisions()

    monkeypatch.setattr("spurless.auditing.review.review", decide)
    from spurless.cli.main import app

    found = CliRunner().invoke(app, ["review", str(folder)])
    assert found.exit_code == 0
    assert "shortcut: background" in found.stdout
    assert f"--set data.attribute={folder / 'decisions.csv'}" in found.stdout
