"""Libraries that only some data needs: imported when it is used, and named when they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bocl.errors import DataError


def needed(module: str, extra: str, why: str) -> Any:
    """Import a module of an extra, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise DataError(f"{why}, which needs the extra '{extra}'; pip install 'bocl[{extra}]'") from error
