"""Names → objects: the only factory."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from bocl.checks import beyond_memory
from bocl.errors import BoclError, ConfigError, did_you_mean
from bocl.experiment.config import Config, NetworkSettings
from bocl.methods.bocl import BOCL
from bocl.methods.den import DEN
from bocl.methods.ewc import EWC
from bocl.methods.fixed import Fixed
from bocl.methods.frozen import Frozen
from bocl.methods.gem import GEM
from bocl.methods.independent import Independent
from bocl.methods.joint import Joint
from bocl.methods.method import Method
from bocl.methods.pgn import PGN
from bocl.methods.rcl import RCL
from bocl.methods.sn import SN
from bocl.networks.architectures import lenet, mlp, resnet
from bocl.networks.graph import Graph
from bocl.networks.trace import trace
from bocl.records.experience_file import read_memory
from bocl.seeding import seed_for
from bocl.tasks.files import search_folders
from bocl.tasks.streams import STREAMS
from bocl.tasks.task import TaskStream

NETWORKS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp, "lenet": lenet, "resnet": resnet}


def build_stream(config: Config, data: str | None = None) -> TaskStream:
    """Return the stream of tasks; its seed follows from the run's, so every method of a seed sees the same tasks."""
    search_folders(data)  # a folder that was asked for must exist, also where the stream needs no files
    make: Any = STREAMS[config.stream.name]
    options = {} if config.stream.name == "permuted-digits" else {"data": data}
    stream: TaskStream = make(tasks=config.stream.tasks, seed=seed_for(config.seed, "stream"), **options)
    return stream


def build_network(settings: NetworkSettings) -> Graph:
    """Call the network's function and trace what it returns."""
    try:
        if settings.build in NETWORKS:
            return trace(_without_memory(settings))
        return trace(_import(settings.build)(**settings.arguments))
    except BoclError:
        raise
    except (Exception, SystemExit) as error:  # the user's function may fail in any way
        given = ", ".join(f"{name}={value!r}" for name, value in settings.arguments.items())
        raise ConfigError(
            f"network: {settings.build}({given}) failed: {_first_line(error)} (set network.arguments)"
        ) from error


def _without_memory(settings: NetworkSettings) -> nn.Module:
    """Make a network by name as shapes alone, which is all that is used, and refuse one that memory cannot hold."""
    with torch.device("meta"):
        module = NETWORKS[settings.build](**settings.arguments)
    if excess := beyond_memory(sum(tensor.nbytes for tensor in module.parameters())):
        raise ConfigError(f"network: {settings.build} takes {excess}; set smaller network.arguments")
    return module


def build_method(config: Config, graph: Graph, device: str = "auto") -> Method:
    """Return the method a config names, ready for its first task."""
    common: dict[str, Any] = {
        "recipe": config.recipe,
        "seed": seed_for(config.seed, "method"),
        "device": device,
    }
    goal: dict[str, Any] = {"goal": config.goal, "tasks": config.stream.tasks}
    match config.method:
        case "bocl":
            groups = [group.name for group in graph.groups]
            memory = () if config.memory is None else read_memory(config.memory, groups)
            searched: dict[str, Any] = {"search": config.search, "reward": config.reward, "memory": memory}
            return BOCL(graph, growth=config.growth, **searched, **goal, **common)
        case "rcl":
            return RCL(
                graph,
                controller=config.rcl.controller,
                trials=config.rcl.trials,
                bounds=config.search.bounds,
                memory_gb=config.search.memory_gb,
                children_at_once=config.search.children_at_once,
                wiring=config.growth.wiring,
                alpha=config.reward.alpha,
                **goal,
                **common,
            )
        case "fixed":
            return Fixed(
                graph,
                widths=config.fixed.widths,
                budget=config.fixed.budget,
                children=config.fixed.children,
                tasks=config.stream.tasks,
                growth=config.growth,
                **common,
            )
        case "frozen":
            return Frozen(graph, growth=config.growth, **common)
        case "sn":
            return SN(graph, shared_head=config.sn.shared_head, **common)
        case "ewc":
            return EWC(graph, settings=config.ewc, **common)
        case "gem":
            return GEM(graph, settings=config.gem, **common)
        case "independent":
            return Independent(graph, **common)
        case "joint":
            return Joint(graph, **common)
        case "pgn":
            return PGN(graph, settings=config.pgn, **common)
        case "den":
            return DEN(graph, settings=config.den, **common)


def _import(path: str) -> Callable[..., nn.Module]:
    """Return the function that ``package.module:function`` names."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise ConfigError(
            f"network: unknown network '{path}'{did_you_mean(path, NETWORKS)}; your own is package.module:function"
        )
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # the user's module may fail in any way
        raise ConfigError(f"network: cannot import '{module_name}': {_first_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        names = [entry for entry in vars(module) if not entry.startswith("_")]
        raise ConfigError(f"network: '{module_name}' has no function '{name}'{did_you_mean(name, names)}")
    return function  # type: ignore[no-any-return]


def _first_line(error: BaseException) -> str:
    """Say in one line what went wrong in code that is not ours."""
    lines = str(error).strip().splitlines()
    name = type(error).__name__
    return lines[0] if lines and isinstance(error, TypeError | ValueError) else f"{name}: {lines[0]}" if lines else name
