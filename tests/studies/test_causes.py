"""Each published number that does not come back has one reason beside it."""

import pytest

from spurless.bench.reproduce import papers
from studies.causes import causes, missing, table_of


@pytest.mark.parametrize("table", papers())
def test_every_missing_number_has_one_cause(table):
    for number in missing(table):
        named = [cause.what for cause in causes() if cause.names(number)]
        assert len(named) == 1, f"{table}, {number.data}, {number.method}, {number.point}: {named or 'no cause'}"


def test_no_cause_outlives_its_numbers():
    for cause in causes():
        assert any(cause.names(number) for number in missing(cause.table)), f"{cause.table}: {cause.what}"


def test_what_is_not_settled_says_so():
    for paper in ("pgd", "dcwp", "large-lr"):
        own = [cause for cause in causes() if cause.table.startswith(paper)]
        assert table_of(paper).count("**not settled.**") == sum(not cause.settled for cause in own)
