"""A made-up audit with what `spurless review` reads. Nothing in it was measured."""

import csv
import json
import threading
from contextlib import contextmanager

import numpy as np

from spurless.auditing.review import open_review
from tests.support.audits import make_audit

FINDINGS = (("background", ("like landbird", "like waterbird")), ("brightness", ("dark", "light")))
LABELS = ("landbird", "waterbird")


def make_review(folder, n=24, names=True, texts=False, findings=FINDINGS, labels=LABELS):
    """n samples of train: label i % 2; the first finding follows the label but for every sixth sample, the second one
    changes every two samples. Of the first 12 there is a picture, or a text."""
    audit = make_audit(folder, pictures=6, points=5, number_of_rows=1, classes=labels)
    made = [i for g in audit["gallery"] for kind in ("aligned", "conflicting") for i in g[kind]]
    place = folder / "review"
    place.mkdir()
    codes = [[(i + (i % 6 == 5)) % 2 for i in range(n)], [i // 2 % 2 for i in range(n)]]
    with (place / "samples.csv").open("w", newline="", encoding="utf-8") as file:
        write = csv.writer(file)
        write.writerow(["split", "row", "name", "label", "prediction", *(name for name, _ in findings)])
        for i in range(n):
            values = [values[of[i]] for (_, values), of in zip(findings, codes, strict=True)]
            write.writerow(["train", i, f"{i}.png" if names else "", labels[i % 2], labels[codes[0][i]], *values])
    np.save(place / "features.npy", np.stack([np.arange(n) >= n // 2, np.zeros(n)], 1).astype(np.float32))
    shown = {
        "findings": [
            {"name": name, "kind": "light", "verdict": "found", "words": f"the {name}", "text": "So much was measured."}
            | {"values": list(values), "aligned": [[labels[0], values[0]], [labels[1], values[1]]]}
            for name, values in findings
        ],
        "pictures": {} if texts else {str(i): [made[i]["picture"], made[i]["map"]] for i in range(12)},
        "texts": {str(i): [["a", 0.0], [" dull", 1.0], [" film", -0.5]] for i in range(12)} if texts else {},
    }
    (place / "shown.json").write_text(json.dumps(shown))
    return folder


@contextmanager
def running(folder):
    """The page of a review: its address, and the server's handler."""
    server, address = open_review(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield address, server.RequestHandlerClass
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
