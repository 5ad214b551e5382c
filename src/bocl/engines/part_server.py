"""Parts of rounds, trained for another process: what both sides of the way there and back share.

A network and the samples of a task are packed once and kept by whoever trains. What is unpacked comes from a process of
the same run, never from a file.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

import torch

from bocl.errors import WorkError
from bocl.methods.failures import Listener
from bocl.methods.parts import PartDone, PartTrainer, PartWork
from bocl.methods.rounds import Round
from bocl.networks.growing import GrowingNetwork
from bocl.networks.growth import Growth
from bocl.records.events import ignore_events
from bocl.training.batches import DeviceTask
from bocl.training.steps import StepCache
from bocl.training.surroundings import usual_surroundings


class Subject:
    """What children grow from and learn, for one task: packed when somebody else needs it first.

    name  tells it from all others: whoever keeps it may outlive who made it, and be asked for another run's
    """

    def __init__(self, network: GrowingNetwork, data: DeviceTask) -> None:
        self.name, self.network, self.data = uuid4().hex, network, data
        self._packed: bytes | None = None

    def packed(self) -> bytes:
        """Return network and samples as bytes."""
        if self._packed is None:
            file = io.BytesIO()
            try:
                torch.save((self.network, self.data), file)
            except Exception as error:  # a module of the user's may refuse in any way
                raise WorkError(
                    f"the network cannot be sent to other processes ({_reason(error)}); use one device"
                ) from error
            self._packed = file.getvalue()
        return self._packed


def unpacked(packed: bytes, device: torch.device) -> tuple[GrowingNetwork, DeviceTask]:
    """Return a network and samples on this device; what its owner keeps on the host stays there."""

    def place(storage: Any, location: str) -> Any:
        return storage.to(device=device) if location.startswith("cuda") else storage

    try:
        network, data = torch.load(io.BytesIO(packed), map_location=place, weights_only=False)
    except (ImportError, AttributeError, pickle.UnpicklingError) as error:
        raise WorkError(
            f"the network cannot be read in another process ({_reason(error)}); let a config name the function that "
            "makes it, package.module:function, or use one device"
        ) from error
    network.device = device
    if hasattr(network.graph, "device"):  # a backbone's
        network.graph.device = device
    return network, data


class PartServer:
    """Trains parts of rounds on one device.

    given  the name of the subject that it has; None before the first
    """

    def __init__(self, device: torch.device) -> None:
        self.given: str | None = None
        self._device = device
        self._begin: Callable[[Round], PartTrainer] | None = None
        self._asked: Round | None = None
        self._trainer: PartTrainer | None = None

    def give(self, name: str, packed: bytes) -> None:
        """Take what children grow from and learn, in place of what was there."""
        self._trainer = self._begin = None  # with all that they keep
        network, data = unpacked(packed, self._device)
        cache = StepCache()
        self._begin = lambda asked: PartTrainer(asked, network, data, cache, Listener(ignore_events))
        self.given = name

    def train(self, asked: Round, works: Sequence[PartWork]) -> list[PartDone]:
        """Train parts of a round; what they come to has its tensors on the host."""
        assert self._begin is not None
        with usual_surroundings():
            if self._trainer is None or asked != self._asked or not all(work.rungs for work in works):
                self._asked, self._trainer = asked, self._begin(asked)
            return [on_device(done, torch.device("cpu")) for done in self._trainer(works)]


def on_device(done: PartDone, device: torch.device) -> PartDone:
    """Return a part whose tensors are on a device."""

    def moved(growth: Growth) -> Growth:
        return replace(growth, tensors={name: tensor.to(device) for name, tensor in growth.tensors.items()})

    return replace(done, growths=tuple(growth and moved(growth) for growth in done.growths))


def _reason(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
