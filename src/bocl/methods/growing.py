"""What methods on a growing network have in common: scoring a winner, and their state."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bocl.methods.method import Seen, State, join_tensors, part_tensors, seen_from
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import PARTS, Growth
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
    network.clear()
    growths = state.facts["growths"]
    for entry, tensors in zip(growths, part_tensors(state.tensors, len(growths)), strict=True):
        network.commit(Growth(tuple(entry["widths"]), entry["classes"], tensors))
    return seen_from(state.facts)
