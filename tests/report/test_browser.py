"""The pages in a real browser: no error, no request, and they do what a person expects of them."""

import json
import shutil
import threading

import pytest

from spurless import report
from spurless.report.serve import serve
from tests.support.audits import make_audit, make_reproduction, make_sweep
from tests.support.pages import EVIL, make
from tests.support.reviews import LABELS, make_review, running
from tests.support.runs import epoch_line

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (the dev extra)")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("needs a Chromium: install Debian's package chromium, or Chrome")
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """An audit, a comparison with a sweep and a reproduction, and a page of nothing but evil names."""
    folder = tmp_path_factory.mktemp("pages")
    make_audit(folder / "audit", pictures=3, points=60, number_of_rows=12)
    report.write_audit(folder / "audit", folder / "audit.html")
    rows = [make("erm", 0.2), make("lff", 0.6, 1), make("pgd", 0.7, 2, stages=("biased", "debiased"))]
    rows.append(make("jtt", 0.1) | {"status": "diverged", "error": "The loss is not finite."})
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "sweep.json").write_text(json.dumps(make_sweep()))
    (folder / "repro.json").write_text(json.dumps(make_reproduction()))
    report.write_any([folder / f"{n}.json" for n in ("rows", "sweep", "repro")], folder / "runs.html")
    make_audit(folder / "evil", classes=(EVIL, "dog"), grounds=(EVIL, "sea"), name="x", pictures=1, number_of_rows=2)
    evil = make(EVIL, 0.5, classes=(EVIL, "W" * 200), stages=(EVIL, "next")) | {"data": EVIL, "notes": [EVIL]}
    (folder / "evil" / "run.json").write_text(json.dumps(evil))
    report.write_any([folder / "evil" / "audit.json", folder / "evil" / "run.json"], folder / "evil.html", EVIL)
    return folder


class Watched:
    """An open page, with all that went wrong on it and all that it asked for."""

    def __init__(self, browser, address, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.wrong, self.asked = [], []
        self.page.on("console", lambda m: self.wrong.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.wrong.append(str(e)))
        self.page.on("dialog", lambda d: (self.wrong.append(f"alert {d.message}"), d.dismiss()))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(str(address))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()


def look_at(browser, file, width=1200, scheme="light"):
    return Watched(browser, file.as_uri(), viewport={"width": width, "height": 900}, color_scheme=scheme)


@pytest.mark.parametrize("name", ["audit", "runs", "evil"])
def test_it_opens_without_an_error_or_a_request_at_any_width(browser, pages, name):
    with look_at(browser, pages / f"{name}.html") as seen:
        page = seen.page
        for width in (1200, 700, 390, 320):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        assert seen.wrong == []
        assert [url for url in seen.asked if not url.startswith("data:")] == [(pages / f"{name}.html").as_uri()]


def test_the_charts_have_marks_that_can_be_seen(browser, pages):
    marks = """name => [...document.querySelectorAll(name)].filter(e => {
        const box = e.getBoundingClientRect(), style = getComputedStyle(e);
        const paint = style.fill !== 'none' ? style.fill : style.stroke;
        return box.width + box.height > 0.5 && paint !== 'none' && style.visibility === 'visible';
    }).length"""
    with look_at(browser, pages / "audit.html") as seen:
        assert seen.page.evaluate(marks, ".section-attributes rect.fill-conflicting") == 2
        assert seen.page.evaluate(marks, ".section-mined rect.fill-conflicting") == 20
        assert seen.page.evaluate(marks, ".section-points figure > svg > path") == 4
        assert seen.page.evaluate(marks, ".section-cost rect[class^=fill]") == 4  # before and after the repair
        assert seen.page.evaluate(marks, ".section-fix rect[class^=fill]") == 6  # all that was tried
    with look_at(browser, pages / "runs.html") as seen:
        assert seen.page.evaluate(marks, ".section-accuracy rect.fill-conflicting") == 3  # one run diverged
        assert seen.page.evaluate(marks, ".section-change rect.fill-before") == 4
        assert seen.page.evaluate(marks, ".section-change rect.now-conflicting") == 2
        assert seen.page.evaluate(marks, ".section-training path.line") >= 6
        assert seen.page.evaluate(marks, ".section-sweep path.line") >= 3
        assert seen.page.evaluate(marks, ".section-sweep path.band") == 3
        assert seen.page.evaluate(marks, ".section-reproduction figure circle") == 3
        bar = "document.querySelector('.section-accuracy rect.fill-conflicting').getBoundingClientRect().width"
        track = "document.querySelector('.section-accuracy rect.track').getBoundingClientRect().width"
        share = seen.page.evaluate(f"{bar} / {track}")
        assert share == pytest.approx(make("erm", 0.2)["scores"]["conflicting"] / 100, abs=0.01)


def test_pictures_enlarge_by_mouse_and_by_keyboard(browser, pages):
    with look_at(browser, pages / "audit.html") as seen:
        page = seen.page
        small = page.locator(".section-gallery .thumb").first
        before = small.bounding_box()["width"]
        small.click()
        dialog = page.locator("dialog")
        assert dialog.evaluate("d => d.open")
        assert dialog.locator("img").count() == 2  # the picture, and where the model looks
        assert dialog.locator("img").first.bounding_box()["width"] > 1.5 * before
        assert dialog.locator("p").inner_text() == small.get_attribute("data-caption")
        page.keyboard.press("ArrowRight")
        second = page.locator(".section-gallery .thumb").nth(1).get_attribute("data-caption")
        assert dialog.locator("p").inner_text() == second
        page.keyboard.press("Escape")
        assert not dialog.evaluate("d => d.open")
        assert page.evaluate("document.activeElement.dataset.caption") == second
        page.keyboard.press("Enter")
        assert dialog.evaluate("d => d.open")
        dialog.get_by_role("button", name="Close").click()
        assert not dialog.evaluate("d => d.open")
        page.get_by_label("Show where the model looks").check()
        assert small.locator("img.map-of").is_visible()
        assert not small.locator("img").first.is_visible()
        assert seen.wrong == []


def test_what_decides_fits_two_screens_and_a_phone_shows_pictures_whole(browser, tmp_path):
    audit = make_audit(tmp_path, points=5, number_of_rows=1)
    audit["cost"]["conflicting"] |= {"value": 0.0, "low": 0.0, "high": 2.0}
    audit["fix"] = None
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    file = report.write_audit(tmp_path, tmp_path / "r.html")
    with look_at(browser, file, width=1280) as seen:
        assert seen.page.locator(".details").bounding_box()["y"] <= 1600
        boxes = [seen.page.locator(f".section-{name}").bounding_box() for name in ("cost", "now")]
        assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
        assert seen.page.locator(".section-cost rect.fill-conflicting").bounding_box()["width"] >= 3
    with look_at(browser, file, width=390) as seen:
        for image in seen.page.locator(".section-gallery .thumb img:visible").all():
            assert image.evaluate("e => getComputedStyle(e).objectFit") == "contain"
            box = image.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= 390
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390


LONG = "the words 'announcement', 'correspondent', 'nevertheless' and 'understandable'"
PROSE = (
    "The last layer, fitted to every sample as it is and with the cue of another class (mixed). Where the background "
    "misleads, 57 % become 64 % (n = 245); where it helps, 89 % become 77 %. With the cue of another class, 44 % kept "
    "the right answer before and 86 % do now (n = 670)."
)


def with_much_to_say(folder, written):
    """An audit with a repair, long sentences, many findings with long names, and long texts or pictures."""
    audit = make_audit(folder, points=5, number_of_rows=3)
    audit["headline"] = (
        f"The model relies on {LONG}: right on 88 % of the samples where they help, and on 22 % where not."
    )
    audit["shortcut"]["words"] = LONG
    audit["findings"] = [audit["findings"][0] | {"name": f"{LONG} {k}"} for k in range(9)]
    audit["advice"] = [{"title": "Fit the last layer again, as the repair did", "why": PROSE, "command": None}]
    audit["cost"]["conflicting"] |= {"value": 0.0, "low": 0.0, "high": 2.0}
    audit["fix"]["text"] = [PROSE, "More samples in which they point to another class would help most: 12 of 1,500 do."]
    words = [[f" {word}", 0.9 if k % 9 == 0 else 0.0] for k, word in enumerate((PROSE * 3).split())]
    if written:
        of = [{"row": k, "name": f"line {k}", "text": words} for k in range(6)]
        audit["gallery"] = [row | {"aligned": of, "conflicting": of} for row in audit["gallery"]]
        audit["words"] = []
    (folder / "audit.json").write_text(json.dumps(audit))
    return report.write_audit(folder, folder / "r.html")


@pytest.mark.parametrize("written", [False, True])
def test_a_repair_and_many_findings_fit_two_screens_too_and_no_word_is_cut_off(browser, tmp_path, written):
    file = with_much_to_say(tmp_path, written)
    cut = """() => [...document.querySelectorAll('main p, main li, main th, main td, pre, summary, h2, h3, .bar span')]
        .filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).map(e => e.textContent.slice(0, 60))"""
    with look_at(browser, file, width=1280) as seen:
        details = seen.page.locator(".details").bounding_box()["y"]
        assert details <= 1600
        order = [s.bounding_box()["y"] for s in seen.page.locator("main section").all()]
        assert order == sorted(order) and order[1] == order[2]  # the cost and, beside it, what to do
        assert seen.page.locator(".section-fix").bounding_box()["y"] > details
        boxes = [seen.page.locator(f".section-{name} .card").first.bounding_box() for name in ("cost", "now")]
        whole = seen.page.locator(".verdict").bounding_box()
        assert boxes[0]["height"] == boxes[1]["height"]
        assert boxes[1]["x"] + boxes[1]["width"] == pytest.approx(whole["x"] + whole["width"], abs=1)
        bars = seen.page.locator(".section-cost rect[class^=fill]").all()
        assert len(bars) == 4 and all(bar.bounding_box()["width"] >= 3 for bar in bars)
        assert seen.page.evaluate(cut) == []
    for scheme in ("light", "dark"):
        with look_at(browser, file, width=390, scheme=scheme) as seen:
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
            assert seen.page.evaluate(cut) == []


def test_a_run_that_diverged_stays_last_whatever_is_sorted_by(browser, tmp_path):
    rows = [make("jtt", 0.1) | {"status": "diverged"}, make("erm", 0.2), make("pgd", 0.7)]
    with look_at(browser, report.write(rows, tmp_path / "r.html")) as seen:
        table = seen.page.locator(".section-results table")
        heading = table.get_by_role("columnheader", name="unbiased")  # where its status stands
        for order, names in (("descending", ["pgd", "erm", "jtt"]), ("ascending", ["erm", "pgd", "jtt"])):
            heading.get_by_role("button").click()
            assert heading.get_attribute("aria-sort") == order
            assert table.locator("tbody th").all_inner_texts() == names


def test_long_names_of_a_sweep_fit_a_phone(browser, tmp_path):
    series = [{"name": "groups that were guessed by EIIL, weight decay 0.1", "points": make_sweep()["points"]}] * 2
    (tmp_path / "s.json").write_text(json.dumps({"over": "size", "series": series}))
    with look_at(browser, report.write_any([tmp_path / "s.json"], tmp_path / "r.html"), width=320) as seen:
        widths = "e => [e.scrollWidth, e.clientWidth]"
        wide, there = seen.page.locator(".section-sweep .scroll").evaluate(widths)
        assert wide <= there


def test_sorting_sorts(browser, pages):
    with look_at(browser, pages / "runs.html") as seen:
        page = seen.page
        table = page.locator(".section-results table")
        names = lambda: [n.split(",")[0] for n in table.locator("tbody th").all_inner_texts()]  # noqa: E731
        assert names() == ["erm", "lff", "pgd", "jtt"]
        heading = table.get_by_role("columnheader", name="conflicting")
        heading.get_by_role("button").click()
        assert heading.get_attribute("aria-sort") == "descending"
        assert names() == ["pgd", "lff", "erm", "jtt"]  # what has no score stays last
        heading.get_by_role("button").press("Enter")
        assert heading.get_attribute("aria-sort") == "ascending"
        assert names() == ["erm", "lff", "pgd", "jtt"]
        method = table.get_by_role("columnheader", name="method")
        method.get_by_role("button").press(" ")
        assert names() == ["erm", "jtt", "lff", "pgd"]
        assert heading.get_attribute("aria-sort") == "none"
    with look_at(browser, pages / "audit.html", width=390) as seen:
        table = seen.page.locator(".section-suspects table")
        table.get_by_role("button", name="rank").click()
        table.get_by_role("button", name="rank").click()
        ranks = [int(t) for t in table.locator("td[data-name=rank]").all_inner_texts()]
        assert ranks == list(range(12, 0, -1))  # as numbers: 10 is after 9


def test_a_name_is_never_run(browser, pages):
    with look_at(browser, pages / "evil.html") as seen:
        page = seen.page
        assert page.locator("h1").inner_text() == EVIL
        assert page.locator("script").count() == 1
        assert page.locator("img[src=x]").count() == 0
        page.locator(".section-gallery .thumb").first.click()
        assert EVIL in page.locator("dialog p").inner_text()
        page.keyboard.press("Escape")
        for button in page.locator("button.sort:visible").all():
            button.click()
        for button in page.locator(".clouds button").all():
            button.click()
        # Even a script that got in would not run: the page allows one, by its hash.
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), {textContent: 'alert(3)'}))"
        )
        assert [w for w in seen.wrong if "alert" in w and "alert " in w[:6]] == []
        assert any("Content Security Policy" in w for w in seen.wrong)


def test_dark_mode_is_dark_and_text_can_be_read(browser, pages):
    def shades(page, name):
        probe = """name => { const e = document.querySelector(name), canvas = document.createElement('canvas');
            const pen = canvas.getContext('2d'); const read = c => { pen.fillStyle = c; pen.fillRect(0, 0, 1, 1);
            return [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3); };
            return [read(getComputedStyle(e).color), read(getComputedStyle(document.body).backgroundColor)]; }"""
        return [luminance(c) for c in page.evaluate(probe, name)]

    for scheme in ("light", "dark"):
        with look_at(browser, pages / "audit.html", scheme=scheme) as seen:
            for name in ("main", ".quiet", "nav a", ".badge", ".finding.suspected", ".finding.found"):
                text, ground = shades(seen.page, name)
                assert (ground < 0.05) == (scheme == "dark")
                contrast = (max(text, ground) + 0.05) / (min(text, ground) + 0.05)
                assert contrast >= 4.5, (scheme, name)


def luminance(colour):
    """Relative luminance as the accessibility guidelines define it."""
    parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def test_everything_can_be_reached_by_keyboard_and_has_a_name(browser, pages):
    with look_at(browser, pages / "audit.html") as seen:
        page = seen.page
        nameless = """[...document.querySelectorAll('button, a, input, svg[role=img], img, [role=region]')].filter(e =>
            !(e.textContent.trim() || e.getAttribute('aria-label') || e.alt || e.title || e.labels?.length
              || e.querySelector('img[alt]:not([alt=""]), title'))).map(e => e.outerHTML.slice(0, 80))"""
        assert page.evaluate(nameless) == []
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.type") == "checkbox"
        page.locator("nav a").first.focus()
        page.keyboard.press("Enter")
        assert page.evaluate("location.hash") == "#findings"
        legend = page.locator(".clouds button").first
        legend.press("Enter")
        assert legend.get_attribute("aria-pressed") == "true"
        assert page.locator("path.faint").count() == 1


def test_it_is_whole_without_its_script_and_on_paper(browser, pages):
    options = {"java_script_enabled": False, "color_scheme": "dark", "viewport": {"width": 390, "height": 800}}
    with Watched(browser, (pages / "audit.html").as_uri(), **options) as seen:
        assert seen.page.locator(".section-suspects tbody tr").count() == 12
        assert seen.page.locator(".section-gallery img:visible").count() == 12
        seen.page.get_by_label("Show where the model looks").check()
        assert seen.page.locator(".section-gallery img.map-of:visible").count() == 12
        seen.page.emulate_media(media="print")
        assert not seen.page.locator("nav").is_visible()
        colour = "getComputedStyle(document.body).backgroundColor"
        assert seen.page.evaluate(colour) == "rgb(255, 255, 255)"  # paper stays white
        seen.page.emulate_media(media="screen")
        assert seen.page.evaluate(colour) == "rgb(20, 23, 27)"


def test_the_served_list_refreshes_by_itself(browser, tmp_path):
    run = tmp_path / "runs" / "going"
    run.mkdir(parents=True)
    (run / "settings.toml").write_text('seed = 0\n[method]\nname = "jtt"\n[data]\nname = "toy"\n')
    (run / "history.jsonl").write_text(epoch_line(epoch=7))
    server = serve(tmp_path / "runs", port=0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        with Watched(browser, address, viewport={"width": 390, "height": 800}) as seen:
            assert "epoch 7" in seen.page.locator("#rows").inner_text()
            (run / "result.json").write_text(json.dumps(make(EVIL, 0.5)))
            seen.page.wait_for_selector("#rows .none", timeout=8000)
            assert EVIL in seen.page.locator("#rows").inner_text()
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= 390
            other = tmp_path / "runs" / "other"
            other.mkdir()
            (other / "result.json").write_text(json.dumps(make("lff", 0.5)))
            seen.page.wait_for_selector("tr[data-method=lff]", timeout=12000)
            seen.page.get_by_label("Method").select_option(EVIL)
            assert not seen.page.locator("tr[data-method=lff]").is_visible()
            seen.page.reload()  # the choice is kept in the address
            assert not seen.page.locator("tr[data-method=lff]").is_visible()
            seen.page.get_by_label("Method").select_option("")
            assert seen.page.locator("tr[data-method=lff]").is_visible()
            seen.page.locator("#rows th a").filter(has_text="alert").click()
            assert seen.page.locator("h1").inner_text() == f"{EVIL} on toy"
            assert seen.wrong == []
            assert all(url.startswith(address) for url in seen.asked if not url.startswith("data:"))
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# Review


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_review_by_mouse(browser, tmp_path, width, scheme):
    folder = make_review(tmp_path / "audit")
    with (
        running(folder) as (address, _),
        Watched(browser, address, viewport={"width": width, "height": 800}, color_scheme=scheme) as seen,
    ):
        page = seen.page
        status = page.locator("#state")
        status.filter(has_text="0 of 2 decided").wait_for()
        first = page.locator("#finding-0")
        assert first.locator("h2").inner_text() == "background"
        assert first.locator("> .kind.aligned img").count() == 10
        assert first.locator("> .kind.conflicting img").count() == 2
        assert all("/map/" in i.evaluate("e => e.src") for i in first.locator("> .kind img").all())
        page.get_by_label("Show where the model looks").uncheck()
        assert all("/picture/" in i.evaluate("e => e.src") for i in first.locator("> .kind img").all())
        first.get_by_role("button", name="Shortcut").click()
        status.filter(has_text="1 of 2 decided").wait_for()
        assert first.get_by_role("button", name="Shortcut").get_attribute("aria-pressed") == "true"
        first.locator("summary").click()
        first.get_by_label("Name of the group").first.fill("forest")
        first.get_by_label("Name of the group").first.press("Enter")
        first.get_by_label("forest").first.wait_for()
        first.locator(".group").nth(1).locator("button.sample").first.click()
        first.get_by_label("Where to move").select_option("forest")
        first.get_by_role("button", name="Move 1 selected").click()
        first.get_by_text("17 samples").wait_for()
        first.get_by_role("button", name="Split in two").first.click()
        first.locator(".group").nth(2).wait_for()
        first.get_by_label("Merge forest 2 into").select_option("forest")
        first.get_by_text("Groups (2)").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        images = "[...document.querySelectorAll('img')].filter(i => i.complete && !i.naturalWidth).length"
        assert page.evaluate(images) == 0
        page.locator("#done").click()
        status.filter(has_text="Done").wait_for()
        assert seen.wrong == []
        assert all(url.startswith(address) for url in seen.asked if not url.startswith("data:"))
    made = json.loads((folder / "decisions.json").read_text())
    assert made["findings"][0]["decision"] == "shortcut"
    assert made["findings"][0]["groups"] == [{"name": "forest", "n": 17}, {"name": "like waterbird", "n": 7}]


def test_a_review_by_keyboard_alone(browser, tmp_path):
    folder = make_review(tmp_path / "audit", texts=True)
    with running(folder) as (address, _), Watched(browser, address, viewport={"width": 1280, "height": 800}) as seen:
        page, focus = seen.page, "document.activeElement.id || document.activeElement.dataset.key"
        status = page.locator("#state")
        status.filter(has_text="0 of 2 decided").wait_for()
        assert page.locator("#finding-0 mark").count() > 0
        page.keyboard.press("j")
        assert page.evaluate(focus) == "finding-0"
        page.keyboard.press("1")
        status.filter(has_text="1 of 2 decided").wait_for()
        page.keyboard.press("j")
        page.keyboard.press("2")
        status.filter(has_text="All decided").wait_for()
        page.keyboard.press("k")
        for _ in range(4):  # three buttons, then the groups
            page.keyboard.press("Tab")
        assert page.evaluate(focus) == "groups"
        page.keyboard.press("Enter")
        for _ in range(2):  # what cannot be done yet is left out: the goal, then the first group's name
            page.keyboard.press("Tab")
        assert page.evaluate(focus) == "name 0"
        page.keyboard.press("Control+a")
        page.keyboard.type("dry 123 jk")  # the keys are letters here
        page.keyboard.press("Enter")
        page.locator("#finding-0 input[value='dry 123 jk']").wait_for()
        assert page.evaluate(focus) == "name 0"  # where it was
        nameless = """[...document.querySelectorAll('button, input, select')].filter(e =>
            !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).length"""
        assert page.evaluate(nameless) == 0
        assert seen.wrong == []
    made = json.loads((folder / "decisions.json").read_text())
    assert [f["decision"] for f in made["findings"]] == ["shortcut", "legitimate"]
    assert made["findings"][0]["groups"][0]["name"] == "dry 123 jk"


def test_names_in_a_review_are_never_run(browser, tmp_path):
    findings = ((EVIL, (EVIL, "b" * 200)), ("x", ("c", "d")))
    folder = make_review(tmp_path / "audit", findings=findings, labels=(EVIL, LABELS[1]))
    with running(folder) as (address, _), Watched(browser, address, viewport={"width": 390, "height": 800}) as seen:
        page = seen.page
        page.locator("#state").filter(has_text="decided").wait_for()
        assert page.locator("#finding-0 h2").inner_text() == EVIL
        page.locator("#finding-0 summary").click()
        assert page.locator("script").count() == 1 and page.locator("img[src=x]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert seen.wrong == []
