"""Measurements behind the claims of the documentation. Not shipped with the package."""
