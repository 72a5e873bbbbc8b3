"""Mistakes that a user can mend: the command line prints the message, no traceback, and exits with 2.

SpurlessError                  (also known as UserError)
├── SettingError               a setting, an argument or a name; a ValueError, too
├── DataError                  what a dataset, a file or a table holds
│   └── NotNumbers             a network's outputs have no accuracy
├── FolderError                an output folder that holds something else, or cannot be used
└── Diverged                   training whose loss or weights are no longer finite
"""

import difflib
import re
from collections.abc import Iterable


class SpurlessError(Exception):
    """What is wrong, where, and what to do, in one or two sentences."""


UserError = SpurlessError


class SettingError(SpurlessError, ValueError):
    """A setting, an argument or a name that is not allowed."""


class DataError(SpurlessError):
    """A dataset, a file or a table that cannot be used as it is."""


class FolderError(SpurlessError):
    """An output folder that holds something else, or cannot be used."""


class Diverged(SpurlessError):
    """Training produced a loss or a weight that is not finite. Carries what was known at that moment."""

    def __init__(self, stage: str, step: int, lr: float, last_loss: float | None, what: str):
        self.stage, self.step, self.lr, self.last_loss, self.what = stage, step, lr, last_loss, what
        before = "from the first step on" if last_loss is None else f"the last finite loss was {last_loss:.4g}"
        super().__init__(
            f"{what} is not finite in stage '{stage}', step {step}, at learning rate {lr:.3g}; {before}. "
            "Try a smaller recipe.lr, or recipe.clip_norm=1."
        )


def unknown(kind: str, name: str, allowed: Iterable[str]) -> SettingError:
    """The error for a wrong name, with the nearest right one.

    >>> print(unknown("method", "pdg", ["erm", "pgd"]))
    There is no method 'pdg'; did you mean 'pgd'? The methods are: erm, pgd.
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return SettingError(f"There is no {kind} '{name}'{hint} The {_several(kind)} are: {', '.join(names)}.")


def _several(kind: str) -> str:
    """
    >>> _several("dataset"), _several("way to prune"), _several("family of corruptions")
    ('datasets', 'ways to prune', 'families of corruptions')
    """
    noun, *rest = re.split("(?= (?:to|of|for) )", kind, maxsplit=1)
    return "".join([noun[:-1] + "ies" if noun.endswith("ily") else f"{noun}s", *rest])


class NotNumbers(DataError):
    """A network's outputs are not numbers, so that they have no accuracy."""


def one_of(kind: str, given: str, allowed: Iterable[str]) -> None:
    """Refuse a word that is not among those known."""
    if given not in (names := list(allowed)):
        raise unknown(kind, given, names)


def first_line(error: object) -> str:
    """What an error says, in one line; the name of its kind where it says nothing.

    >>> first_line(RuntimeError("no room\\nat line 3")), first_line(EOFError())
    ('no room', 'EOFError')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
