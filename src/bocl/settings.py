"""Settings in, frozen dataclasses out: TOML files, ``--set`` overrides, and every mistake reported at once.

These functions know no particular setting. A table of settings is a frozen dataclass, whose fields pydantic checks.
What types cannot say, such as combinations, a dataclass checks in its own ``__post_init__`` by raising InputError.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from datetime import date, time
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import ValidationError
from pydantic_core import to_jsonable_python

from bocl.checks import adapter, explain
from bocl.errors import ConfigError
from bocl.wording import as_written, shortened

T = TypeVar("T")

MOST_NESTING = 20  # tables within tables
MOST_BYTES = 1 << 16  # of a file
MOST_KEYS = 500  # of a table

_TOO_DEEP = "nested too deeply to be a config"
_DEEP_KEY = re.compile(rf"""(?<![\w"'-])(?:[\w"'-]++[ \t]*+\.[ \t]*+){{{MOST_NESTING + 1}}}""")
_NULL = "a null character, which no name or value can have"


def parse(kind: type[T], data: Mapping[str, object], source: str) -> T:
    """Build the dataclass ``kind`` from nested tables, or raise one ConfigError that lists every problem.

    Only an integer for a number and a list for a tuple are converted, and where a setting may be left out, ``"none"``
    for no value: TOML has no other way to take back what a preset sets. ``source`` names the origin of the data, for
    the message.
    """
    made, problems = _read(kind, _with_none(kind, data), "")
    if len(problems) > 1:
        raise ConfigError(f"{len(problems)} problems in {source}:", *problems)
    if problems:
        raise ConfigError(f"{source}: {problems[0]}")
    return made  # type: ignore[no-any-return]


def _with_none(kind: Any, data: Mapping[str, object]) -> dict[str, object]:
    """Return tables with None for ``"none"`` in every setting that may be None and is no text."""
    hints, found = get_type_hints(kind), dict(data)
    for name, value in data.items():
        hint = hints.get(name)
        if is_dataclass(hint) and isinstance(value, Mapping):
            found[name] = _with_none(hint, value)
        elif value == "none" and type(None) in get_args(hint) and str not in get_args(hint):
            found[name] = None
    return found


def parse_value(annotation: Any, value: object, source: str) -> Any:
    """Return one value or table as an ``annotation``, or raise one ConfigError that lists every problem."""
    made, problems = _read(annotation, value, source)
    if problems:
        raise ConfigError("; ".join(problems))
    return made


def _read(kind: Any, value: object, path: str) -> tuple[Any, list[str]]:
    """Return ``value`` as a ``kind``, and what is wrong with it.

    It is checked as JSON, because there pydantic's strict mode still takes a list for a tuple and a table for a
    dataclass.
    """
    odd: dict[str, str] = {}
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError):
        value = _without_odd(value, path, odd)
        text = json.dumps(value).encode()
    try:
        made = adapter(kind).validate_json(text)
    except ValidationError as error:
        return None, list((explain(error, kind, value, path, written=True) | odd).values())
    return made, list(odd.values())


def _without_odd(value: object, path: str, odd: dict[str, str]) -> object:
    """Return ``value`` with None for all that JSON cannot hold, which is noted in ``odd`` by its place."""
    if isinstance(value, Mapping):
        readable = {str(key).encode(errors="backslashreplace").decode(): inner for key, inner in value.items()}
        return {key: _without_odd(inner, f"{path}.{key}" if path else key, odd) for key, inner in readable.items()}
    if isinstance(value, list | tuple):
        return [_without_odd(inner, f"{path}[{index}]", odd) for index, inner in enumerate(value)]
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        return value
    except UnicodeEncodeError:
        odd[path] = f"{path}: expected valid Unicode text, found {as_written(value)}"
    except ValueError:
        odd[path] = f"{path}: expected a finite number, found {as_written(value)}"
    except TypeError:
        odd[path] = f"{path}: dates and times are not used here, found {as_written(value)}; quote it"
    return None


def apply_overrides(data: Mapping[str, object], overrides: Iterable[str]) -> dict[str, object]:
    """Return a copy of ``data`` with each override ``"a.b=value"`` applied, in order.

    The value is TOML if it reads as TOML (numbers, true, lists, quoted strings, inline tables) and a plain string
    otherwise. Missing tables are made; an earlier value is replaced.
    """
    result = copy.deepcopy(dict(data))
    for override in overrides:
        place = f"--set {shortened(override)}"
        dotted, equals, text = override.partition("=")
        steps = [step.strip() for step in dotted.split(".")]
        if not equals or not all(steps) or len(steps) > MOST_NESTING:
            raise ConfigError(f"{place}: expected the form a.b=value, such as --set recipe.epochs=5")
        table: dict[str, object] = result
        for depth, step in enumerate(steps[:-1], start=1):
            inner = table.setdefault(step, {})
            if not isinstance(inner, dict):
                inside = f"{'.'.join(steps[:depth])} is {as_written(inner)}"
                raise ConfigError(f"{place}: {inside}, not a table, and has no keys to set")
            table = inner
        table[steps[-1]] = value = _override_value(text.strip())
        if excess := _excess(value):
            raise ConfigError(f"{place}: {excess}")
    return result


def _override_value(text: str) -> object:
    try:
        read = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    # A line break could bring in further keys, and no setting is a date: both are just text.
    if set(read) != {"value"} or isinstance(read["value"], date | time):
        return text
    return read["value"]


def read_toml(path: str | Path) -> dict[str, object]:
    """Return the tables in a TOML file, or raise ConfigError saying why it cannot be read."""
    path = Path(path)
    try:
        text = _bytes(path).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: this is a folder; name a TOML file in it") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line} is not UTF-8 text; save the file as UTF-8") from error
    if _DEEP_KEY.search(text):  # tomllib takes minutes for a key of many thousand parts
        raise ConfigError(f"{path}: {_TOO_DEEP}")
    try:
        read = tomllib.loads(text)
    except ValueError as error:  # its message ends with the line and column
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: {_TOO_DEEP}") from error
    if excess := _excess(read):
        raise ConfigError(f"{path}: {excess}")
    return read


def _bytes(path: Path) -> bytes:
    """Return what a file holds. A pipe or device might never end, and is not opened."""
    if "\0" in str(path):
        raise ConfigError(f"{path}: {_NULL}")
    kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise ConfigError(f"{path}: this is a pipe or a device; give a file")
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{path}: it has more than {MOST_BYTES:,} bytes, which no config has; give a TOML file")
    return data


def _excess(value: object, depth: int = 0) -> str | None:
    """Say what no config may hold: deep nesting, huge tables, integers of more than 64 bits, null characters."""
    if depth > MOST_NESTING:
        return _TOO_DEEP
    if isinstance(value, dict) and len(value) > MOST_KEYS:
        return f"a table of {len(value):,} keys, which no config has"
    if isinstance(value, str) and "\0" in value:
        return _NULL
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "an integer of more than 64 bits, which no setting is"
    items = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, (_excess(item, depth + 1) for item in items)), None)


def to_plain(value: object) -> Any:
    """Return a setting or a tree of dataclasses as JSON can hold it; ``parse`` reads it back."""
    return to_jsonable_python(value)


def digest(config: object) -> str:
    """Return the SHA-256 of a dataclass tree's canonical JSON, which is the same for equal settings."""
    # Going through parse makes 1 and 1.0 in a field of numbers the same.
    table = to_plain(parse(type(config), to_plain(config), type(config).__name__))
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
