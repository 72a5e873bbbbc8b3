"""A made-up audit, sweep and reproduction, in the form in which they are saved. Nothing in them was measured."""

import json

import numpy as np
from PIL import Image, ImageDraw

CLASSES, GROUND = ("landbird", "waterbird"), ("land", "water")


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
            "usual": [picture("usual", y, y, i) for i in range(pictures)],
            "contradicting": [picture("other", y, 1 - y, i) for i in range(pictures)],
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
        "verdict": "shortcut found",
        "schema": 1,
        "headline": f"The model reads the place, not the bird: it is right on 97 % of the {name} that stand where "
        "their kind usually does, and on 67 % of those that do not.",
        "spurless": "0.1.0",
        "date": "2026-11-15T20:40:00Z",
        "command": f"spurless audit folder:/home/someone/{name} --set data.attribute=place",
        "seconds": 184.2,
        "data": {"name": name, "rows": 11788, "held_out": 1199, "classes": list(classes), "attributes": ["place"]}
        | {"notes": ["A fifth of the rows has no attribute and was left out of the tests by attribute."]},
        "model": {"name": "resnet18", "source": "trained for this audit", "average": score(86.7, 1199)},
        "evidence": [
            {"test": "Errors by place", "finding": "found", "p": 2e-9, "effect": 30.4, "low": 25.1, "high": 35.8}
            | {"text": "Given the label, the model is wrong far more often where the place contradicts it."},
            {"test": "Mined rows", "finding": "suspected", "p": 0.012, "effect": 6.0, "low": None, "high": None}
            | {"text": "The rows that are learned late are more alike than hard rows of clean data are."},
            {"test": "Wrong labels", "finding": "none", "p": 0.4, "effect": None, "low": None, "high": None}
            | {"text": "The suspicious rows do not look mislabelled."},
        ],
        "reliability": {"text": "Measured on data with and without a planted shortcut."}
        | {"false_alarms": score(3.1, 64), "found": score(95.0, 66)},
        "attributes": [{"name": "place", "association": 0.87, "p": 2e-9, "gap": score(30.4), "finding": "found"}],
        "rows": suspects,
        "gallery": gallery,
        "slices": [
            {"class": classes[1], "size": 133, "accuracy": score(58.6, 133), "elsewhere": score(94.7, 133), "p": 1e-6}
            | {"words": ["brighter", "more green"], "pictures": [i["picture"] for i in gallery[1]["contradicting"]]}
        ],
        "histogram": {"edges": [i / 20 for i in range(21)], "title": "Score of each training row"}
        | {"usual": [int(3000 * 0.6**i) for i in range(20)], "candidates": [1 + i**2 // 8 for i in range(20)]},
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
        | {"following": score(97.2), "contradicting": score(66.8), "shortcut_alone": score(95.0)},
        "advice": [
            {"title": "Train with group labels", "why": "You know the place of every row, so use it."}
            | {"command": f"spurless train group_dro folder:{name} --set data.attribute=place"},
            {"title": "Collect about 150 more waterbirds on land", "why": "There are 56 now.", "command": None},
        ],
        "fix": {"rule": "the smallest gap between mined and other rows of the validation split", "chosen": "jtt"}
        | {"text": ["JTT gains 15 points where the shortcut misleads, and loses 2 where it helps."]}
        | {
            "rows": [
                {"method": m, "following": score(f), "contradicting": score(c), "average": score(a), "seconds": s}
                for m, f, c, a, s in (("erm", 97.2, 66.8, 86.7, 80.0), ("jtt", 95.1, 82.0, 90.2, 171.0))
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
