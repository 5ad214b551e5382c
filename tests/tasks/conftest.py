"""A cache of the test's own, so that no test sees or fills the user's."""

from __future__ import annotations

from pathlib import Path

import pytest

from bocl.tasks import files


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the cache an empty folder and forget BOCL_DATA."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(files, "cache_folder", lambda: cache)
    monkeypatch.delenv("BOCL_DATA", raising=False)
    return cache
