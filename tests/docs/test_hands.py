"""The table of what a new user tries names tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_line_is_held_by_a_test_that_exists():
    lines = [line for line in (TESTS / "hands.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    tries = [line for line in lines if not line.startswith(("| try |", "| :--"))]
    assert len(tries) > 30
    for line in tries:
        held = re.findall(r"`(tests/\S+?\.py)(?:::(\w+))?`", line.rpartition(" | ")[2])
        assert held or "`make test-floor`" in line, line
        for file, name in held:
            text = (TESTS.parent / file).read_text(encoding="utf-8")
            assert not name or re.search(rf"^def {name}\(", text, re.MULTILINE), f"{file} has no {name}"
