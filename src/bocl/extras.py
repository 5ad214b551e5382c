"""Libraries that only some uses need: imported then, and named when they are missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bocl.errors import InputError


def needed(module: str, extra: str, why: str) -> Any:
    """Import a module of an extra, or say how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(f"{why}, which needs the extra '{extra}'; pip install 'bocl[{extra}]'") from error
    except Exception as error:  # as of a torchvision that was built for another PyTorch
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(
            f"{why}, but {module} is installed and cannot be imported ({reason}); see that all the extra '{extra}' "
            "installs is made for your PyTorch"
        ) from error
