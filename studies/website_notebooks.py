"""MkDocs hook: every notebook of docs/notebooks becomes a page, with its outputs, a download and a link to Colab."""

import base64
import json
import re
from pathlib import Path

from mkdocs.structure.files import File

KEPT = Path(__file__).parents[1] / "docs" / "notebooks"
COLAB = "https://colab.research.google.com/"
SCRIPTS = re.compile(r"<style.*?</style>", re.DOTALL)


def on_files(files, config):
    """Add a page for each notebook, and its pictures beside it."""
    for path in sorted(KEPT.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text, pictures = page(path.stem, cells, config.repo_url)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=content))
    return files


def page(name, cells, repository=None):
    """The Markdown of a notebook, and its pictures by name.

    >>> page("a", [{"cell_type": "markdown", "source": ["# A\\n", "[b](b.ipynb)"]}])[0].splitlines()[-1]
    '[b](b.md)'
    """
    heading, *rest = "".join(cells[0]["source"]).split("\n", 1)
    parts, pictures = [heading, links(name, repository), *(as_links(text) for text in rest)], {}
    for cell in cells[1:]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(as_links(source))
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures)}.png"
                pictures[picture] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![What the cell draws]({picture})")
            elif "text/html" in data:
                parts.append(f'<div class="output" markdown="0">{one_line(data["text/html"])}</div>')
            else:
                parts.append(quoted("".join(output.get("text") or data.get("text/plain", ""))))
    return "\n\n".join(parts) + "\n", pictures


def links(name, repository):
    """The line below the heading. Without a public repository Colab opens its dialogue for the downloaded file."""
    there = f"{repository.rstrip('/')}/blob/main/docs/notebooks/{name}.ipynb" if repository else ""
    colab = COLAB + there.replace("https://github.com/", "github/") if there else f"{COLAB}#upload=true"
    return (
        f'<a href="../{name}.ipynb" download class="md-button">Download</a> '
        f'<a href="{colab}" class="md-button">Open in Colab</a>'
    )


def as_links(text):
    """Links between notebooks lead to their pages."""
    return text.replace(".ipynb)", ".md)")


def one_line(parts):
    """HTML that Markdown leaves alone: no empty line ends it."""
    return re.sub(r"\s*\n\s*", " ", SCRIPTS.sub("", "".join(parts)))


def quoted(text):
    return f"```text\n{text.rstrip()}\n```"
