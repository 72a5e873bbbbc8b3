"""A made-up audit, sweep and reproduction, in the form in which they are saved. Nothing in them was measured."""

import json
import re
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

CLASSES, GROUND = ("landbird", "waterbird"), ("land", "water")


def undocumented(report):
    """The keys of an audit, two levels deep, that the table in docs/audit.md does not name."""
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page.partition("## audit.json")[2].partition("\n## ")[0], re.M))
    lacking = []
    for key, value in report.items():
        for inner in (value if isinstance(value, list) else [value]) or []:
            names = inner if isinstance(inner, dict) else ()
            lacking += [f"{key}.{name}" for name in names if f"`{name}`" not in told.get(key, "")]
    return sorted(set(lacking))


def score(value, n=200):
    return {"value": value, "low": max(0.0, value - 6.0), "high": min(100.0, value + 5.0), "n": n}


def draw(path, label, ground, side=96, seed=0):
    """A coloured ground with a shape on it, and the same with a red patch as its attribution map."""
    generator = np.random.default_rng(seed)
    base = np.array([(86, 125, 70), (70, 120, 170)][ground]) + generator.integers(-12, 12, (side, side, 3))
    image = Image.fromarray(base.clip(0, 255).astype(np.uint8))
    box = [side * 0.3, side * 0.3, side * 0.7, side * 0.7]
    pen = ImageDraw.Draw(image)
    (pen.ellipse if label else pen.rectangle)(box, fill=(240, 220, 120))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)
    heat = image.copy()
    ImageDraw.Draw(heat).ellipse([0, side * 0.6, side, side], fill=(210, 60, 30))
    heat.save(path.with_name(f"map-{path.name}"))


def make_audit(folder, classes=CLASSES, grounds=GROUND, pictures=6, points=300, name="birds", number_of_rows=20):
    """Write an audit.json with its pictures into the folder, and return what it holds."""
    generator = np.random.default_rng(0)

    def picture(kind, label, ground, i):
        path = f"pictures/{kind}-{label}-{ground}-{i}.png"
        draw(folder / path, label, ground, seed=i)
        return {"picture": path, "map": f"pictures/map-{kind}-{label}-{ground}-{i}.png", "name": f"{name}/{i:04}.png"}

    gallery = [
        {
            "class": classes[y],
            "aligned": [picture("usual", y, y, i) for i in range(pictures)],
            "conflicting": [picture("other", y, 1 - y, i) for i in range(pictures)],
        }
        for y in (0, 1)
    ]
    suspects = [
        {"rank": i + 1, "row": 17 * i + 3, "split": "train", "label": classes[i % 2], "prediction": classes[1 - i % 2]}
        | {"says": classes[1 - i % 2], "score": round(0.99 - 0.02 * i, 3)}
        | picture("suspect", i % 2, 1 - i % 2, i)
        for i in range(number_of_rows)
    ]
    groups = [
        {"label": classes[y], "attribute": "place", "value": grounds[a], "n": n, "correct": round(n * p / 100)}
        | {"accuracy": p, "low": p - 5, "high": min(100.0, p + 4), "aligned": y == a}
        for y, a, n, p in ((0, 0, 467, 99.1), (0, 1, 466, 76.2), (1, 0, 133, 58.6), (1, 1, 133, 94.7))
    ]
    label = generator.integers(0, 2, points)
    ground = np.where(generator.random(points) < 0.9, label, 1 - label)
    xy = generator.normal(size=(points, 2)) + np.stack([3.0 * label, 4.0 * ground], 1)
    audit = {
        "verdict": "found",
        "schema": 2,
        "headline": f"The model reads the place, not the bird: it is right on 97 % of the {name} that stand where "
        "their kind usually does, and on 67 % of those that do not.",
        "spurless": "0.1.0",
        "date": "2026-11-15T20:40:00Z",
        "command": f"spurless audit folder:/home/someone/{name} --set data.attribute=place",
        "seconds": 184.2,
        "data": {
            "name": name,
            "samples": 11788,
            "answered": 1199,
            "split": "test",
            "classes": list(classes),
            "attributes": ["place"],
        }
        | {"notes": ["A fifth of the rows has no attribute and was left out of the tests by attribute."]},
        "model": {"name": "resnet18", "source": "trained for this audit", "average": score(86.7, 1199)},
        "shortcut": {"name": "background", "kind": "background", "words": "the background"},
        "findings": [
            {"name": "background", "kind": "background", "verdict": "found", "words": "the background", "class": None}
            | {"text": "Exchanged between classes it turns 47 % of 160 answers.", "available": {"alone": score(85.5)}}
            | {"used": {"p": 2e-9}, "harm": {"p": 1e-6, "aligned": score(97.2), "conflicting": score(66.8)}},
            {"name": "place", "kind": "attribute", "verdict": "gap", "words": "'place'", "class": None, "used": None}
            | {"text": "The model is weaker where the place is unusual.", "available": None, "harm": {"p": 0.0004}},
        ],
        "tested": ["brightness", "contrast", "noise"],
        "power": {"samples": [500, 2000], "found": score(95.0, 66), "without_attributes": score(85.0, 66)}
        | {"false_alarms": score(3.1, 64)},
        "shift": [],
        "attributes": [{"name": "place", "association": 0.87, "p": 2e-9, "gap": score(30.4), "finding": "found"}],
        "rows": suspects,
        "gallery": gallery,
        "slices": [
            {"class": classes[1], "size": 133, "accuracy": score(58.6, 133), "elsewhere": score(94.7, 133), "p": 1e-6}
            | {"words": ["brighter", "more green"], "pictures": [i["picture"] for i in gallery[1]["conflicting"]]}
        ],
        "histogram": {"edges": [i / 20 for i in range(21)], "title": "Score of each training sample"}
        | {"aligned": [int(3000 * 0.6**i) for i in range(20)], "conflicting": [1 + i**2 // 8 for i in range(20)]},
        "map2d": {"how": "t-SNE of the features before the head", "labels": list(classes), "groups": list(grounds)}
        | {
            "points": [
                [round(float(x), 3), round(float(y), 3), int(c), int(g)]
                for (x, y), c, g in zip(xy, label, ground, strict=True)
            ]
        },
        "confusion": {
            "classes": list(classes),
            "groups": [
                {"name": "follow the shortcut", "counts": [[463, 4], [7, 126]]},
                {"name": "contradict it", "counts": [[355, 111], [55, 78]]},
            ],
        },
        "cost": {"text": ["On samples that contradict the shortcut the model loses 30 points."]}
        | {"aligned": score(97.2), "conflicting": score(66.8), "alone": score(95.0)},
        "advice": [
            {"title": "Train with group labels", "why": "You know the place of every row, so use it."}
            | {"command": f"spurless train group_dro folder:{name} --set data.attribute=place"},
            {"title": "Collect about 150 more waterbirds on land", "why": "There are 56 now.", "command": None},
        ],
        "fix": {"rule": "the smallest gap between mined and other rows of the validation split", "chosen": "dfr"}
        | {"text": ["DFR gains 15 points where the shortcut misleads, and loses 2 where it helps."]}
        | {
            "rows": [
                {
                    "method": m,
                    "words": m,
                    "aligned": score(f),
                    "conflicting": score(c),
                    "average": score(a),
                    "exchanged": None,
                }
                for m, f, c, a in (("before", 97.2, 66.8, 86.7), ("afr", 90.0, 71.0, 83.0), ("dfr", 95.1, 82.0, 90.2))
            ]
        },
        "settings": {"budget": 10, "seed": 0},
        "versions": {"torch": "2.11", "python": "3.11"},
    }
    audit["attributes"][0]["groups"] = groups
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit.json").write_text(json.dumps(audit), encoding="utf-8")
    return audit


def make_sweep(over="lr"):
    points = [
        {"value": v, "unbiased": {"mean": u, "low": u - 3, "high": u + 3, "n": 3}}
        | {"conflicting": {"mean": u - 10, "low": u - 15, "high": u - 5, "n": 3}}
        | {"aligned": {"mean": 97.0, "low": 95.0, "high": 98.5, "n": 3}}
        for v, u in ((0.0001, 48.0), (0.001, 66.5), (0.003, 75.0), (0.01, 71.0), (0.1, 30.0))
    ]
    return {
        "over": over,
        "points": points,
        "settings": {"method": {"name": "pgd"}},
        "command": f"spurless sweep {over}",
    }


def make_reproduction():
    rows = [
        {"method": m, "data": "colored_mnist, 0.5 %", "paper": p, "difference": None}
        | {"ours": {"mean": o, "low": o - 1.2, "high": o + 1.2, "n": 3}}
        for m, o, p in (("erm", 61.5, "60.94 ± 0.97"), ("lff", 83.0, "91.35 ± 1.83"), ("pgd", 96.1, 96.88))
    ]
    return {"source": "PGD (2023), table 1", "rows": rows}
