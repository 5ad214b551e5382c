"""Names → objects: the only factory."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeVar

import torch
from torch import nn

from bocl.checks import exceeds_memory
from bocl.errors import BoclError, ConfigError, InputError, NetworkError, did_you_mean
from bocl.experiment.config import OWN_NETWORK, Config, NetworkSettings, StreamSettings
from bocl.method_table import METHODS
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learner
from bocl.networks.graph import Graph
from bocl.networks.growing import Base, groups_in_words, grows_in, pretrained_base
from bocl.networks.library import NETWORKS, make_network
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.published import PUBLISHED, find_weights, load_weights
from bocl.networks.trace import trace
from bocl.records.prior_trials import read_prior_trials
from bocl.seeding import seed_for
from bocl.tasks.arrays import from_arrays
from bocl.tasks.entries import Entry, find_entries
from bocl.tasks.entry_stream import EntryStream
from bocl.tasks.files import search_folders
from bocl.tasks.own import Cuts
from bocl.tasks.streams import STREAMS
from bocl.tasks.task import FirstTasks, Rescaled, TaskStream
from bocl.tasks.texts import read_tokenizer
from bocl.training.device import resolve_device
from bocl.wording import counted, shown

__all__ = ["NETWORKS", "PUBLISHED", "groups_in_words", "grows_in"]  # for the commands
Built = TypeVar("Built")


def build_stream(config: Config, data: str | None = None) -> TaskStream:
    """Return the stream of tasks; its seed follows from the run's, so every method of a seed sees the same tasks."""
    search_folders(data)  # a folder that is given must exist, even if the stream needs no files
    settings, seed = config.stream, seed_for(config.seed, "stream")
    stream: TaskStream
    if settings.name in STREAMS:
        make: Any = STREAMS[settings.name]
        options = {} if settings.name == "permuted-digits" else {"data": data}
        try:
            inspect.signature(make).bind(tasks=settings.tasks, seed=seed, **options, **settings.arguments)
        except TypeError as error:
            raise ConfigError(f"stream.arguments: {settings.name} {error}") from error
        stream = make(tasks=settings.tasks, seed=seed, **options, **settings.arguments)
    elif settings.is_code:
        stream = _own_stream(settings, seed)
    else:
        entries = find_entries(data or settings.name)
        stream = stream_of_entries(config, entries[: settings.tasks])
    if settings.tasks is not None and len(stream) < settings.tasks:
        raise ConfigError(f"stream.tasks is {settings.tasks}, but {settings.name} has {counted(len(stream), 'task')}")
    if settings.mean is not None and settings.std is not None:
        return Rescaled(stream, _each(settings.mean), _each(settings.std))
    return stream


def _each(values: float | tuple[float, ...]) -> tuple[float, ...]:
    return values if isinstance(values, tuple) else (values,)


def stream_of_entries(config: Config, entries: Sequence[Entry]) -> EntryStream:
    """Return the stream of the user's own files and folders, cut into parts by the settings of a run."""
    settings = config.stream
    seed = seed_for(config.seed, "stream")
    cuts = Cuts(settings.validation, settings.test, seed=seed, class_weight=settings.class_weight)
    text = None
    if settings.text is not None:
        named = settings.tokenizer or config.network.weights
        if named is None:
            raise ConfigError("stream.text names a column of texts; name their tokenizer with stream.tokenizer")
        folders = search_folders(None)
        how = read_tokenizer(named, settings.length, truncate=settings.truncate, folders=folders)
        text = (settings.text, how)
    return EntryStream(entries, cuts, label=settings.label, standardise=settings.standardise, text=text)


def _own_stream(settings: StreamSettings, seed: int) -> TaskStream:
    """Return what the user's function makes: a stream, or a list of pairs (X, y)."""
    function = import_function(settings.name, "stream")
    wants_seed = "seed" in inspect.signature(function).parameters and "seed" not in settings.arguments
    try:
        made = function(**settings.arguments, **({"seed": seed} if wants_seed else {}))
    except BoclError:
        raise
    except (Exception, SystemExit) as error:  # the user's function may fail in any way
        raise ConfigError(f"stream: {settings.name} failed: {_first_line(error)} (set stream.arguments)") from error
    if isinstance(made, list | tuple):
        made = from_arrays(
            made,
            validation=settings.validation,
            test_fraction=settings.test,
            standardise=bool(settings.standardise),
            class_weight=settings.class_weight,
            seed=seed,
        )
    if not all(hasattr(made, name) for name in ("__len__", "__getitem__", "test_split", "fingerprint")):
        raise ConfigError(
            f"stream: what {settings.name} returns must be a stream, such as that of bocl.from_arrays, or a list of "
            f"pairs (X, y), not {type(made).__name__}: {shown(made)}"
        )
    stream: TaskStream = made
    return stream if settings.tasks is None else FirstTasks(stream, settings.tasks)


def build_base(config: Config, data: str | None = None, device: str = "cpu") -> Base:
    """Return what tasks grow from: the shape of the network, or where its weights are kept, all of it."""
    settings = config.network
    if not settings.keeps_weights:
        return build_network(settings)
    return _pretrained_base(build_pretrained(settings, data), config, device)


def _pretrained_base(module: nn.Module, config: Config, device: str) -> Base:
    """Return a trained module as what the method of a config starts from."""
    if _takes_whole(config):
        return Backbone(module, None, resolve_device(device))
    return pretrained_base(module, config.growth, resolve_device(device))


def _takes_whole(config: Config) -> bool:
    kind: type[Learner] = METHODS[config.method].load()
    return kind.takes_whole


def pretrained(name: str, data: str | None = None, **arguments: Any) -> nn.Module:
    """Return a network with its published weights, which `bocl list` names: ``bocl.pretrained("efficientnet-lite0")``.

    data       a folder that holds the package of the weights; it is looked for where it is installed, too
    arguments  of the network: ``size=96``
    """
    if name not in PUBLISHED:
        raise ConfigError(f"there are no weights '{name}'{did_you_mean(name, PUBLISHED)}")
    return build_pretrained(NetworkSettings(PUBLISHED[name].build, arguments, weights=name), data)


def base_of(module: nn.Module, config: Config, device: str) -> Base:
    """Return what tasks grow from, for a module that was given as an object."""
    if config.network.keeps_weights:
        return _pretrained_base(module, config, device)
    return trace(module)


def module_to_load(config: Config, *, trust: bool, given: nn.Module | None = None) -> nn.Module | None:
    """Return the module that a saved learner adapts or copies; None where it can be made without the user.

    trust  whether a function of the user's may be run
    given  the module itself, where a run was given an object
    """
    settings = config.network
    needed = settings.keeps_weights and (config.growth.form == "low-rank" or _takes_whole(config))
    if not needed or settings.build in NETWORKS:
        return None
    if settings.build == OWN_NETWORK and given is None:
        raise InputError("the run adapts a module that was given as an object; give it again, with network=")
    if settings.build != OWN_NETWORK and not trust:
        raise InputError(f"the run adapts a module that is made by {settings.build}, which --trust lets run")
    return given if settings.build == OWN_NETWORK else _built(settings, lambda: _module(settings))


def build_pretrained(settings: NetworkSettings, data: str | None = None) -> nn.Module:
    """Return the network with its weights: those that are named, or those its function gave it."""
    module = _built(settings, lambda: _with_memory(settings) if settings.build in NETWORKS else _module(settings))
    if settings.weights is not None:
        if settings.weights in PUBLISHED and settings.build != PUBLISHED[settings.weights].build:
            raise ConfigError(
                f"network.weights is '{settings.weights}', which are weights of {PUBLISHED[settings.weights].build}; "
                f"network.build is {settings.build}"
            )
        found = find_weights(settings.weights, settings.sha256, search_folders(data), settings.build)
        load_weights(module, found, settings.weights)
    return module


def build_network(settings: NetworkSettings) -> Graph:
    """Call the network's function and trace what it returns. A function of the user's is code that is run here."""
    return _built(
        settings,
        lambda: trace(_without_memory(settings) if settings.build in NETWORKS else _module(settings)),
    )


def _built(settings: NetworkSettings, build: Callable[[], Built]) -> Built:
    """Build a network, and say in one line what went wrong in the user's function."""
    try:
        return build()
    except BoclError:
        raise
    except (Exception, SystemExit) as error:  # the user's function may fail in any way
        given = ", ".join(f"{name}={value!r}" for name, value in settings.arguments.items())
        late = isinstance(error, ModuleNotFoundError)
        way_out = "import it at the top of its module" if late else "set network.arguments"
        raise ConfigError(f"network: {settings.build}({given}) failed: {_first_line(error)} ({way_out})") from error


def module_of(settings: NetworkSettings) -> str | None:
    """Return the module that a network's function is imported from, None for a network of ours."""
    if settings.build in NETWORKS:
        return None
    module_name, colon, name = settings.build.partition(":")
    if not (colon and module_name and name):
        raise ConfigError(
            f"network: unknown network '{settings.build}'{did_you_mean(settings.build, NETWORKS)}; "
            "your own is package.module:function"
        )
    return module_name


def _with_memory(settings: NetworkSettings) -> nn.Module:
    """Make a network by name, once it is known that memory holds it."""
    _without_memory(settings)
    return make_network(settings.build, settings.arguments)


def _without_memory(settings: NetworkSettings) -> nn.Module:
    """Make a network by name without its weights, which are not used, and refuse one that memory cannot hold."""
    with torch.device("meta"):
        module = NETWORKS[settings.build](**settings.arguments)
    if excess := exceeds_memory(sum(tensor.nbytes for tensor in module.parameters())):
        raise ConfigError(f"network: {settings.build} takes {excess}; set smaller network.arguments")
    return module


def build_method(config: Config, network: Base, device: str = "auto") -> Learner:
    """Return the method a config names, ready for its first task.

    A method takes the sections of the config that its constructor names, and its own as ``settings``.
    """
    if config.stream.tasks is None and (config.goal.total_budget is not None or config.fixed.budget is not None):
        raise ConfigError("a budget for all tasks is spread over them; give their number with stream.tasks")
    entry = METHODS[config.method]
    kind = entry.load()
    takes = inspect.signature(kind).parameters
    given = {
        "settings": getattr(config, entry.name, None),
        "growth": config.growth,
        "search": config.search,
        "reward": config.reward,
        "goal": config.goal,
        "guess": config.guess,
        **({} if config.stream.tasks is None else {"tasks": config.stream.tasks}),
        "recipe": config.recipe,
        "seed": seed_for(config.seed, "method"),
        "device": device,
        "pretrained": config.network.keeps_weights,
    }
    if config.network.keeps_weights and "pretrained" not in takes:
        raise NetworkError(f"{entry.name} trains a network from its beginning; leave out network.weights")
    if config.guess != GuessSettings() and "guess" not in takes:
        raise ConfigError(f"{entry.name} does not guess tasks; leave out guess, or let its constructor take it")
    if "prior_trials" in takes and config.prior_trials is not None:
        groups = [group.name for group in grows_in(network).groups]
        given["prior_trials"] = read_prior_trials(config.prior_trials, groups)
    learner: Learner = kind(network, **{name: value for name, value in given.items() if name in takes})
    return learner


def _module(settings: NetworkSettings) -> nn.Module:
    """Return what the user's function makes, if it is a module."""
    module_of(settings)  # refuses what names no function
    made = import_function(settings.build, "network")(**settings.arguments)
    if not isinstance(made, nn.Module):
        raise NetworkError(
            f"network: what {settings.build} returns must be an nn.Module, not {type(made).__name__}: {shown(made)}; "
            "name another function"
        )
    return made


def import_function(path: str, what: str) -> Callable[..., Any]:
    """Return the function that ``package.module:function`` names; ``what`` it makes is said in messages."""
    module_name, _, name = path.partition(":")
    try:
        module = _import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module may fail in any way
        raise ConfigError(f"{what}: cannot import '{module_name}': {_first_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [entry for entry in vars(module) if not entry.startswith("_")]
        raise ConfigError(f"{what}: '{module_name}' has no function '{name}'{did_you_mean(name, names)}")
    return function  # type: ignore[no-any-return]


def _import_module(name: str) -> ModuleType:
    """Import a module of the user's; one that is not installed is looked for in the current folder.

    Only while it is imported, not while its function runs: torch imports optional packages when it first needs them,
    and must not find files of the same name there.
    """
    if name in sys.modules or find_spec(name.partition(".")[0]) is not None:
        return importlib.import_module(name)
    added = {os.getcwd()} - {*sys.path}
    sys.path += added  # at the end, where it hides nothing
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = [place for place in sys.path if place not in added]


def _first_line(error: BaseException) -> str:
    """Say in one line what went wrong in code that is not ours."""
    line, name = str(error).strip().partition("\n")[0], type(error).__name__
    return line if line and isinstance(error, TypeError | ValueError) else f"{name}: {line}" if line else name
