"""The replication uses the library; the library does not know of it."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_no_module_of_the_library_imports_the_replication():
    imported = {
        name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [])
        + ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
        if name
    }
    assert "bocl.report.page" in imported
    assert not [name for name in imported if name.split(".")[0] == "replication"]
