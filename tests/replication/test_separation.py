"""The replication uses the library; the library knows nothing of the replication."""

from __future__ import annotations

import ast
from pathlib import Path

import bocl.errors

SOURCE = Path(bocl.errors.__file__).parent


def test_no_module_of_the_library_imports_the_replication():
    files = list(SOURCE.rglob("*.py"))
    assert len(files) > 100
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.partition(".")[0] == "replication"], path
