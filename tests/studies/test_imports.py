"""Every study can still be started: modules that it imports may have moved."""

import ast
import importlib.util

import pytest

from studies.rows import ROOT

STUDIES = sorted((ROOT / "studies").glob("*.py"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_what_a_study_imports_is_there(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (
            not isinstance(node, ast.ImportFrom)
            or node.level
            or node.module.split(".")[0] not in ("spurless", "studies")
        ):
            continue
        assert importlib.util.find_spec(node.module), f"{path.name} imports {node.module}"
        module = importlib.import_module(node.module)
        for name in node.names:
            there = hasattr(module, name.name) or importlib.util.find_spec(f"{node.module}.{name.name}")
            assert there, f"{path.name} imports {name.name} from {node.module}"
