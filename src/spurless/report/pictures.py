"""Pictures inside the page: small, without what a camera noted in them, and never more than the page may weigh."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

SIDE = 256  # pixels of the longer side; an enlarged picture is this large
BUDGET = 4_000_000  # bytes of all pictures of one audit, as text; the page is to stay below 5 MB
PIXELS = 64  # up to this side a picture is kept as it is, and drawn in sharp squares


class Album:
    """Pictures beside a saved result, as data URIs. Those that are gone or too many are counted, not an error."""

    def __init__(self, folder: Path, budget: int = BUDGET):
        self.folder, self.left = folder.resolve(), budget
        self.known: dict[str, dict[str, Any] | None] = {}
        self.lost = self.dropped = 0

    def picture(self, path: Any) -> dict[str, Any] | None:
        """The picture at a path relative to the folder: {"uri", "pixel"}, or None."""
        if not path:
            return None
        if path not in self.known:
            self.known[path] = self._read(str(path))
        return self.known[path]

    def item(self, entry: Mapping[str, Any], caption: str) -> dict[str, Any] | None:
        """A picture with its attribution map, and what stands below it."""
        picture = self.picture(entry.get("picture"))
        return picture and {"picture": picture, "map": self.picture(entry.get("map")), "caption": caption}

    def notes(self) -> list[str]:
        told = []
        if self.lost:
            told.append(f"{self.lost} of the pictures could not be read.")
        if self.dropped:
            told.append(f"{self.dropped} of the pictures were left out to keep this page small.")
        return told

    def _read(self, path: str) -> dict[str, Any] | None:
        file = (self.folder / path).resolve()
        if not file.is_relative_to(self.folder):  # a saved result must not fetch other files into a page
            self.lost += 1
            return None
        try:
            made = small(file)
        except (OSError, ValueError, SyntaxError, MemoryError):  # what Pillow raises for damaged files
            self.lost += 1
            return None
        if len(made["uri"]) > self.left:
            self.dropped += 1
            return None
        self.left -= len(made["uri"])
        return made


def small(file: Path) -> dict[str, Any]:
    """A picture file as a small data URI, drawn anew so that no metadata comes along."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            with Image.open(file) as opened:
                opened.draft("RGB", (SIDE, SIDE))  # a JPEG is decoded at about this size
                image = opened.convert("RGBA")
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise ValueError(f"{file} is too large a picture ({error})") from None
    pixel = max(image.size) <= PIXELS
    image.thumbnail((SIDE, SIDE))
    flat = Image.new("RGB", image.size, "white")
    flat.paste(image, mask=image.getchannel("A"))
    data = BytesIO()
    if pixel:
        flat.save(data, "PNG", optimize=True)
    else:
        flat.save(data, "JPEG", quality=80, optimize=True)
    return {"uri": _uri(data.getvalue(), "png" if pixel else "jpeg"), "pixel": pixel}


def png_uri(picture: bytes, caption: str) -> str:
    """A PNG file's bytes as a data URI."""
    if not picture.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError(f"the picture '{caption}' is not a PNG file")
    return _uri(picture, "png")


def _uri(data: bytes, kind: str) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
