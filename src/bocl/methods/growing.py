"""What methods on a growing network have in common: scoring a winner, and their state, which is checked on reading."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from bocl.errors import NetworkError
from bocl.methods.checks import Seen, seen_from
from bocl.methods.method import State, join_tensors, part_tensors
from bocl.networks.check import check_tensors
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph, Widths
from bocl.networks.growth import PARTS, Growth, GrowthSettings, GrowthSpace, Shapes
from bocl.records.experience_file import check_experience
from bocl.records.record import Experience
from bocl.settings import parse_value
from bocl.training.batches import DeviceTask
from bocl.training.evaluation import accuracy


def score(network: ExpandableNetwork, growth: Growth, task: DeviceTask) -> float:
    """Score a winner again in compact form, the form it will predict in, before it is committed."""
    return accuracy(network.candidate(growth), task.validation)


def stored_parameters(network: ExpandableNetwork) -> dict[str, int]:
    """Count what the network stores, by part."""
    by_task = network.parameters_by_task()
    return {part: sum(task[part] for task in by_task) for part in PARTS}


def growing_state(network: ExpandableNetwork, seen: list[Seen], **facts: Any) -> State:
    """Return a growing network as facts and tensors ``TASK/NAME``."""
    growths = [{"widths": list(growth.widths), "classes": growth.classes} for growth in network.growths]
    tensors = join_tensors([growth.tensors for growth in network.growths])
    return State({"growths": growths, "seen": [asdict(entry) for entry in seen], **facts}, tensors)


def restore_growing(network: ExpandableNetwork, state: State) -> list[Seen]:
    """Make the network that of a saved state: its growths committed again, in order. Return what it has seen."""
    growths = growths_from(network.graph, network.settings, state)
    network.clear()
    for growth in growths:
        network.commit(growth)
    return seen_from(state.facts)


def growths_from(graph: Graph, settings: GrowthSettings, state: State) -> list[Growth]:
    """Read the growths of a saved state, or raise InputError naming what does not fit the network."""
    entries: tuple[_Entry, ...] = parse_value(tuple[_Entry, ...], state.facts["growths"], "facts.growths")
    classes = [entry["classes"] for entry in state.facts["seen"]]
    if [entry.classes for entry in entries] != classes:
        raise NetworkError(f"facts.growths has {len(entries)} entries that are not of the {len(classes)} tasks seen")
    before = (0,) * len(graph.groups)
    wanted: Shapes = {}
    for task, entry in enumerate(entries):
        _check_widths(entry.widths, graph, f"facts.growths[{task}].widths")
        if task == 0 and entry.widths != graph.widths:
            raise NetworkError(f"facts.growths[0].widths is {entry.widths}; the base network has {graph.widths}")
        for name, shape in GrowthSpace(graph, before, entry.classes, settings).shapes(entry.widths).items():
            wanted[f"{task}/{name}"] = shape
        before = tuple(old + new for old, new in zip(before, entry.widths, strict=True))
    check_tensors(state.tensors, wanted)
    parts = part_tensors(state.tensors, len(entries))
    return [Growth(entry.widths, entry.classes, part) for entry, part in zip(entries, parts, strict=True)]


def check_history(history: object, tasks: int, graph: Graph) -> None:
    """Refuse what is not the saved history of a search for every task but the first."""
    entries = _experience(history, graph, "facts.history")
    if len(entries) != max(tasks - 1, 0):
        raise NetworkError(f"facts.history has {len(entries)} entries; {tasks} tasks leave {max(tasks - 1, 0)}")


def check_memory(memory: object, graph: Graph) -> None:
    """Refuse what is not the saved memory of searches of other runs."""
    _experience(memory, graph, "facts.memory")


def _experience(saved: object, graph: Graph, name: str) -> tuple[Experience, ...]:
    entries: tuple[Experience, ...] = parse_value(tuple[Experience, ...], saved, name)
    check_experience(entries, len(graph.groups), name)
    return entries


def _check_widths(widths: Widths, graph: Graph, where: str) -> None:
    if len(widths) != len(graph.groups) or min(widths) < 0:
        raise NetworkError(f"{where}: {widths} is not one number of 0 or more for each of {len(graph.groups)} groups")


# What a file holds, field by field.


@dataclass(frozen=True)
class _Entry:
    """A growth without its tensors."""

    widths: Widths
    classes: int
