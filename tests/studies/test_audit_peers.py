"""studies/audit/peers.py: what each tool is given, and how its answer is counted."""

import json
import sys

import torch

from spurless.core.data import Bundle, Images, Split
from studies.audit import peers
from studies.audit.jobs import Job
from studies.audit.kinds import Kind

PLANTED = Kind("made", "small", "cifar 3 5", "brighter", ("brightness", "contrast"), 40, "develop")
CLEAN = PLANTED._replace(name="clean", names=())
PLANTED_JOB = Job("zoo", PLANTED, 0.95, 0)
KEPT = {"names": [], "verdict": "no evidence", "seconds": 1.0, "version": "1"}


def test_every_image_kind_of_the_development_half_is_asked_once():
    jobs = peers.image_jobs()
    names = [job.kind.name for job in jobs]
    assert len(names) == len(set(names)) >= 50 and {job.kind.half for job in jobs} == {"develop"}
    assert {job.strength for job in jobs} == {0.95, 0.5}


def test_names_of_the_peers_are_told_in_ours_and_a_clean_set_with_a_verdict_is_an_alarm():
    planted, clean = Job("zoo", PLANTED, 0.95, 0), Job("zoo", CLEAN, 0.5, 0)
    answer = {"names": ["dark"], "seconds": 1.0, "version": "1"}
    row = peers.judged(planted, "cleanlab", 40, answer)
    assert row["seen"] and row["named_right"]
    assert not peers.judged(planted, "cleanlab", 40, answer | {"names": []})["seen"]
    assert not peers.judged(planted, "deepchecks", 40, answer | {"names": ["Area"]})["named_right"]
    assert not peers.judged(planted, "ours", 40, answer | {"names": ["noise", "brightness"]})[
        "named_right"
    ]  # the first
    assert not peers.judged(clean, "ours", 40, answer | {"verdict": "available"})["seen"]
    assert peers.judged(clean, "ours", 40, answer | {"verdict": "gap"})["seen"]
    assert peers.judged(clean, "quick", 40, answer)["seen"]


def test_only_what_has_no_row_is_asked(tmp_path, monkeypatch):
    asked = []

    def answer(job, tools, pythons, folder):
        asked.append((job.kind.name, tools))
        return [peers.judged(job, tool, 40, KEPT) for tool in tools]

    monkeypatch.setattr(peers, "measured", answer)
    monkeypatch.setattr(peers, "image_jobs", lambda: [PLANTED_JOB, Job("zoo", CLEAN, 0.5, 0)])
    monkeypatch.setattr(sys, "argv", ["peers", "--cleanlab", "python", "--out", str(tmp_path / "rows")])
    peers.put(tmp_path / "rows" / "made, ours", peers.judged(PLANTED_JOB, "ours", 40, KEPT))
    peers.main()
    assert asked == [("made", ["quick", "cleanlab"]), ("clean", ["ours", "quick", "cleanlab"])]
    peers.main()  # all have a row now
    assert len(asked) == 2 and len(peers.named(tmp_path / "rows")) == 6


def test_the_table_counts_by_hand_and_names_what_is_missing():
    rows = [
        peers.judged(Job("zoo", kind, 0.5, 0), "cleanlab", 40, {"names": names, "seconds": s, "version": "2.9"})
        for kind, names, s in ((PLANTED, ["dark"], 1.0), (PLANTED, [], 3.0), (CLEAN, ["odd_size"], 5.0))
    ]
    rows.append({"kind": "made", "clean": False, "tool": "deepchecks", "error": "broken"})
    lines = {line.split("|")[1].strip(): line for line in peers.table(rows).splitlines()[2:]}
    shares = [cell.split("%")[0].strip() for cell in lines["cleanlab Datalab"].split("|")[3:6]]
    assert shares == ["50", "100", "100"] and lines["cleanlab Datalab"].split("|")[6].strip() == "3"
    few = [row | {"seconds": 0.3} for row in rows if row["tool"] == "cleanlab"]
    assert peers.table(few).splitlines()[4].endswith("| < 1 |")
    assert "failed" in lines["deepchecks"] and "not measured" in lines["shortkit-ml"]


def test_all_look_at_the_same_files_and_labels(tmp_path):
    x = torch.randint(0, 255, (40, 3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    data = Bundle("made", Split(x, torch.arange(40) % 2), inputs=Images((0.5,) * 3, (0.25,) * 3), net="conv3")
    assert peers.written(data, tmp_path) == 40
    told = json.loads((tmp_path / "labels.json").read_text())
    assert told["labels"] == data.train.y.tolist() and all((tmp_path / name).is_file() for name in told["files"])
    answer = peers.asked("cleanlab", sys.executable, tmp_path)  # which is not installed here
    assert "error" in answer and "cleanlab" in answer["error"]
