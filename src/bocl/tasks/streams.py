"""The streams that have a name; `bocl list` shows the first line of each docstring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from bocl.tasks.keel_tables import keel_tables
from bocl.tasks.mixed import mixed_mnist
from bocl.tasks.permuted import permuted_digits, permuted_mnist
from bocl.tasks.split import split_cifar100
from bocl.tasks.task import TaskStream
from bocl.tasks.text_sections import text_sections

# Each takes tasks and seed. Streams of downloaded data also take data, the folder of the files.
STREAMS: Mapping[str, Callable[..., TaskStream]] = MappingProxyType(
    {
        "permuted-digits": permuted_digits,
        "permuted-mnist": permuted_mnist,
        "mixed-mnist": mixed_mnist,
        "split-cifar100": split_cifar100,
        "text-sections": text_sections,
        "keel-tables": keel_tables,
    }
)
