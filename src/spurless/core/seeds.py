"""Seeds for every purpose, derived from the run's one seed, so that no part depends on how much another part drew."""

import hashlib


def derive(seed: int, *purpose: object) -> int:
    """A seed for one purpose of a run.

    >>> derive(0, "net", 1) == derive(0, "net", 1), derive(0, "net", 1) == derive(0, "net", 2)
    (True, False)
    """
    text = repr((seed, *purpose)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little") % 2**63
