"""Settings in, frozen dataclasses out: TOML files, ``--set`` overrides, and every mistake told at once.

These functions know no particular setting. A table of settings is a frozen dataclass; a field of it is
another table, ``Table | None``, ``tuple[Table, ...]``, or a value of any type that pydantic can check
strictly. What types cannot say (ranges, combinations) a dataclass checks in its own ``__post_init__`` by
raising InputError or ConfigError.
"""

from __future__ import annotations

import copy
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, time
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from bocl.errors import ConfigError, InputError, did_you_mean

T = TypeVar("T")

MOST_NESTING = 20  # tables within tables

_FAILED = object()  # stands for a value whose problems are already noted

_TOO_DEEP = "nested too deeply to be a config"

# What was expected, by pydantic's name for the error; the rest of a message is ours as well.
_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a string",
    "json_invalid": "valid Unicode text",
    "none_required": "nothing",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "literal_error": "{expected}",
    "missing": "one more entry",
    "too_short": "at least {min_length} entries",
    "too_long": "at most {max_length} entries",
    "greater_than": "a value greater than {gt}",
    "greater_than_equal": "a value of at least {ge}",
    "less_than": "a value less than {lt}",
    "less_than_equal": "a value of at most {le}",
}


def parse(kind: type[T], data: Mapping[str, object], source: str) -> T:
    """Build the dataclass ``kind`` from nested tables, or raise one ConfigError that lists every problem.

    Nothing is coerced but an integer where a number is wanted, and lists to tuples. ``source`` names where
    the data came from, for the message.
    """
    problems: list[str] = []
    made = _make_table(kind, data, "", problems)
    if len(problems) == 1:
        raise ConfigError(f"{source}: {problems[0]}")
    if problems:
        raise ConfigError("\n  ".join([f"{len(problems)} problems in {source}:", *problems]))
    return cast(T, made)


def parse_value(annotation: Any, value: object, source: str) -> Any:
    """Return one value or table as ``annotation`` wants it, or raise one ConfigError that lists every problem."""
    problems: list[str] = []
    made = _make(annotation, value, source, problems)
    if problems:
        raise ConfigError("; ".join(problems))
    return made


def _make_table(kind: type[Any], data: Mapping[str, object], path: str, problems: list[str]) -> object:
    """Return an instance of the dataclass ``kind``, or _FAILED after adding to ``problems``."""
    settings = {field.name: field for field in fields(kind) if field.init}
    types = _types(cast(Any, kind))
    before = len(problems)
    problems.extend(
        f"{_under(path, key)}: unknown key{did_you_mean(key, settings)}" for key in data if key not in settings
    )
    values: dict[str, object] = {}
    for name, field in settings.items():
        if name in data:
            values[name] = _make(types[name], data[name], _under(path, name), problems)
        elif field.default is MISSING and field.default_factory is MISSING:
            problems.append(f"{_under(path, name)}: required key is missing")
    # The dataclass's own check may rely on its fields, so it waits until they are all there.
    if len(problems) > before:
        return _FAILED
    try:
        return kind(**values)
    except InputError as error:
        message = " ".join(str(error).split("\n"))
        problems.append(message if not path or message.startswith(f"{path}.") else f"{path}: {message}")
        return _FAILED


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _make(annotation: Any, value: object, path: str, problems: list[str]) -> object:
    """Return ``value`` as ``annotation`` wants it, or _FAILED after adding to ``problems``."""
    if not _mentions_table(annotation):
        return _make_value(annotation, value, path, problems)
    union = get_origin(annotation) in (Union, UnionType)
    members = get_args(annotation) if union else (annotation,)
    kinds = [member for member in members if member is not NoneType]
    if len(kinds) != 1:
        raise TypeError(f"{path}: a setting can be one table or None, not {annotation}")
    if value is None and NoneType in members:
        return None
    kind = kinds[0]
    if isinstance(kind, type) and is_dataclass(kind):
        if isinstance(value, Mapping):
            return _make_table(kind, value, path, problems)
        problems.append(f"{path}: expected a table, found {_show(value)}")
        return _FAILED
    if get_origin(kind) is not tuple or get_args(kind)[1:] != (...,):
        raise TypeError(f"{path}: several tables are a tuple[Table, ...], not {annotation}")
    if not isinstance(value, list | tuple):
        problems.append(f"{path}: expected a list of tables, found {_show(value)}")
        return _FAILED
    entry = get_args(kind)[0]
    made = tuple(_make(entry, item, f"{path}[{index}]", problems) for index, item in enumerate(value))
    return _FAILED if any(item is _FAILED for item in made) else made


@cache
def _mentions_table(annotation: Any) -> bool:
    table = isinstance(annotation, type) and is_dataclass(annotation)
    return table or any(_mentions_table(part) for part in get_args(annotation))


def _make_value(annotation: Any, value: object, path: str, problems: list[str]) -> object:
    """Return a value that holds no table, or _FAILED after adding to ``problems``.

    It is checked as JSON, because there pydantic's strict mode still takes a list for a tuple.
    """
    try:
        text = json.dumps(value, allow_nan=False)
    except TypeError:
        problems.append(f"{path}: dates and times are not used here, found {_show(value)}; quote it")
        return _FAILED
    except ValueError:
        problems.append(f"{path}: expected a finite number, found {_show(value)}")
        return _FAILED
    try:
        return _adapter(annotation).validate_json(text)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        problems.extend(_explain(annotation, value, path, details))
        return _FAILED


@cache
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    return TypeAdapter(annotation, config=ConfigDict(strict=True, allow_inf_nan=False))


def _explain(annotation: Any, value: object, path: str, details: list[ErrorDetails]) -> Iterator[str]:
    """Yield one line for each place at fault; a union reports one error per member, for the same place."""
    places: dict[str, tuple[object, list[ErrorDetails]]] = {}
    for detail in details:
        place, found = _locate(detail["loc"], value, path)
        places.setdefault(place, (found, []))[1].append(detail)
    for place, (found, errors) in places.items():
        if isinstance(found, str) and all(error["type"] == "literal_error" for error in errors):
            yield f"{place}: unknown value {found!r}{did_you_mean(found, _literal_words(annotation))}"
        else:
            expected = " or ".join(dict.fromkeys(_expectation(error) for error in errors))
            yield f"{place}: expected {expected}, found {_show(found)}"


def _locate(location: tuple[int | str, ...], value: object, path: str) -> tuple[str, object]:
    """Follow ``location`` into ``value``, passing over steps that name a union's member and not a place."""
    for step in location:
        if isinstance(step, int) and isinstance(value, list | tuple) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(step, str) and isinstance(value, Mapping) and step in value:
            path, value = f"{path}.{step}", value[step]
    return path, value


def _expectation(error: ErrorDetails) -> str:
    words = _EXPECTED.get(error["type"])
    return words.format(**error.get("ctx", {})) if words else "another kind of value"


def _literal_words(annotation: Any) -> list[str]:
    """Return the words that the Literals in ``annotation`` allow."""
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    return [word for part in get_args(annotation) for word in _literal_words(part)]


def _show(value: object) -> str:
    """Return ``value`` as a TOML file would hold it, with its kind where that is not plain to see."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return f"a table with {', '.join(map(str, value))}" if value else "an empty table"
    if isinstance(value, date | time):
        return f"the date or time {value}"
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = _cut(text)
    if isinstance(value, str):
        return f"the string {text}"
    return f"the list {text}" if isinstance(value, list | tuple) else text


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "…"


def _under(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def apply_overrides(data: Mapping[str, object], overrides: Iterable[str]) -> dict[str, object]:
    """Return a copy of ``data`` with each override ``"a.b=value"`` applied, in order.

    The value is TOML where it reads as TOML (numbers, true, lists, quoted strings, inline tables) and a
    plain string otherwise. Missing tables are made; what stood at the path is replaced.
    """
    result = copy.deepcopy(dict(data))
    for override in overrides:
        dotted, equals, text = override.partition("=")
        steps = [step.strip() for step in dotted.split(".")]
        if not equals or not all(steps) or len(steps) > MOST_NESTING:
            raise ConfigError(f"--set {_cut(override)}: expected the form a.b=value, such as --set recipe.epochs=5")
        table: dict[str, object] = result
        for depth, step in enumerate(steps[:-1], start=1):
            inner = table.setdefault(step, {})
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"--set {_cut(override)}: {'.'.join(steps[:depth])} is {_show(inner)}, not a table, "
                    "and has no keys to set"
                )
            table = inner
        table[steps[-1]] = value = _override_value(text.strip())
        if excess := _excess(value):
            raise ConfigError(f"--set {_cut(override)}: {excess}")
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
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such file") from error
    except IsADirectoryError as error:
        raise ConfigError(f"{path}: this is a folder; name a TOML file in it") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}: line {line} is not UTF-8 text; save the file as UTF-8") from error
    try:
        read = tomllib.loads(text)
    except ValueError as error:  # its message ends with the line and column
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: {_TOO_DEEP}") from error
    if excess := _excess(read):
        raise ConfigError(f"{path}: {excess}")
    return read


def _excess(value: object, depth: int = 0) -> str | None:
    """Say what in a value no config holds: nesting without end, or integers beyond the 64 bits TOML promises."""
    if depth > MOST_NESTING:
        return _TOO_DEEP
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "an integer of more than 64 bits, which no setting is"
    items: Iterable[object] = ()
    if isinstance(value, dict):
        items = value.values()
    elif isinstance(value, list):
        items = value
    return next(filter(None, (_excess(item, depth + 1) for item in items)), None)


def to_plain(config: object) -> dict[str, Any]:
    """Return a dataclass tree as nested dicts and lists that JSON can hold; ``parse`` reads them back."""
    table = plain(config)
    if not isinstance(table, dict):
        raise TypeError(f"expected a dataclass instance, found {config!r}")
    return table


def plain(value: object) -> object:
    """Return a setting of any kind as JSON can hold it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value) if field.init}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"a setting cannot hold a {type(value).__name__}: {value!r}")


def digest(config: object) -> str:
    """Return the SHA-256 of a dataclass tree's canonical JSON: the same for equal settings, however made."""
    # Going through parse makes 1 and 1.0 in a field of numbers the same.
    table = to_plain(parse(type(config), to_plain(config), type(config).__name__))
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
