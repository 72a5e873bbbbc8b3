"""CivilComments-WILDS: is a comment toxic? The identities that it mentions as the bias."""

from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from spurless.core.data import Bundle, Overlap
from spurless.core.errors import UserError
from spurless.data.ingest.texts import Length, Part, Tokenizer, folder_of, has_columns, read, to_bundle

IDENTITIES = ("male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white")
PUBLISHED = {"train": 269_038, "val": 45_180, "test": 133_782}
FILE = "all_data_with_identities.csv"


def load(
    root: Path | None = None,
    attribute: Annotated[
        Literal["identity_any", "male", "female", "LGBTQ", "christian", "muslim", "other_religions", "black", "white"],
        "what the training groups are by: any identity, or one of them",
    ] = "identity_any",
    length: Length = 300,
    tokenizer: Tokenizer = "minilm",
) -> Bundle:
    """447,998 comments, toxic or not, with the identities that people saw mentioned in them.

    - Input: text, up to 300 tokens. Label: toxic where at least half of the people said so. Bias, for training: whether
      any identity is mentioned (JTT's four groups), or one of the eight.
    - Groups, for scores: eight identities, each with both labels. A comment can mention several, so the 16 cells
      overlap; `worst_group` is the worst of them, as WILDS has it, and the average is over all comments.
    - Splits: the official ones, 269,038, 45,180 and 133,782.
    - Citation: Borkan et al. 2019; Koh et al. 2021 (WILDS). Licence: CC0.
    """
    from pandas import to_numeric

    folder = folder_of("civilcomments", (FILE,), root, below=("civilcomments_v1.0", "text/civilcomments_v1.0"))
    numbers = ("toxicity", attribute, *IDENTITIES)
    frame = read(folder, FILE, keep_default_na=False, na_values={c: [""] for c in numbers})
    has_columns(frame, ("comment_text", "split", *numbers), FILE)
    for column in numbers:
        number = to_numeric(frame[column], errors="coerce")
        # A gap is an identity that nobody saw, as WILDS has it; but it would also be a comment that is not toxic.
        lost = np.flatnonzero(number.isna() & (frame[column].notna() | (column == "toxicity")))
        if len(lost):
            raise UserError(
                f"{folder / FILE}, row {lost[0] + 1} below the header: {column} is no number; get it again."
            )
        frame[column] = number
    odd = set(frame["split"]) - set(PUBLISHED)
    if odd:
        raise UserError(f"{FILE}: '{sorted(map(str, odd))[0]}' is no split; they are train, val and test.")
    texts = frame["comment_text"].astype(str).tolist()
    y = (frame["toxicity"].to_numpy(float) >= 0.5).astype(np.int64)
    member = frame[list(IDENTITIES)].to_numpy(float) >= 0.5  # (n, 8)
    a = (frame[attribute].to_numpy(float) >= 0.5).astype(np.int64)[:, None]
    parts, notes = {}, []
    for name, published in PUBLISHED.items():
        rows = np.flatnonzero((frame["split"] == name).to_numpy())
        names = [f"row {i}" for i in rows]
        parts[name] = Part([texts[i] for i in rows], y[rows], a[rows], names=names, member=member[rows])
        if len(rows) != published:
            notes.append(f"{name} holds {len(rows):,} comments; {published:,} are published")
    return to_bundle(
        "civilcomments",
        parts,
        tokenizer,
        length,
        ("not toxic", "toxic"),
        (attribute, ("no", "yes")),
        overlap=Overlap("identity", IDENTITIES),
        notes=tuple(notes),
    )
