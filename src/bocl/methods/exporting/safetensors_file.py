"""One task in one .safetensors file: only what it uses, with all that is needed to run it.

    network = bocl.load_module("spring.safetensors")
    logits = network(samples)

The tensors have the names of ``SingleTask``. The file's metadata has under ``bocl`` a JSON table: the format, the kind
of network, its graph, the task's samples and classes, and a sha256 over all of it and over every tensor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import save as pack_tensors
from torch import Tensor, nn

from bocl.errors import FolderError
from bocl.methods.growing import GrowingLearner
from bocl.methods.method import Learner
from bocl.methods.saving import SENSELESS, network_in, network_json, network_of
from bocl.methods.seen import SeenTask
from bocl.methods.task_network import TaskNetwork, task_network
from bocl.methods.tensor_files import unpack
from bocl.networks.by_task import sha256_of
from bocl.networks.check import BASE
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings
from bocl.networks.low_rank.backbone import Backbone, Description
from bocl.networks.single_task import SingleTask, SingleTaskKind
from bocl.records.files import open_file
from bocl.settings import parse_value, to_plain
from bocl.tasks.labels import label_from_json
from bocl.tasks.texts import TextFormat
from bocl.training.device import resolve_device
from bocl.training.surroundings import usual_surroundings

FORMAT = 1
IN_A_FOLDER = "model.safetensors"  # what the file is called in a folder for the Hub
_MOST_HEADER = 1 << 26


def safetensors_file(learner: Learner, number: int, single: SingleTask) -> bytes:
    """Return the file of one task."""
    facts = {**description(learner, number, single), "sha256": ""}
    facts["sha256"] = _seal(facts, single.tensors)
    plain = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in single.tensors.items()}
    return pack_tensors(plain, metadata={"format": "pt", "bocl": json.dumps(facts, allow_nan=False)})


def description(learner: Learner, number: int, single: SingleTask) -> dict[str, Any]:
    """Return what the file of a task says besides its tensors, as JSON values."""
    about = learner.seen[number]
    growth = to_plain(learner.growth) if isinstance(learner, GrowingLearner) and single.kind == "factors" else None
    text = None if learner.text is None else asdict(learner.text)
    return {
        "format": FORMAT,
        "kind": single.kind,
        "facts": single.facts,
        "graph": network_json(learner.network.graph),
        "growth": growth,
        "task": to_plain(about),
        "text": text,
    }


@dataclass(frozen=True, eq=False)
class _Held:
    """What a file holds, checked; ``graph`` is all of a traced network, or what identifies a module."""

    single: SingleTask
    about: SeenTask
    text: TextFormat | None
    graph: Graph | Description
    growth: GrowthSettings | None


@usual_surroundings()
def load_module(
    path: str | Path, *, network: nn.Module | None = None, device: str | torch.device = "cpu", scaling: bool = True
) -> TaskNetwork:
    """Return the task in a file that was exported as safetensors, as a module that gives the learner's bits.

    path     the file, or the folder of an export for the Hub
    network  where the task adapts a module of the user's own code: such a module; its weights come from the file
    scaling  as for ``learner.module``
    """
    place, path = resolve_device(device), Path(path)
    path = path / IN_A_FOLDER if path.is_dir() else path
    held = _held_in(_read(path), path)
    graph = network_of(held.graph, {"growth": held.growth}, network, place, path)
    try:
        return _module(held, graph, scaling=scaling).to(place)
    except SENSELESS as error:
        raise _wrong(path, error) from error


def run_safetensors(learner: Learner, data: bytes) -> Callable[[Tensor], Tensor]:
    """Return what a file of a learner's task computes; code of the user's own is the learner's."""
    held, given = _held_in(data, Path("the file")), learner.network.graph
    graph = held.graph if isinstance(held.graph, Graph) else deepcopy(given)
    module = _module(held, graph, scaling=True).to(learner.device)

    def compute(samples: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = module(samples.to(learner.device))
        return logits.cpu()

    return compute


def _held_in(data: bytes, path: Path) -> _Held:
    try:
        facts = _facts_in(data)
    except SENSELESS as error:
        raise _wrong(path, error) from error
    tensors = unpack(data, path)
    if facts["format"] != FORMAT:
        raise FolderError(f"{path} has format {facts['format']!r}; this version of bocl reads format {FORMAT}")
    if facts["sha256"] != _seal(facts, tensors):
        raise FolderError(f"{path} was edited or damaged: its content does not have the sha256 it names")
    try:
        about: SeenTask = parse_value(SeenTask, facts["task"], "task")
        return _Held(
            SingleTask(
                parse_value(SingleTaskKind, facts["kind"], "kind"),
                parse_value(dict[str, Any], facts["facts"], "facts"),
                tensors,
            ),
            replace(about, labels=tuple(map(label_from_json, about.labels))),
            parse_value(TextFormat | None, facts["text"], "text"),
            network_in(facts["graph"]),
            parse_value(GrowthSettings | None, facts["growth"], "growth"),
        )
    except SENSELESS as error:
        raise _wrong(path, error) from error


def _module(held: _Held, graph: Graph | Backbone, *, scaling: bool) -> TaskNetwork:
    if isinstance(graph, Backbone):
        tensors, facts = held.single.tensors, held.single.facts
        if held.single.kind == "factors":
            base = {name.removeprefix(BASE): tensor for name, tensor in tensors.items() if name.startswith(BASE)}
            graph.load(base)
        features: int | None = parse_value(int | None, facts["features"], "facts.features")
        graph.recall(features, parse_value(tuple[str, ...], facts.get("unused", ()), "facts.unused"))
    return task_network(graph, held.single, held.about, held.text, scaling=scaling)


def _read(path: Path) -> bytes:
    try:
        with open_file(path) as stream:
            return stream.read()
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}") from error


def _facts_in(data: bytes) -> dict[str, Any]:
    """Return our table in the header of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    if length > min(len(data) - 8, _MOST_HEADER):
        raise ValueError("it is no safetensors file (torch.export.load reads a .pt2)")
    header = json.loads(data[8 : 8 + length])
    facts: dict[str, Any] = json.loads(header["__metadata__"]["bocl"])
    return {name: facts[name] for name in ("format", "kind", "facts", "graph", "growth", "task", "text", "sha256")}


def _seal(facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    content = {name: value for name, value in facts.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(f"{text}\n{sha256_of(tensors)}".encode()).hexdigest()


def _wrong(path: Path, error: Exception) -> FolderError:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return FolderError(f"{path} cannot be read as an exported task: {reason}")
