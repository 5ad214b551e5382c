"""A learner in a folder of its own: JSON and safetensors, no pickle, nothing of the user's code needed to load it.

    model.json                    format, method, settings, graph, facts, and the name and hash of the weights
    weights-<hash>.safetensors    every tensor

The weights are written first and model.json, which names them, last: a folder holds the old model or the
new one, never half of one.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from pathlib import Path
from typing import Any, get_type_hints

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from bocl.errors import FolderError, did_you_mean
from bocl.methods.method import Method, State
from bocl.networks.graph import from_json, to_json
from bocl.records.files import write_whole
from bocl.records.journal import to_json as as_json
from bocl.settings import parse_value, plain

FORMAT = 1
_NOT_SETTINGS = ("device", "searcher")


def save(method: Method, folder: str | Path) -> None:
    """Write a learner to a folder, which must be new, empty or hold an older save."""
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise FolderError(f"cannot save to {folder}: it is a file; give a folder")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "model.json").exists():
        raise FolderError(f"cannot save to {folder}: it holds something else; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    state = method.state()
    weights = save_tensors({name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()})
    digest = hashlib.sha256(weights).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    model = {
        "format": FORMAT,
        "method": method.name,
        "settings": {name: plain(getattr(method, name)) for name in _settings(type(method))},
        "graph": to_json(method.graph),
        "facts": as_json(state.facts, "facts"),
        "weights": {"file": name, "sha256": digest},
    }
    write_whole(folder / name, weights)
    write_whole(folder / "model.json", json.dumps(model, indent=1, allow_nan=False).encode())
    for old in folder.glob("weights-*.safetensors"):
        if old.name != name:
            old.unlink()


def load(folder: str | Path, *, device: str = "auto", **options: Any) -> Any:
    """Rebuild a learner from its folder alone; it predicts the same bits and can go on learning.

    folder   of ``save``, or of a run, whose last checkpoint is taken
    options  what a save cannot hold, such as BOCL's ``searcher``
    """
    from bocl.methods.registry import METHODS

    folder = Path(folder)
    checkpoints = sorted(folder.glob("checkpoints/*/model.json"))
    folder = checkpoints[-1].parent if checkpoints else folder
    model = _read_model(folder)
    path = folder / "model.json"
    kind = METHODS.get(model["method"])
    if kind is None:
        raise FolderError(
            f"{path} is of an unknown method '{model['method']}'" + did_you_mean(model["method"], METHODS)
        )
    hints = _settings(kind)
    try:
        settings = {
            name: parse_value(hints[name], value, f"{path}: settings.{name}")
            for name, value in model["settings"].items()
        }
        method = kind(from_json(model["graph"]), device=device, **settings, **options)  # type: ignore[call-arg]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FolderError(f"{path} cannot be read as a model: {error}") from error
    method.restore(_read_weights(folder, model))
    return method


def read_state(folder: Path, method: Method) -> State:
    """Return the state a folder holds, for a method made with the same settings."""
    model = _read_model(folder)
    if model["method"] != method.name:
        raise FolderError(f"{folder} holds a model of '{model['method']}', not of '{method.name}'")
    return _read_weights(folder, model)


def _read_model(folder: Path) -> dict[str, Any]:
    path = folder / "model.json"
    try:
        model: dict[str, Any] = json.loads(path.read_bytes())
        if model["format"] != FORMAT:
            raise FolderError(f"{path} has format {model['format']}; this version of bocl reads format {FORMAT}")
        missing = {"method", "settings", "graph", "facts", "weights"} - set(model)
        if missing:
            raise FolderError(f"{path} cannot be read as a model: it lacks {', '.join(sorted(missing))}")
    except FileNotFoundError:
        raise FolderError(f"{folder} holds no model: there is no {path.name} in it") from None
    except FolderError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FolderError(f"{path} cannot be read as a model: {error}") from error
    return model


def _read_weights(folder: Path, model: dict[str, Any]) -> State:
    file = folder / Path(model["weights"]["file"]).name
    try:
        weights = file.read_bytes()
        if hashlib.sha256(weights).hexdigest() != model["weights"]["sha256"]:
            raise FolderError(f"{file} is damaged: its hash is not the one in model.json")
        return State(model["facts"], load_tensors(weights))
    except (OSError, SafetensorError) as error:
        raise FolderError(f"{file} cannot be read: {error}") from error


def _settings(kind: type[Any]) -> dict[str, Any]:
    """Return {name: type} of a method's settings: its keyword arguments but those no file can hold."""
    hints = get_type_hints(kind.__init__)
    return {
        name: hints[name]
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY and name not in _NOT_SETTINGS
    }
