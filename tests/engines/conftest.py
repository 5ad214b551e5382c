"""What tests of the engines have in common."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module", autouse=True)
def no_data_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Hide data files from this process and those it starts: tests of missing ones find none on any machine."""
    empty = tmp_path_factory.mktemp("no-data")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BOCL_DATA", raising=False)
        patch.setenv("XDG_CACHE_HOME", str(empty))
        yield empty


@pytest.fixture
def disconnected() -> Iterator[None]:
    """Leave the Ray cluster after a test, however it ended."""
    yield
    import ray

    ray.shutdown()
