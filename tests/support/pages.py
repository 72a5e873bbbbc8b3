"""Results and pages that tests of the report share."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import numpy as np

from spurless.metrics.groups import group_scores

EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&"


class Page(HTMLParser):
    """The page as a browser would see it: its elements with their texts, and whether they nest properly."""

    def __init__(self, text: str):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, _, texts in self.open:
            texts.append(data)

    def find(self, tag: str, **wanted: str) -> list[tuple[dict, str]]:
        return [
            (attrs, "".join(texts).strip())
            for t, attrs, texts in self.elements
            if t == tag and all(attrs.get(k.rstrip("_"), "") == v for k, v in wanted.items())
        ]


def make(method: str, chance: float, seed: int = 0, classes=("cat", "dog"), stages=("train",), **more) -> dict:
    generator = np.random.default_rng(seed)
    y, a = generator.integers(0, len(classes), (2, 400))
    hit = generator.random(400) < np.where(y == a, 0.97, chance)
    aligned = (y == a)[:, None]
    values = (tuple(f"place {c}" for c in classes),)
    scores = group_scores(hit, y, a[:, None], aligned, classes=classes, attributes=("place",), values=values)
    history = [
        {"stage": s, "stage_index": i, "epoch": e, "step": e, "loss": 2.0 / e, "lr": 0.1, "val_accuracy": 50.0 + e}
        for i, s in enumerate(stages)
        for e in range(1, 11)
    ]
    row = {"method": method, "data": "toy", "net": "mlp", "seed": seed, "status": "done", "scores": scores, "n": 400}
    row |= {"selection": "last", "labels_used": "none", "seconds": 3.25, "folder": "/home/someone/runs/x"}
    row |= {"settings": {"method": {"q": 0.7}, "recipe": {"lr": 0.001}}, "versions": {"torch": "2.11"}}
    return row | {"history": history, "scored_on": "test", "notes": [], "mining": {}} | more


def only_our_script(text: str) -> None:
    """One script, the one that the page's policy names by its hash: a browser runs no other."""
    (script,) = re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL)
    assert text.count("<script") == 1
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = [a["content"] for a, _ in Page(text).find("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert f"script-src 'sha256-{allowed}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy


VOID = {"meta", "img", "link", "br", "hr", "input"}
