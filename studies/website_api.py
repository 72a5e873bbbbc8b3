"""griffe extension for the API page: what reading the source alone does not tell.

`fit` and `fix` take the fields of a dataclass, through a decorator; and a doctest in a docstring is code, not a
quotation.
"""

import re

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)  # to the next empty line


TAKES = {"train.fit.fit": "train.session.RunArguments", "auditing.fixing.fix": "auditing.fixing.FixArguments"}


class Signatures(griffe.Extension):
    """Give the functions of `TAKES` their parameters, and fence the doctests of all docstrings."""

    def on_package(self, *, pkg, **_):
        for function, arguments in TAKES.items():
            pkg[function].parameters = griffe.Parameters(*parameters(pkg[arguments]))
        fence(pkg)


def parameters(dataclass):
    """The fields of a dataclass, as parameters."""
    kinds = griffe.ParameterKind
    kind = kinds.positional_or_keyword
    for field in dataclass.members.values():
        if field.name == "_":  # what follows KW_ONLY
            kind = kinds.keyword_only
        elif field.is_attribute:
            default = None if field.value is None else str(field.value)
            yield griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=default)


def fence(item):
    """Mark the doctests of an object and of all that it holds."""
    if item.docstring:
        item.docstring.value = fenced(item.docstring.value)
    for member in item.members.values():
        if not member.is_alias:
            fence(member)


def fenced(text):
    r"""
    >>> fenced("What it does.\n\n>>> 1 + 1\n2")
    'What it does.\n\n```pycon\n>>> 1 + 1\n2\n```'
    """
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
