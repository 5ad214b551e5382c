"""Configs that are wrong in every way: TOML files, and ``--set``."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from fuzzing import call, cases, judge, untouched
from hypothesis import example, given
from hypothesis import strategies as st

from bocl.experiment.config import Config


def paths_of(kind: type[Any], before: str = "") -> list[str]:
    """Return the dotted name of every setting and every table of settings."""
    hints = get_type_hints(kind)
    found = []
    for field in fields(kind):
        path = f"{before}{field.name}"
        found += [path, *(paths_of(hints[field.name], f"{path}.") if is_dataclass(hints[field.name]) else [])]
    return found


ARGUMENTS = ("inputs", "hidden", "channels", "widths", "blocks", "classes", "nonsense")
SETTINGS = [*paths_of(Config), *(f"network.arguments.{name}" for name in ARGUMENTS)]
TABLES = sorted({"", *(path.rpartition(".")[0] for path in SETTINGS)})

BUILDERS = (
    "mlp", "lenet", "resnet", "os", "os:", ":x", "os:getcwd", "sys:exit", "builtins:print", "no.such:thing",
    "torch.nn:Linear", "torch.nn:ReLU", "math:pi", "builtins:KeyError", "bocl.networks.architectures:mlp", "..:a",
    "torch.nn:LSTM", "builtins:dict",
)  # fmt: skip
# Words of TOML: of every type, in and out of range, and nonsense.
SCALARS = st.one_of(
    st.sampled_from(["nan", "inf", "-inf", "true", "false", "1e400", "-0.0", "1979-05-27", "07:32:00", "", "[]", "{}"]),
    st.sampled_from(["0", "1", "2", "-1", "3", "10", "64", "0.5", "1.5", "1e-3", "1e30", "1e308"]),
    st.sampled_from([str(2**power + more) for power in (16, 31, 32, 63, 64) for more in (-1, 0)]),
    st.sampled_from(["9" * 400, "9" * 5000, "0x" + "f" * 5000, "-0x8", "0b1", "1_000", "1__0"]),
    st.sampled_from(["[" * depth + "1" + "]" * depth for depth in (1, 2, 90, 240, 400, 2000)]),
    st.sampled_from(["{a=" * depth + "1" + "}" * depth for depth in (1, 2, 90, 240, 400, 2000)]),
    st.sampled_from([f'"{word}"' for word in ("bocl", "ewc", "paper", "adam", "cosine", "mixed-mnist", *BUILDERS)]),
    st.sampled_from(['"\\u0000"', '"\\n\\n"', '"\\u202e"', "'''a\nb'''", '"\\U0001F600"', '"' + "x" * 5000 + '"']),
    st.integers().map(str),
    st.floats().map(str),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12).map(json.dumps),
)
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
    st.dictionaries(st.sampled_from(["a", "build", "arguments", "inputs", "tasks"]), SCALARS, max_size=2).map(
        lambda items: "{" + ", ".join(f"{key} = {value}" for key, value in items.items()) + "}"
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
KEYS = st.one_of(
    st.sampled_from(SETTINGS),
    st.tuples(st.sampled_from(TABLES), st.sampled_from(["epoch", "nam", "x", '""', '"a\\nb"', "é", '"a.b"'])).map(
        lambda parts: ".".join(filter(None, parts))
    ),
    st.text(max_size=8),
)
LINES = st.tuples(KEYS, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]}".encode("utf-8", "replace"))
GOOD = b'network = {build = "mlp", arguments = {inputs = 64, hidden = [6, 5]}}\n'
JUNK = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"[", b"[[search]]", b"[network]", b"=", b'"""', b"[a.b.c]"]
    ),
)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that holds the config of the case at hand."""
    return tmp_path_factory.mktemp("configs")


@cases(60)
@given(st.lists(st.one_of(LINES, JUNK), max_size=4), st.booleans())
def test_a_config_file_is_valid_or_refused_in_one_line(here, monkeypatch, lines, begin):
    monkeypatch.chdir(here)
    (here / "mine.toml").write_bytes((GOOD if begin else b"") + b"\n".join(lines))
    with untouched(here):
        judge("config file", call("validate", "mine.toml"))


@cases(60)
@given(st.binary(max_size=200))
def test_any_bytes_are_valid_or_refused_in_one_line(here, monkeypatch, content):
    monkeypatch.chdir(here)
    (here / "mine.toml").write_bytes(content)
    with untouched(here):
        judge("config file of any bytes", call("validate", "mine.toml"))


@cases(100)
@given(st.lists(st.tuples(KEYS, VALUES).map("=".join), min_size=1, max_size=3))
@example(["seed=0x" + "f" * 5000])
@example(["network.arguments=" + "{a=" * 240 + "1" + "}" * 240])
def test_an_override_is_valid_or_refused_in_one_line(here, monkeypatch, overrides):
    monkeypatch.chdir(here)
    words = [word for override in overrides for word in ("--set", override)]
    with untouched(here):
        judge("--set", call("validate", "digits", *words))


@pytest.mark.parametrize("path", SETTINGS)
@cases(2)
@given(value=SCALARS)
def test_every_setting_alone_is_valid_or_refused_in_one_line(here, monkeypatch, path, value):
    monkeypatch.chdir(here)
    with untouched(here):
        judge("one setting", call("validate", "digits", "--set", f"{path}={value}"))
