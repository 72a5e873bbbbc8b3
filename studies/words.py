"""How many words the documentation has: prose apart from code and tables, and the words inside tables.

    python -m studies.words [COMMIT]     # the working tree, or a commit

Counted are README.md, CONTRIBUTING.md, studies/README.md and docs/**/*.md.
"""

import re
import subprocess
import sys
from pathlib import Path

from studies.rows import ROOT

OUTSIDE = ("README.md", "CONTRIBUTING.md", "studies/README.md")
CODE = re.compile(r"^ *(`{3,}).*?^ *\1|^ {4}\S[^\n]*|<!--.*?-->|<[^>]+>", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"(?<=\])\([^)]*\)")


def counted(page: str) -> tuple[int, int]:
    """The words of a page's prose, and those of its tables (not numbers, not names in backticks).

    >>> counted("# One two\\n\\n    spurless audit x\\n\\nThree [four](five.md).\\n\\n| six 7 | `eight` |\\n")
    (4, 1)
    """
    lines = TARGET.sub("", CODE.sub("", page)).splitlines()
    prose = "\n".join(line for line in lines if not line.lstrip().startswith("|"))
    tables = "\n".join(line for line in lines if line.lstrip().startswith("|"))
    return len(re.findall(r"\w\S*", prose)), len(re.findall(r"\b[A-Za-z][A-Za-z-]+", re.sub(r"`[^`]*`", "", tables)))


def pages(commit: str | None) -> dict[str, str]:
    if commit is None:
        found = [ROOT / name for name in OUTSIDE] + sorted((ROOT / "docs").rglob("*.md"))
        return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in found}
    names = git("ls-tree", "-r", "--name-only", commit).splitlines()
    wanted = [n for n in names if n in OUTSIDE or (Path(n).parts[0] == "docs" and n.endswith(".md"))]
    return {name: git("show", f"{commit}:{name}") for name in wanted}


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    counts = {name: counted(page) for name, page in pages(*sys.argv[1:2] or (None,)).items()}
    for name, (prose, tables) in sorted(counts.items(), key=lambda item: -sum(item[1])):
        print(f"{prose:7,} {tables:7,}  {name}")
    print(f"{sum(p for p, _ in counts.values()):7,} {sum(t for _, t in counts.values()):7,}  {len(counts)} pages")
