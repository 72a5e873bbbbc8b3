"""Real pages of Spurless for docs/examples, small: audits, a bench, a sweep, a reproduction, and a picture of each.

    python -m studies.gallery [NAME ...] [--audits FOLDER] [--pictures]

An audit is run unless FOLDER/NAME (runs/gallery) holds it; it needs Waterbirds, BAR and Adult under SPURLESS_DATA. The
others are made from kept rows. `--pictures` takes the screenshots anew, with Chromium and playwright.
"""

import argparse
import base64
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

import spurless
from spurless.bench.reproduce import PAGE, papers, write_page
from spurless.bench.spec import read_spec
from spurless.report import write, write_any, write_audit
from studies.rows import RESULTS, ROOT, rows

KEPT = ROOT / "docs" / "examples"
AUDITS = ("waterbirds", "bar", "movie_reviews", "adult")
BENCHED = ("erm", "jtt", "dfr", "group_dro", "rs")
MOST = 400_000  # bytes of a page
PICTURE = re.compile(r"data:image/(?:jpeg|png|webp);base64,([A-Za-z0-9+/=]+)")
SIZES = ((256, 75), (160, 70), (128, 60), (96, 55), (80, 45))  # longest side and JPEG quality, tried in turn


def audit(name: str, folder: Path, page: Path) -> None:
    done = folder / name
    if not (done / "audit.json").exists():
        spurless.audit(name, out=done, budget=8, device="cpu", command=f"spurless audit {name} --budget 8")
    write_audit(done, page)


def bench(page: Path) -> None:
    kept = [row for row in rows("waterbirds") if row["method"] in BENCHED and inferred(row) in (None, "known")]
    write(kept, page, "Five methods on Waterbirds, three seeds")


def inferred(row: Mapping[str, Any]) -> str | None:
    groups = row["settings"]["method"].get("groups")
    return groups["name"] if isinstance(groups, dict) else groups


def sweep(page: Path) -> None:
    write_any([RESULTS / "sweep_moon_star" / "sweep.json"], page)


def reproduction(page: Path) -> None:
    spec, kept = read_spec(papers()["pgd-table1"]), rows("pgd-table1")
    measured = {row["key"] for row in kept}
    lines = tuple(line for line in spec.lines if any(trial.key in measured for trial in line.trials))
    with tempfile.TemporaryDirectory() as scratch:
        write_page(replace(spec, lines=lines), kept, Path(scratch), "spurless reproduce pgd-table1")
        shutil.copy(Path(scratch) / PAGE, page)


MADE = {"bench": bench, "sweep": sweep, "reproduction": reproduction}


def lighter(page: str) -> str:
    """The page with its pictures as thumbnails, as large as its size allows."""
    for side, quality in SIZES:
        smaller = PICTURE.sub(partial(thumbnail, side, quality), page)
        if len(smaller.encode()) < MOST:
            return smaller
    raise ValueError(f"The page has {len(smaller):,} bytes, with the smallest thumbnails.")


def thumbnail(side: int, quality: int, found: re.Match[str]) -> str:
    image = Image.open(BytesIO(base64.b64decode(found[1])))
    image = image.convert("RGBA" if image.mode in ("RGBA", "LA", "P") else "RGB")
    image.thumbnail((side, side))
    image.save(small := BytesIO(), "WEBP", quality=quality)
    text = base64.b64encode(small.getvalue()).decode()
    return f"data:image/webp;base64,{text}" if len(text) < len(found[1]) else found[0]


def screenshots(names: list[str]) -> None:
    """The first screen of each page as a small picture beside it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport={"width": 1280, "height": 960})
        for name in names:
            view.goto((KEPT / f"{name}.html").as_uri())
            shot = Image.open(BytesIO(view.screenshot())).convert("RGB").resize((640, 480))
            shot.save(KEPT / f"{name}.webp", quality=70)
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", help=", ".join((*AUDITS, *MADE)))
    parser.add_argument("--audits", type=Path, default=ROOT / "runs" / "gallery", help="where audits lie")
    parser.add_argument("--pictures", action="store_true", help="screenshots, too")
    args = parser.parse_args()
    names = args.names or [*AUDITS, *MADE]
    for name in names:
        page = KEPT / f"{name}.html"
        audit(name, args.audits, page) if name in AUDITS else MADE[name](page)
        page.write_text(lighter(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"{page.name}: {page.stat().st_size:,} bytes")
    if args.pictures:
        screenshots(names)


if __name__ == "__main__":
    main()
