"""The settings of a run, those of every part in one tree. Presets and config files are TOML."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from bocl.checks import Natural, Number, OneOrEach, Positive, PositiveInt, section
from bocl.errors import ConfigError, did_you_mean
from bocl.method_table import METHODS
from bocl.methods.budget import GoalSettings
from bocl.methods.guessing import GuessSettings
from bocl.methods.reward import RewardSettings
from bocl.networks.growth import GrowthSettings
from bocl.records.record import Sha256
from bocl.search.settings import SearchSettings
from bocl.settings import apply_overrides, parse, read_toml
from bocl.tasks.own import PartFraction
from bocl.tasks.streams import STREAMS
from bocl.tasks.texts import Length
from bocl.training.recipe import Recipe

TASKS = 5  # of a stream of ours, unless a number is given
OWN_STREAM = "own stream"  # the name of one that was given as an object
OWN_NETWORK = "own network"  # that of a network that was given as a module
DEFAULT_PRESET = "digits"
MOST_TASKS = 10_000
MOST_SEED = 2**63 - 1  # TOML's largest integer
MOST_NAME = 200  # bytes of a folder's name; file systems take 255, with what is added to it
if TYPE_CHECKING:
    MethodName = str
else:
    MethodName = Literal[tuple(METHODS)]


@section("stream")
@dataclass(frozen=True)
class StreamSettings:
    """Which tasks, and how many of them.

    name          a stream that `bocl list` shows; a folder with an entry per task; or your own
                  ``package.module:function``, which returns a stream: a config is code
    tasks         how many; if left out, 5 of a stream of ours, and all of your own
    arguments     of your own function, or of a stream of ours
    label         column of labels in your tables and datasets; `label` if left out
    standardise   whether your floats are scaled to 0 ± 1; if left out, those of tables are
    validation    fraction of your samples without the test part that is set aside, where you give no such part
    test          fraction of your samples that is set aside, where you give no such part
    class_weight  `balanced` lets your classes count the same in training, however many samples each has
    text          column of texts in your tables, which become token ids
    tokenizer     of texts: the path of a tokenizer.json, or the name of published weights
    length        most tokens of a text
    truncate      whether longer texts are cut off; otherwise they are refused
    mean, std     how bytes are scaled, (x / 255 - mean) / std, as a pretrained network expects: one value, or one per
                  channel; if left out, by the statistics of the samples themselves
    """

    name: str = "permuted-digits"
    tasks: Annotated[PositiveInt, Field(le=MOST_TASKS)] | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    label: str | None = None
    standardise: bool | None = None
    validation: PartFraction = 0.1
    test: PartFraction = 0.2
    class_weight: Literal["balanced"] | None = None
    text: str | None = None
    tokenizer: str | None = None
    length: Length = 128
    truncate: bool = False
    mean: OneOrEach[Number] | None = None
    std: OneOrEach[Positive] | None = None

    def __post_init__(self) -> None:
        if (self.mean is None) != (self.std is None):
            raise ConfigError("stream.mean and stream.std belong together; give both, or neither")
        if self.tasks is None and self.name in STREAMS:
            object.__setattr__(self, "tasks", TASKS)

    @property
    def is_code(self) -> bool:
        """Whether it is a function of the user's."""
        return self.name not in STREAMS and ":" in self.name


@section("network")
@dataclass(frozen=True)
class NetworkSettings:
    """The base network: one that `bocl list` shows, or your own ``package.module:function``; and its arguments.

    Building a network of your own imports the module and calls the function: a config is code.

    weights     pretrained weights: a name that `bocl list` shows, or the path of a file of tensors (.safetensors, .pth)
    sha256      that the file of weights must have; those with a name have their own
    pretrained  whether the weights are kept that your function gives the network
    """

    build: str = "mlp"
    arguments: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    sha256: Sha256 | None = None
    pretrained: bool = False

    @property
    def keeps_weights(self) -> bool:
        """Whether tasks grow from a network that was trained before."""
        return self.pretrained or self.weights is not None


@dataclass(frozen=True)
class RunSettings:
    """One run; ``Config`` adds a section for every method with settings of its own, by its name.

    prior_trials  a file made by `bocl trials`: what searches of other runs tried, for those of this one (method `bocl`)
    test_curve    whether children that were the best of their search so far are scored on the test split when the task
                  is learnt: accuracy against trials, only for the record
    """

    method: MethodName = "bocl"
    seed: Annotated[Natural, Field(le=MOST_SEED)] = 0
    prior_trials: str | None = None
    test_curve: bool = False
    stream: StreamSettings = field(default_factory=StreamSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    recipe: Recipe = field(default_factory=Recipe)
    growth: GrowthSettings = field(default_factory=GrowthSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    reward: RewardSettings = field(default_factory=RewardSettings)
    goal: GoalSettings = field(default_factory=GoalSettings)
    guess: GuessSettings = field(default_factory=GuessSettings)


def _own_settings() -> list[tuple[str, Any, Any]]:
    """Return a field for the settings of every method that has some."""
    kinds = {entry.name: entry.load_settings() for entry in METHODS.values() if entry.settings}
    return [(name, kind, field(default_factory=kind)) for name, kind in kinds.items()]


if TYPE_CHECKING:

    class Config(RunSettings):
        """One run, with a section for every method that has settings of its own."""

        def __getattr__(self, section: str) -> Any:
            """Return the settings of a method, by its name."""

else:
    Config = section("")(make_dataclass("Config", _own_settings(), bases=(RunSettings,), frozen=True))


def presets() -> dict[str, str]:
    """Return the shipped presets: name → the first comment line of its file, which says what it is for."""
    files = [file for file in resources.files("bocl.presets").iterdir() if file.name.endswith(".toml")]
    texts = {file.name.removesuffix(".toml"): file.read_text(encoding="utf-8") for file in files}
    return {name: texts[name].splitlines()[0].lstrip("# ") for name in sorted(texts)}


def load_config(source: str | None = None, overrides: Sequence[str] = ()) -> Config:
    """Read a preset by name or a TOML file by path, apply ``a.b=c`` overrides, and check everything at once."""
    name = DEFAULT_PRESET if source is None else source
    if _is_path(name):
        data = read_toml(name)
    elif name in presets():
        with resources.as_file(resources.files("bocl.presets") / f"{name}.toml") as path:
            data = read_toml(path)
    else:
        raise ConfigError(
            f"unknown preset '{name}'{did_you_mean(name, presets())}; a config file is named by its path, *.toml"
        )
    data = _names_as_tables(data)
    for override in overrides:  # one by one: a later one may set arguments of a network an earlier one names
        data = _names_as_tables(apply_overrides(data, [override]))
    config = parse(Config, data, name)
    stream = config.stream.name
    if stream not in STREAMS and ":" not in stream and "/" not in stream and not os.path.isdir(stream):
        raise ConfigError(
            f"stream.name is '{stream}'{did_you_mean(stream, STREAMS)}; your own is a folder with an entry per task, "
            "or package.module:function"
        )
    return config


def config_with(overrides: Sequence[str], base: Mapping[str, Any] | None = None) -> Config:
    """Return the settings of ``base``, else the defaults, with ``a.b=c`` overrides."""
    data: dict[str, object] = dict(base or {})
    for override in overrides:
        data = _names_as_tables(apply_overrides(data, [override]))
    return parse(Config, data, "the settings")


def _is_path(source: str) -> bool:
    return source.endswith(".toml") or "/" in source


def _names_as_tables(data: dict[str, object]) -> dict[str, object]:
    """Let ``network = "lenet"`` stand for ``network.build = "lenet"``, and ``stream = "folder"`` for its name."""
    keys = {"network": "build", "stream": "name"}
    short = {name: {key: data[name]} for name, key in keys.items() if isinstance(data.get(name), str)}
    return {**data, **short}


def folder_name(source: str) -> str:
    """Name the folder of the runs of a preset, or of a config file, which may lie anywhere."""
    name = Path(source).stem if _is_path(source) else source
    if problem := unfit_for_folder(name):
        raise ConfigError(f"{source}: '{name}' {problem}, so no folder can be called so; rename the file")
    return name


def unfit_for_folder(name: str) -> str | None:
    """Say why a name is not that of one folder inside another, or return None."""
    if name in ("", ".", ".."):
        return "stands for another folder" if name else "is empty"
    if "/" in name or "\\" in name:
        return "is a path"
    if not name.isprintable():
        return "holds characters that cannot be printed"
    if len(name.encode()) > MOST_NAME:
        return f"has more than {MOST_NAME} bytes"
    return None


def run_name(method: MethodName, seed: int) -> str:
    """Name a run's folder after what tells it apart in a grid."""
    return f"{method}-seed{seed}"
