"""A learner in a folder of its own: JSON and safetensors, no pickle, nothing of the user's code needed to load it.

    model.json                    format, method, settings, graph, facts, the name and hash of the weights,
                                  and a sha256 over all of these
    weights-<hash>.safetensors    every tensor, and what a module of the user's gives for a few made-up samples

In a run, a model of a method that forgets nothing may be spread over several folders side by side. The first holds a
whole model. Each of the others holds what one more task added: its facts and weights, and ``before``, the name of the
folder that it adds to and the hash of the model.json in there.

The weights are written first and model.json, which names them, last: a folder holds the old model or the
new one, never half of one. One save at a time works on a folder, and a load next to a save sees the old model or the
new one. What is read is checked whole before a learner is built on it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn

from bocl.errors import BoclError, DamagedError, FolderError, InputError, WorkError, did_you_mean
from bocl.method_table import METHODS
from bocl.methods.earlier_models import upgrade
from bocl.methods.method import Learner, State
from bocl.methods.tensor_files import pack, unpack
from bocl.networks.check import check_graph
from bocl.networks.graph import Graph, from_json, to_json
from bocl.networks.library import make_network
from bocl.networks.low_rank.backbone import Backbone, Description, description_of
from bocl.networks.low_rank.backbone import to_json as backbone_to_json
from bocl.networks.low_rank.network import FactoredNetwork, alike, made_up_samples
from bocl.networks.memories import Memories
from bocl.records.files import CAN_LOCK, FULL, cannot_write, lock_file, make_folder, open_file, write_whole
from bocl.records.journal import read
from bocl.records.journal import to_json as as_json
from bocl.records.record import Sha256, StoredFile
from bocl.records.run_log import JOURNAL, RunLog, check_checkpoint
from bocl.settings import parse_value, to_plain
from bocl.training.device import resolve_device
from bocl.training.precision import repeatable_products
from bocl.training.surroundings import usual_surroundings

FORMAT = 3  # 2 was never spread over several folders, 1 called some settings and facts by other names
TENSOR_FORMAT = 1  # of the file of weights
MOST_BYTES = 1 << 28  # of model.json, which holds no weights
_FILE = "model.json"
_PARTS = ("method", "settings", "graph", "facts", "weights", "sha256")
_ADDED_PARTS = ("before", "facts", "weights", "sha256")
_BESIDE = re.compile(r"task-\d{2,}(-pick-\d+)?")  # what the folder of a checkpoint is called
_NOT_SAVED = ("device", "searcher")
_NOT_SETTINGS = (*_NOT_SAVED, "prior_trials")  # which is among the facts
_UNFINISHED = re.compile(r"(model\.json|weights-[0-9a-f]{16}\.safetensors)(\.[0-9a-f]{8})?\.partial")
_WEIGHTS = re.compile(r"weights-[0-9a-f]{16}\.safetensors")
_MADE_UP = "made-up/outputs"  # is no name of a state's: those begin with a number, base/ or memory/
#: Rounding differs between machines and versions of PyTorch: by about 1e-7 of the outputs in float32, and by less than
#: 0.005 where a module computes in bfloat16. Another number of heads changed even a tiny transformer's by 0.02.
_SAME_MODULE = 0.01

#: What reading a file that holds anything at all can raise.
SENSELESS = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, OverflowError)


# Writing.


@usual_surroundings()
def save(method: Learner, folder: str | Path) -> None:
    """Write a learner to a folder, which must be new, empty or hold an older save."""
    about = {"method": method.name, "settings": _settings_of(method), "graph": network_json(method.graph)}
    outputs = _made_up_outputs(method)
    _save(Path(folder), about, method.state(), {} if outputs is None else {_MADE_UP: outputs})


@usual_surroundings()
def save_added(method: Learner, folder: Path, before: StoredFile) -> None:
    """Write to a new folder what a learner's last task added to the model that is beside it.

    before  the model.json there
    """
    about = {"before": {"folder": Path(before.file).parent.name, "sha256": before.sha256}}
    _save(folder, about, method.state(len(method.seen) - 1), {})


def _save(folder: Path, about: Mapping[str, Any], state: State, checked: Mapping[str, Tensor]) -> None:
    weights = pack({**state.tensors, **checked}, f"model, format {TENSOR_FORMAT}")
    digest = hashlib.sha256(weights).hexdigest()
    name = _weights_name(digest)
    model = {
        "format": FORMAT,
        **about,
        "facts": as_json(state.facts, "facts"),
        "weights": {"file": name, "sha256": digest},
    }
    try:
        text = json.dumps(model | {"sha256": _seal(model)}, indent=1, allow_nan=False)
    except ValueError as error:
        raise InputError(f"cannot save to {folder}: the network or a setting holds an infinite number") from error
    with _held(folder) as alone:
        left, used = _of_earlier_saves(folder)
        if alone:
            _remove(
                folder, left
            )  # before anything is written, so that saves that are killed again and again add nothing
        write_whole(folder / name, weights)
        write_whole(folder / _FILE, text.encode())
        _remove(folder, used - {name})


def _made_up_outputs(method: Learner) -> Tensor | None:
    """Return what a module of any code gives for samples that can be made again anywhere: (4, outputs).

    They are the features of the frozen module alone, or the first task's logits where every task has a whole module.
    None for a traced network, before the first task, and where the module cannot take such samples.
    """
    if not isinstance(method.graph, Backbone) or not method.seen:
        return None
    shape, padding = method.seen[0].shape, method.seen[0].padding
    frozen = isinstance(method.network, FactoredNetwork | Memories)
    compute = method.graph.run if frozen else partial(method.network.predict, task=0)
    try:
        with repeatable_products("float32"):
            outputs = compute(made_up_samples(shape, padding).to(method.device)).float()
    except Exception:  # the module may fail in any way on samples that are none of a task
        return None
    return outputs if bool(outputs.isfinite().all()) else None


def _remove(folder: Path, names: Iterable[str]) -> None:
    try:
        for name in names:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise WorkError(f"{folder}: an older file cannot be removed: {error.strerror}") from error


@contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Make the folder and hold it against other saves, which wait; the kernel lets go when a process dies.

    Gives whether it is held: where there are no locks, another save may be at work here.
    """
    if "\0" in str(folder):
        raise FolderError(f"cannot save to {folder}: a name cannot hold a null character")
    try:
        if folder.exists() and not folder.is_dir():
            raise FolderError(f"cannot save to {folder}: it is a file; give a folder")
        make_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _cannot_save(folder, error) from error
    try:
        alone = CAN_LOCK
        try:
            lock_file(descriptor, wait=True)
        except OSError:  # a file system without locks
            alone = False
        yield alone
    finally:
        os.close(descriptor)


def _cannot_save(folder: Path, error: OSError) -> BoclError:
    if error.errno in FULL:
        return cannot_write(folder, error)
    return FolderError(f"cannot save to {folder}: {error.strerror}; give another folder")


def _of_earlier_saves(folder: Path) -> tuple[set[str], set[str]]:
    """Return what saves that were killed left, and the weights of the model there; refuse a folder that is not ours."""
    try:
        names = {path.name for path in folder.iterdir()}
        left = {name for name in names if _UNFINISHED.fullmatch(name) or _is_weights(folder / name)}
    except OSError as error:
        raise _cannot_save(folder, error) from error
    if left == names:
        return left, set()
    try:
        used = {_read_model(folder)["weights"]["file"]}
    except FolderError as error:
        raise FolderError(
            f"cannot save to {folder}: it holds something else than a model of bocl ({error}); give a new folder"
        ) from error
    return left - used, used


def _is_weights(path: Path) -> bool:
    """Whether a file is weights, whole: their name is their own hash. A save that is killed may leave them unused."""
    if not _WEIGHTS.fullmatch(path.name) or not path.is_file():
        return False
    return path.name == _weights_name(hashlib.sha256(path.read_bytes()).hexdigest())


def _weights_name(digest: str) -> str:
    return f"weights-{digest[:16]}.safetensors"


def _seal(model: Mapping[str, Any]) -> str:
    """Return the sha256 of all that model.json holds, as canonical JSON, but the seal itself."""
    content = {name: value for name, value in model.items() if name != "sha256"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


# Reading.


@usual_surroundings()
def load(
    folder: str | Path, *, device: str | torch.device = "auto", network: nn.Module | None = None, **options: Any
) -> Any:
    """Rebuild a learner from its folder; it predicts the same bits and can learn further tasks.

    folder   of ``save``, or of a run, whose last checkpoint is taken
    network  of a learner that grows by low-rank factors: a module of the same code, if it is not one of bocl's own. Its
             weights come from the folder
    options  what a save cannot hold, such as BOCL's ``searcher``
    """
    resolve_device(device)  # a mistake of the caller is raised before, and apart from, what is wrong with the folder
    folder = _last_checkpoint(Path(folder))
    ((whole, model), *_) = _read_models(folder)
    path = folder / _FILE
    if model["method"] not in METHODS:
        raise FolderError(
            f"{whole / _FILE} is of an unknown method {_show(model['method'])}" + did_you_mean(model["method"], METHODS)
        )
    kind = METHODS[model["method"]].load()
    _check_options(kind, options)
    model, tensors = _read_both(folder)
    saved = tensors.pop(_MADE_UP, None)
    try:
        settings = _parse_settings(kind, model["settings"])
        held = network_in(model["graph"])
    except SENSELESS as error:
        raise _unreadable(path, error) from error
    graph = network_of(held, settings, network, resolve_device(device), path)
    try:
        method: Learner = kind(graph, device=device, **settings)
    except SENSELESS as error:
        raise _unreadable(path, error) from error
    if options:  # made again, so that a wrong option is raised as the caller's mistake
        method = kind(graph, device=device, **settings, **options)
    try:
        state = State(model["facts"], tensors)
        method.check_state(state)
        method.restore(state)
    except SENSELESS as error:
        raise _unreadable(path, error) from error
    if saved is not None:  # models of earlier versions have none
        _check_same_module(method, saved, path)
    return method


def _check_same_module(method: Learner, saved: Tensor, path: Path) -> None:
    """Refuse a module whose tensors have the saved names and shapes, but which computes something else with them."""
    outputs = _made_up_outputs(method)
    if outputs is None or not alike(outputs, saved, _SAME_MODULE):
        kind = method.graph.description.kind if isinstance(method.graph, Backbone) else "network"
        raise InputError(
            f"{path}: this {kind} computes something else than the module that was saved; make it with the same "
            "arguments, such as heads and activations, and with the same buffers, also those that no state dict holds"
        )


def network_json(network: Graph | Backbone) -> dict[str, Any]:
    """Return what a file says of a network, as JSON values."""
    return backbone_to_json(network) if isinstance(network, Backbone) else to_json(network)


def network_in(data: dict[str, Any]) -> Graph | Description:
    """Return what a model says of its network: all of it, or what identifies a module."""
    if "backbone" in data:
        return description_of(data)
    graph = from_json(data)
    check_graph(graph)
    return graph


def network_of(
    about: Graph | Description,
    settings: Mapping[str, Any],
    given: nn.Module | None,
    device: torch.device,
    path: Path,
) -> Graph | Backbone:
    """Return the network that a model is of; a module of the user's own code must be given, and be the same."""
    if isinstance(about, Graph):
        if given is not None:
            raise InputError(f"{path} holds all of its network; leave out network=")
        return about
    if given is None and about.build is None:
        raise InputError(
            f"{path} holds a model that adapts a {about.kind}, whose code is yours; give such a module with network="
        )
    try:
        module = _made_again(about) if given is None else given
        backbone = Backbone(module, settings.get("growth"), device)
    except SENSELESS as error:
        if given is not None:
            raise
        raise _unreadable(path, error) from error
    if backbone.description.tensors != about.tensors or backbone.head != about.head:
        raise InputError(
            f"{path} holds a model that adapts another module: a {about.kind} with {len(about.tensors)} tensors, not "
            f"this {backbone.description.kind} with {len(backbone.description.tensors)}"
        )
    return backbone


def _made_again(about: Description) -> nn.Module:
    """Return the network of bocl's own that a description names."""
    assert about.build is not None
    return make_network(str(about.build["build"]), parse_value(dict[str, Any], about.build["arguments"], "build"))


def check_whole(folder: Path) -> None:
    """Refuse a folder with a model of which a part is missing or damaged; it is not built."""
    _read_both(folder)


def read_state(folder: Path, method: Learner, *, tasks: int) -> State:
    """Return the state a folder holds, for a method made with the same network and settings, after ``tasks`` tasks."""
    way_out = "give another folder with --out, or restore it from a copy"
    try:
        model, tensors = _read_both(folder)
        tensors.pop(_MADE_UP, None)
        if model["method"] != method.name:
            raise FolderError(f"{folder} holds a model of {_show(model['method'])}, not of '{method.name}'")
        if model["graph"] != json.loads(json.dumps(network_json(method.graph))):
            raise FolderError(f"{folder} holds a model of another network")
        try:
            saved = type(method)(method.graph, device="cpu", **_parse_settings(type(method), model["settings"]))
        except SENSELESS as error:
            raise _unreadable(folder / _FILE, error) from error
        if _settings_of(saved) != _settings_of(method):
            raise FolderError(f"{folder} holds a model with other settings")
        state = State(model["facts"], tensors)
        try:
            method.check_state(state)
        except SENSELESS as error:
            raise _unreadable(folder / _FILE, error) from error
        found = len(state.facts["seen"])
        if found != tasks:
            raise FolderError(f"{folder} holds a model that has learnt {found} tasks, not {tasks}")
    except FolderError as error:
        raise FolderError(f"{error}; {way_out}") from error
    return state


def _last_checkpoint(folder: Path) -> Path:
    """Return the folder of a run's last checkpoint, as its journal has it, or the folder itself where it is no run."""
    try:
        if folder.exists() and not folder.is_dir():
            raise FolderError(f"{folder} is a file; give the folder of a model or a run")
        if not (folder / JOURNAL).exists():
            return folder
    except OSError as error:
        raise FolderError(f"{folder} cannot be read: {error.strerror}") from error
    records = read(folder / JOURNAL)
    log = RunLog.of(records, folder / JOURNAL)
    if not log.tasks:
        raise FolderError(f"{log.path} has no finished task, so there is no model yet; run it again to resume")
    try:
        check_checkpoint(folder, log)
    except DamagedError:
        if len(read(log.path)) == len(records):
            raise
        return _last_checkpoint(folder)  # the run went on between the two looks
    return folder / log.checkpoint


def _read_models(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Return the folders that a model is spread over, and what model.json holds in each; the first one is whole."""
    found = [(folder, _read_model(folder))]
    while "before" in found[0][1]:
        path, model = found[0]
        beside = path.parent / model["before"]["folder"]
        found.insert(0, (beside, _read_model(beside, model["before"]["sha256"])))
    return found


def _read_model(folder: Path, sha256: str | None = None) -> dict[str, Any]:
    """Return what model.json holds once its format, its seal and the kind of its entries are right.

    sha256  that the file must have
    """
    path = folder / _FILE
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FolderError(f"{path} cannot be a model: it has more than {MOST_BYTES:,} bytes")
        with open_file(path) as stream:
            data = stream.read()
        if sha256 not in (None, hashlib.sha256(data).hexdigest()):
            raise FolderError(f"{path} is damaged: its hash is not the one in the model that adds to it")
        model = json.loads(data)
        if not isinstance(model, dict) or "format" not in model:
            raise FolderError(f"{path} cannot be read as a model: it is not a table with a format")
        if type(model["format"]) is not int or not 1 <= model["format"] <= FORMAT:
            shown = _show(model["format"])
            raise FolderError(f"{path} has format {shown}; this version of bocl reads formats 1 to {FORMAT}, a number")
        added = "before" in model
        missing = [name for name in (_ADDED_PARTS if added else _PARTS) if name not in model]
        if missing:
            raise FolderError(f"{path} cannot be read as a model: it lacks {', '.join(missing)}")
        if model["sha256"] != _seal(model):
            raise FolderError(f"{path} was edited or damaged: its content does not have the sha256 it names")
        if added:
            before = parse_value(dict[str, str], model["before"], "before")
            parse_value(Sha256, before["sha256"], "before.sha256")
            if not _BESIDE.fullmatch(before["folder"]):
                raise ValueError(f"before.folder is {_show(before['folder'])}, which is no name of a checkpoint")
        else:
            parse_value(str, model["method"], "method")
        for name in ("facts",) if added else ("settings", "graph", "facts"):
            parse_value(dict[str, Any], model[name], name)
        weights = parse_value(dict[str, str], model["weights"], "weights")
        if weights["file"] != _weights_name(weights["sha256"]) or not _WEIGHTS.fullmatch(weights["file"]):
            raise ValueError(f"weights.file is {_show(weights['file'])}, which is not the name of its weights")
        model = model if added else upgrade(model)
    except FileNotFoundError:
        raise FolderError(f"{folder} holds no model: there is no {_FILE} in it, nor the {JOURNAL} of a run") from None
    except OSError as error:
        raise FolderError(f"{path} cannot be read: {error.strerror}") from error
    except FolderError:
        raise
    except SENSELESS as error:
        raise _unreadable(path, error) from error
    return model


def _read_both(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what model.json would hold if the model were not spread over several folders, and all its tensors."""
    while True:
        models = _read_models(folder)
        with suppress(FolderError):
            return _joined(models)
        # Perhaps a save replaced the model between the two looks. If it is the same one, its weights must be there now.
        if _read_models(folder) == models:
            return _joined(models)


def _joined(models: Sequence[tuple[Path, dict[str, Any]]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return one model and its tensors. A list among the facts goes on in the next part; else what is later counts."""
    facts: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    for folder, model in models:
        for name, value in model["facts"].items():
            goes_on = isinstance(value, list) and isinstance(facts.get(name), list)
            facts[name] = [*facts[name], *value] if goes_on else value
        tensors |= _read_tensors(folder, model)
    return {**models[0][1], "facts": facts}, tensors


def _read_tensors(folder: Path, model: Mapping[str, Any]) -> dict[str, Any]:
    file = folder / model["weights"]["file"]
    try:
        with open_file(file) as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != model["weights"]["sha256"]:
                raise FolderError(f"{file} is damaged: its hash is not the one in {_FILE}")
            stream.seek(0)  # what has another hash is not taken into memory
            return unpack(stream.read(), file)
    except OSError as error:
        raise FolderError(f"{file} cannot be read: {error.strerror}") from error


def _unreadable(path: Path, error: BaseException) -> FolderError:
    return FolderError(f"{path} cannot be read as a model: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    return " ".join(str(error).split())


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


# Settings.


def _settings(kind: type[Any]) -> dict[str, Any]:
    """Return {name: type} of a method's settings: its keyword arguments but those no file can hold."""
    hints = get_type_hints(kind.__init__)
    return {name: hints[name] for name in _keywords(kind) if name not in _NOT_SETTINGS}


def _keywords(kind: type[Any]) -> list[str]:
    parameters = inspect.signature(kind).parameters
    return [name for name, parameter in parameters.items() if parameter.kind is parameter.KEYWORD_ONLY]


def _settings_of(method: Learner) -> dict[str, Any]:
    return {name: to_plain(getattr(method, name)) for name in _settings(type(method))}


def _parse_settings(kind: type[Any], saved: Mapping[str, Any]) -> dict[str, Any]:
    hints = _settings(kind)
    for name in saved:
        if name not in hints:
            raise ValueError(f"unknown setting {_show(name)}" + did_you_mean(name, hints))
    return {name: parse_value(hints[name], value, f"settings.{name}") for name, value in saved.items()}


def _check_options(kind: type[Any], options: Mapping[str, Any]) -> None:
    """Refuse an option of ``load`` that the method does not take, or that its folder holds."""
    known = [name for name in _keywords(kind) if name in _NOT_SAVED]
    for name in options:
        if name in _keywords(kind) and name not in known:
            raise InputError(f"load() takes no option '{name}': it comes from the folder")
        if name not in known:
            raise InputError(f"load() has no option '{name}' for method '{kind.name}'" + did_you_mean(name, known))
