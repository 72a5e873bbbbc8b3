"""griffe extension for the API page: what reading the source alone does not tell.

`fit` takes the fields of `RunArguments`, through a decorator; and a doctest in a docstring is code, not a quotation.
"""

import re

import griffe

DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)  # to the next empty line


class Signatures(griffe.Extension):
    """Give `fit` its parameters, and fence the doctests of all docstrings."""

    def on_package(self, *, pkg, **_):
        fields = [f for f in pkg["train.session.RunArguments"].members.values() if f.is_attribute]
        kinds = griffe.ParameterKind
        kind = kinds.positional_or_keyword
        parameters = []
        for field in fields:
            if field.name == "_":  # what follows KW_ONLY
                kind = kinds.keyword_only
            else:
                default = None if field.value is None else str(field.value)
                parameters.append(griffe.Parameter(field.name, annotation=field.annotation, kind=kind, default=default))
        pkg["train.fit.fit"].parameters = griffe.Parameters(*parameters)
        fence(pkg)


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
