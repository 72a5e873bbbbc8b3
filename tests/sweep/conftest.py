"""Fixtures of the tests of sweeps."""

from tests.support.sweeps import trained  # noqa: F401
