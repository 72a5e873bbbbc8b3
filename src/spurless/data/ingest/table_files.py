"""A table in a file (separated text, gzipped or not, or Parquet), or a DataFrame, as cells of text with their lines."""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from spurless.core.errors import DataError, SettingError, first_line
from spurless.core.extras import missing
from spurless.core.files import read_bytes
from spurless.core.settings import Range
from spurless.data.ingest.columns import number
from spurless.data.ingest.delimited import UTF_16, read_lines
from spurless.data.ingest.labels import MISSING_MARKS
from spurless.data.ingest.problems import Problems

if TYPE_CHECKING:
    from pandas import DataFrame

# How files begin that are no text: zip and Excel, Feather, HDF5, old Excel, bzip2, xz, Zstandard.
NOT_TEXT = re.compile(rb"PK\x03\x04|ARROW1|FEA1|\x89HDF|\xd0\xcf\x11\xe0|BZh\d1AY&SY|\xfd7zXZ|\x28\xb5\x2f\xfd")
MIB = 2**20


@dataclass(frozen=True, kw_only=True)
class Format:
    """How a table is written."""

    missing: Annotated[tuple[str, ...], "texts that stand for a missing value"] = MISSING_MARKS
    delimiter: Annotated[Literal["auto", "comma", "semicolon", "tab", "pipe"], "what separates columns"] = "auto"
    decimal: Annotated[Literal["point", "comma"], "how numbers are written"] = "point"
    encoding: Annotated[str, "character encoding of the file"] = "utf-8"
    max_unpacked: Annotated[int, "most MiB that a compressed table (gzip, Parquet) may unpack to", Range(1)] = 2048


def read_table(file: Path, how: Format, problems: Problems) -> tuple[DataFrame, NDArray[np.int64]]:
    """All cells as text, and the line that each row starts on (1 is the header)."""
    try:
        data = read_bytes(file)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}.") from None
    if data[:4] == b"PAR1":
        return from_frame(_parquet(data, how, problems.where), problems)
    return _from_text(_decoded(data, how, problems.where), how, problems)


def from_frame(frame: DataFrame, problems: Problems) -> tuple[DataFrame, NDArray[np.int64]]:
    """The cells of a DataFrame as text, numbered as the lines of a file with a header would be."""
    import pandas as pd

    # pandas keeps an index apart from the columns; one with a name is a column to whoever wrote it.
    index = [frame.index.get_level_values(k) for k, name in enumerate(frame.index.names) if name is not None]
    header = [str(name) for name in (*(level.name for level in index), *frame.columns)]
    _check_header(header, problems)
    frame = pd.concat([*(level.to_series(range(len(frame))) for level in index), frame.reset_index(drop=True)], axis=1)
    try:
        texts = frame.astype(object).where(frame.notna(), "").astype(str).astype(object)
    except Exception as error:  # bytes, or text that is not UTF-8, for which pyarrow has exceptions of its own
        reason = first_line(error)
        raise DataError(f"{problems.where} has a column that is neither text nor numbers ({reason}).") from None
    return _with_rows(texts.set_axis(header, axis=1), np.arange(len(frame)) + 2, problems)


def _from_text(text: str, how: Format, problems: Problems) -> tuple[DataFrame, NDArray[np.int64]]:
    import pandas as pd

    if not text.strip():
        raise DataError(f"{problems.where} is empty; it needs a header with column names, and rows.")
    table = read_lines(text, how.delimiter)
    for count, lines in table.uneven.items():
        fields = f"{count} field{'s' * (count > 1)} where the header has {len(table.header)}"
        problems.broken(fields, "mend the row, and put quotes round a cell that holds the separator", lines)
    slip = "a quotation mark that does not close"
    problems.broken(slip, "close it, or double it inside a cell", table.unreadable)
    if all(number(cell) is not None for cell in table.header):
        problems.wrong("the first line holds numbers, not column names", "put a line with names above it", [1])
    _check_header(table.header, problems, [1])
    frame = pd.DataFrame(table.rows, columns=table.header, dtype=object)
    return _with_rows(frame, np.array(table.lines, dtype=np.int64), problems)


def _with_rows(frame: DataFrame, lines: NDArray[np.int64], problems: Problems) -> tuple[DataFrame, NDArray[np.int64]]:
    if not len(frame):
        problems.wrong("there are no rows below the header", "add some")
        problems.stop()
    return frame, lines


def _check_header(header: Sequence[str], problems: Problems, lines: Sequence[int] = ()) -> None:
    """Two columns of one name end the reading: which is meant cannot be said."""
    for name, times in Counter(header).items():
        if times > 1:
            problems.wrong(f"{times} columns are called '{name}'", "give each a name of its own", lines)
    if len(set(header)) < len(header):
        problems.stop()


def _parquet(data: bytes, how: Format, name: str) -> DataFrame:
    import pandas as pd

    if _unpacked_size(data) > how.max_unpacked * MIB:
        raise _too_large(name, how)
    try:
        return pd.read_parquet(io.BytesIO(data))
    except ImportError:
        raise missing(f"{name} is a Parquet file, which", "parquet", "save it as CSV") from None
    except Exception as error:  # it has exceptions of its own
        raise DataError(f"{name} is not a whole Parquet file ({first_line(error)}); write it again.") from None


def _unpacked_size(data: bytes) -> int:
    """How large a Parquet file says that its cells are; 0 where it cannot be read, which its reader will tell."""
    try:
        from pyarrow.parquet import ParquetFile

        parts = ParquetFile(io.BytesIO(data)).metadata
        return sum(parts.row_group(k).total_byte_size for k in range(parts.num_row_groups))
    except Exception:
        return 0


def _unzipped(data: bytes, how: Format, name: str) -> bytes:
    try:
        with gzip.open(io.BytesIO(data)) as file:
            unpacked = file.read(how.max_unpacked * MIB + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{name} is not a whole gzip file ({error}); copy it again.") from None
    if len(unpacked) > how.max_unpacked * MIB:
        raise _too_large(name, how)
    return unpacked


def _too_large(name: str, how: Format) -> DataError:
    return DataError(
        f"{name} unpacks to more than {how.max_unpacked:,} MiB. If the table really is as large, set data.max_unpacked "
        "higher."
    )


def _decoded(data: bytes, how: Format, name: str) -> str:
    """The bytes of a file as text, or an error that names the line and the encoding to try."""
    if data[:2] == b"\x1f\x8b":
        data = _unzipped(data, how, name)
    no_text = DataError(
        f"{name} is no text. csv: reads comma, semicolon, tab or pipe separated text, plain or gzipped, and "
        "Parquet: save the table as one of these, or say data.encoding=utf-16 if it is text in that."
    )
    if NOT_TEXT.match(data):
        raise no_text
    try:
        text = data.decode("utf-8-sig" if how.encoding.lower() in ("utf-8", "utf8") else how.encoding)
    except LookupError:
        raise SettingError(
            f"data.encoding = '{how.encoding}' is no known encoding; try utf-8, latin-1 or utf-16."
        ) from None
    except UnicodeDecodeError as error:
        line, in_utf_16 = data.count(b"\n", 0, error.start) + 1, data.startswith(UTF_16)
        if b"\0" in data[:4096] and not in_utf_16:
            raise no_text from None
        raise DataError(
            f"{name}, line {line}: the text is not {how.encoding}. Save the file as UTF-8, or name its encoding, "
            f"such as data.encoding={'utf-16' if in_utf_16 else 'latin-1'}."
        ) from None
    if "\0" in text[:4096]:
        raise no_text
    return text
