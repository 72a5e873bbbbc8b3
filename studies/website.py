"""MkDocs hook: files outside docs/ that pages link to become pages of the site, so that no link leaves it.

A page links to such a file as it lies in the repository (`../examples/your_model.py`), so that the link also works
there. On the site the file is the page `repository/examples/your_model.md`.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
SITE = "repository"
LINK = re.compile(r"(?<=\]\()(?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LANGUAGES = {".py": "python", ".toml": "toml"}


def on_files(files, config):
    """Add a page for every file of the repository that can be reached from a page."""
    waiting = [file.src_uri for file in files.documentation_pages()] + sorted(in_nav(config.nav))
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        if page.startswith(f"{SITE}/"):
            files.append(File.generated(config, page, content=text_of(page)))
        for target in targets(page, text_of(page)):
            if target.startswith(f"{SITE}/") and target not in seen:
                seen.add(target)
                waiting.append(target)
    return files


def on_page_markdown(markdown, page, **_):
    """Links of a page, from where its file lies in the repository to where the pages lie on the site."""
    return rewritten(page.file.src_uri, markdown)


def in_nav(nav):
    """The pages below `repository/` that the navigation names."""
    if isinstance(nav, str):
        return {nav} if nav.startswith(f"{SITE}/") else set()
    return set().union(*(in_nav(part) for part in (nav.values() if isinstance(nav, dict) else nav)))


def origin(page):
    """The file of a page, from the repository's root.

    >>> origin("methods/pgd.md"), origin("repository/examples/your_model.md"), origin("repository/papers/index.md")
    ('docs/methods/pgd.md', 'examples/your_model.py', 'papers')
    """
    if not page.startswith(f"{SITE}/"):
        return f"docs/{page}"
    inner = page.removeprefix(f"{SITE}/")
    if (ROOT / inner).exists():
        return inner
    stem = inner.removesuffix("/index.md").removesuffix(".md")
    found = [stem, *(stem + ending for ending in LANGUAGES)]
    return next(path for path in found if (ROOT / path).exists())


def page_of(path):
    """The page of a file, None for a file that is none; the reverse of `origin`.

    >>> page_of("docs/methods/pgd.md"), page_of("examples/your_model.py"), page_of("papers"), page_of("README.md")
    ('methods/pgd.md', 'repository/examples/your_model.md', 'repository/papers/index.md', 'index.md')
    """
    if path.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
    if path == "README.md":
        return "index.md"
    if (ROOT / path).is_dir():
        return f"{SITE}/{path}/index.md"
    stem, ending = posixpath.splitext(path)
    if ending == ".md":
        return f"{SITE}/{path}"
    return f"{SITE}/{stem}.md" if ending in LANGUAGES else None


def text_of(page):
    """What a page says: its own text, the code of a file, or the files of a folder."""
    path = ROOT / origin(page)
    if path.is_dir():
        names = sorted(p.name for p in path.iterdir() if p.suffix in LANGUAGES and p.name != "__init__.py")
        return f"# {path.name}\n\n" + "\n".join(f"- [{name}]({path.name}/{name})" for name in names)
    text = path.read_text(encoding="utf-8")
    return text if path.suffix == ".md" else f"# {path.name}\n\n````{LANGUAGES[path.suffix]}\n{text}````\n"


def resolved(page, target):
    """The page that a link of a page leads to, None where it leads to something else (a picture, another site)."""
    here = origin(page)
    path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
    return page_of(path) if (ROOT / path).exists() else None


def targets(page, text):
    return [found for link in LINK.finditer(CODE.sub("", text)) if (found := resolved(page, link["target"]))]


def rewritten(page, text):
    """
    >>> rewritten("methods/pgd.md", "[all](../../papers) and [erm](erm.md#when) and `[no](../../papers)`")
    '[all](../repository/papers/index.md) and [erm](erm.md#when) and `[no](../../papers)`'
    """

    def link(match):
        found = resolved(page, match["target"])
        there = posixpath.relpath(found, posixpath.dirname(page) or ".") if found else match["target"]
        return there + (match["anchor"] or "")

    parts, last = [], 0
    for code in CODE.finditer(text):
        parts += [LINK.sub(link, text[last : code.start()]), code[0]]
        last = code.end()
    return "".join([*parts, LINK.sub(link, text[last:])])
