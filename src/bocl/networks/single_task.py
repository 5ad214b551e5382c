"""What one task computes with, apart from all others, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

SingleTaskKind = Literal["compact", "columns", "factors", "whole", "memories"]


@dataclass(frozen=True, eq=False)
class SingleTask:
    """The network of one task: ``task_modules.py`` makes a module of it.

    kind     compact: a graph with the task's weights; columns: PGN's, up to the task's own; factors: a module with
             low-rank factors; whole: a copy of a module; memories: features that never change, and what FearNet
             remembers of the task
    facts    as JSON values, what besides the graph or module is needed
    tensors  all that the task uses, and nothing else
    """

    kind: SingleTaskKind
    facts: dict[str, Any]
    tensors: Mapping[str, Tensor]
