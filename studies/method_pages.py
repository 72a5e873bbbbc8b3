"""Write the tables of settings and the pictures of docs/methods/*.md, from the settings that the methods declare:

python -m studies.method_pages
"""

import re

from spurless.core.settings import Setting, settings_of
from spurless.methods import METHODS
from spurless.registry import method_class
from studies.method_pictures import PICTURES, drawn
from studies.rows import ROOT

PAGES = ROOT / "docs" / "methods"
TABLE = re.compile(r"^<!-- settings -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def written(value: object) -> str:
    """A default as it is written behind --set.

    >>> written(True), written(1e-08), written(()), written((16, 32)), written("paper")
    ('true', '1e-08', 'none', '[16, 32]', 'paper')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(written(v) for v in value)}]" if value else "none"
    return "none" if value is None or value == "" else str(value)


def line(setting: Setting) -> str:
    cells = (f"`{setting.path or setting.name}`", written(setting.default), setting.meaning, setting.allowed)
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def table(method: str) -> str:
    """The settings of a method, as its page shows them."""
    declared = settings_of(method_class(method)).values()
    if not declared:
        return ""
    head = "| setting | default | meaning | takes |\n| :-- | :-- | :-- | :-- |"
    return "\n".join(["<!-- settings -->", head, *map(line, declared), "<!-- end -->"])


def filled(text: str, method: str) -> str:
    return TABLE.sub(lambda _: table(method), text)


def main() -> None:
    for method in METHODS:
        page = PAGES / f"{method}.md"
        page.write_text(filled(page.read_text(encoding="utf-8"), method), encoding="utf-8")
    for name in PICTURES:
        (PAGES / "pictures").mkdir(exist_ok=True)
        (PAGES / "pictures" / f"{name}.svg").write_text(drawn(name), encoding="utf-8")


if __name__ == "__main__":
    main()
