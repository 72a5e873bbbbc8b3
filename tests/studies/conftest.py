"""Fixtures of the tests of studies."""

from tests.support.sweeps import trained  # noqa: F401
