"""What every test shares: what it needs and is not here is said by name in the summary; nothing is skipped silently."""

import spurless  # noqa: F401  # isort: skip  (first: it sets how OpenMP waits before torch is imported)

import pytest
import torch

from spurless.core.files import data_root
from spurless.core.messages import show_messages


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the slow tests too")


ROOT = data_root()  # before any test has a cache of its own, below which it would else be looked for


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("--slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run by make test-all"))
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
        for marker in item.iter_markers("data"):
            missing = [name for name in marker.args if not (ROOT / name).exists()]
            if missing:
                item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(missing)} under SPURLESS_DATA"))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Tests write their caches to a folder of the test session, not to the user's."""
    monkeypatch.setenv("SPURLESS_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.setenv("SPURLESS_DATA", str(ROOT))


@pytest.fixture(autouse=True)
def _messages():
    """What is logged is printed to standard error, as by the command line."""
    show_messages()


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
