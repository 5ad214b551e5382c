"""Names → objects: the only factory."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch
from torch import nn

from bocl.checks import exceeds_memory
from bocl.errors import BoclError, ConfigError, NetworkError, did_you_mean
from bocl.experiment.config import Config, NetworkSettings
from bocl.method_table import METHODS
from bocl.methods.method import Learner
from bocl.networks.architectures import lenet, mlp, resnet
from bocl.networks.graph import Graph
from bocl.networks.trace import trace
from bocl.records.prior_trials import read_prior_trials
from bocl.seeding import seed_for
from bocl.tasks.files import search_folders
from bocl.tasks.streams import STREAMS
from bocl.tasks.task import TaskStream
from bocl.wording import shown

NETWORKS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp, "lenet": lenet, "resnet": resnet}


def build_stream(config: Config, data: str | None = None) -> TaskStream:
    """Return the stream of tasks; its seed follows from the run's, so every method of a seed sees the same tasks."""
    search_folders(data)  # a folder that is given must exist, even if the stream needs no files
    make: Any = STREAMS[config.stream.name]
    options = {} if config.stream.name == "permuted-digits" else {"data": data}
    stream: TaskStream = make(tasks=config.stream.tasks, seed=seed_for(config.seed, "stream"), **options)
    return stream


def build_network(settings: NetworkSettings) -> Graph:
    """Call the network's function and trace what it returns. A function of the user's is code that is run here."""
    try:
        if settings.build in NETWORKS:
            return trace(_without_memory(settings))
        return trace(_module(settings))
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


def _without_memory(settings: NetworkSettings) -> nn.Module:
    """Make a network by name without its weights, which are not used, and refuse one that memory cannot hold."""
    with torch.device("meta"):
        module = NETWORKS[settings.build](**settings.arguments)
    if excess := exceeds_memory(sum(tensor.nbytes for tensor in module.parameters())):
        raise ConfigError(f"network: {settings.build} takes {excess}; set smaller network.arguments")
    return module


def build_method(config: Config, graph: Graph, device: str = "auto") -> Learner:
    """Return the method a config names, ready for its first task.

    A method takes the sections of the config that its constructor names, and its own as ``settings``.
    """
    entry = METHODS[config.method]
    kind = entry.load()
    takes = inspect.signature(kind).parameters
    given = {
        "settings": getattr(config, entry.name, None),
        "growth": config.growth,
        "search": config.search,
        "reward": config.reward,
        "goal": config.goal,
        "tasks": config.stream.tasks,
        "recipe": config.recipe,
        "seed": seed_for(config.seed, "method"),
        "device": device,
    }
    if "prior_trials" in takes and config.prior_trials is not None:
        given["prior_trials"] = read_prior_trials(config.prior_trials, [group.name for group in graph.groups])
    learner: Learner = kind(graph, **{name: value for name, value in given.items() if name in takes})
    return learner


def _module(settings: NetworkSettings) -> nn.Module:
    """Return what the user's function makes, if it is a module."""
    made = _import(settings)(**settings.arguments)
    if not isinstance(made, nn.Module):
        raise NetworkError(
            f"network: what {settings.build} returns must be an nn.Module, not {type(made).__name__}: {shown(made)}; "
            "name another function"
        )
    return made


def _import(settings: NetworkSettings) -> Callable[..., Any]:
    """Return the function that ``package.module:function`` names."""
    module_name, name = module_of(settings), settings.build.partition(":")[2]
    assert module_name is not None
    try:
        module = _import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module may fail in any way
        raise ConfigError(f"network: cannot import '{module_name}': {_first_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [entry for entry in vars(module) if not entry.startswith("_")]
        raise ConfigError(f"network: '{module_name}' has no function '{name}'{did_you_mean(name, names)}")
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
