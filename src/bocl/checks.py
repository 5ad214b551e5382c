"""What a setting may be: types that pydantic checks, and the wording of everything that can be wrong.

@section("recipe")
@dataclass(frozen=True)
class Recipe:
epochs: PositiveInt = 15

Recipe(epochs=0)    ConfigError: recipe.epochs is 0; it must be at least 1
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache, wraps
from numbers import Integral, Real
from typing import Annotated, Any, TypeVar, get_args, get_type_hints, overload

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError, with_config
from pydantic_core import ArgsKwargs, ErrorDetails

from bocl.errors import ConfigError, did_you_mean
from bocl.wording import as_written, counted, shown

T = TypeVar("T")
LARGEST = 1e30  # of a setting without another limit: float32 holds it with room to spare
_UNKNOWN = "unexpected_keyword_argument"


def _as_python(value: object) -> object:
    """Return a number of numpy as one of Python."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


Integer = Annotated[int, BeforeValidator(_as_python)]
Number = Annotated[float, BeforeValidator(_as_python)]
Natural = Annotated[Integer, Field(ge=0)]
PositiveInt = Annotated[Integer, Field(ge=1)]
NonNegative = Annotated[Number, Field(ge=0, le=LARGEST)]
Positive = Annotated[Number, Field(gt=0, le=LARGEST)]
Fraction = Annotated[Number, Field(ge=0, le=1)]
OneOrEach = Annotated[  # one for all hidden groups, or a list with one per group
    T | Annotated[tuple[T, ...], Field(min_length=1)],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]


def section(name: str) -> Callable[[type[T]], type[T]]:
    """Make a frozen dataclass check its values when it is made; ``name`` is the first part of their dotted names."""

    def make(kind: Any) -> Any:
        @wraps(kind.__init__)
        def check(self: Any, *args: Any, **kwargs: Any) -> None:
            try:
                adapter(kind).validator.validate_python(ArgsKwargs(args, kwargs), self_instance=self)
            except ValidationError as error:
                given = dict(zip(_keys(kind), args, strict=False)) | kwargs
                raise ConfigError("; ".join(explain(error, kind, given, name).values())) from None

        kind.__init__ = check
        return kind

    return make


@overload
def checked(name: str, value: object, kind: type[T]) -> T: ...
@overload
def checked(name: str, value: object, kind: Any) -> Any: ...
def checked(name: str, value: object, kind: Any) -> Any:
    """Return a value as ``kind`` keeps it, or raise a ConfigError that names it."""
    try:
        return adapter(kind).validate_python(value)
    except ValidationError as error:
        raise ConfigError("; ".join(explain(error, kind, value, name).values())) from None


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """Return pydantic's check of ``kind``: nothing is coerced, no key is unknown, every number is finite."""
    strict = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    table = is_dataclass(kind)
    return TypeAdapter(with_config(strict)(kind)) if table else TypeAdapter(kind, config=strict)


def per_group(name: str, value: T | tuple[T, ...], groups: int) -> tuple[T, ...]:
    """Return one number for each of a network's hidden groups."""
    if not isinstance(value, tuple):
        return (value,) * groups
    if len(value) != groups:
        raise ConfigError(
            f"{name} has {counted(len(value), 'entry', 'entries')} {shown(value)}, but the network has "
            f"{counted(groups, 'hidden group')}; give one entry per group, or one number for all"
        )
    return value


def exceeds_memory(size: int) -> str | None:
    """Say by how much so many bytes exceed this machine's memory, or return None."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{size / 1e9:,.0f} GB, and this machine has {memory / 1e9:,.0f} GB of memory" if size > memory else None


# What a value must be, by pydantic's name for what is wrong with it.
_LIMITS = {
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "below {lt}",
    "less_than_equal": "at most {le}",
}
_WANTED = _LIMITS | {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a finite number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a string",
    "string_pattern_mismatch": "a string of the form {pattern}",
    "none_required": "nothing",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "dataclass_type": "a table",
    "dataclass_exact_type": "a {class_name}, such as {class_name}()",
    "literal_error": "{expected}",
    "missing": "one more entry",
    "too_short": "a list with {min_length} or more entries",
    "too_long": "at most {max_length} entries",
}


def explain(error: ValidationError, kind: Any, value: object, path: str, *, written: bool = False) -> dict[str, str]:
    """Return {place: what is wrong there} for a ``value`` that ``kind`` refuses; places begin with ``path``.

    written  whether the value comes from a file, and is shown as the file has it
    """
    places: dict[str, list[ErrorDetails]] = {}
    for detail in sorted(error.errors(include_url=False), key=lambda detail: detail["type"] != _UNKNOWN):
        places.setdefault(_place(detail, value, path), []).append(detail)
    return {
        place: _sentence(place, details, kind, written)
        for place, details in places.items()
        # In a union of a number and a list: an error inside the list makes "it is not a number" pointless.
        if not any(other.startswith((f"{place}.", f"{place}[")) for other in places)
    }


def _place(detail: ErrorDetails, value: object, path: str) -> str:
    """Return where an error is, in words; a step of its location that leads nowhere names a member of a union."""
    for step in detail["loc"]:
        if isinstance(value, Mapping):
            key = list(value)[step] if isinstance(step, int) and step < len(value) else step  # an argument by position
            if key in value:
                path, value = _under(path, key), value[key]
        elif isinstance(value, list | tuple) and isinstance(step, int) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
    return _under(path, detail["loc"][-1]) if _is_missing_key(detail) else path


def _sentence(place: str, details: list[ErrorDetails], kind: Any, written: bool) -> str:
    detail, found = details[0], details[0]["input"]
    *steps, last = detail["loc"] or ("",)
    types = {detail["type"] for detail in details}
    if types == {_UNKNOWN}:
        return f"{place}: unknown key{did_you_mean(str(last), _keys(kind, steps))}"
    if _is_missing_key(detail):
        return f"{place}: required key is missing"
    if "value_error" in types:  # a check of the dataclass's own
        message = " ".join(str(detail["ctx"]["error"]).split("\n"))
        return message if not place or message.startswith(f"{place}.") else f"{place}: {message}"
    if not types <= _WANTED.keys():
        return f"{place}: {detail['msg']}"
    if written and types == {"literal_error"} and isinstance(found, str):
        words = re.findall("'(.*?)'", " ".join(detail["ctx"]["expected"] for detail in details))
        return f"{place}: unknown value {found!r}{did_you_mean(found, words)}"
    wanted = " or ".join(dict.fromkeys(_wanted(detail) for detail in details))
    if written and not types & _LIMITS.keys():
        return f"{place}: expected {wanted}, found {as_written(found)}"
    return f"{place} is {shown(found)}; it must be {wanted}"


def _wanted(detail: ErrorDetails) -> str:
    context = {key: f"{end:g}" if isinstance(end, float) else end for key, end in detail.get("ctx", {}).items()}
    return _WANTED[detail["type"]].format(**context)


def _is_missing_key(detail: ErrorDetails) -> bool:
    return detail["type"] == "missing" and isinstance(detail["loc"][-1], str)


def _under(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _keys(kind: Any, steps: Iterable[int | str] = ()) -> list[str]:
    """Return the keys of a table, or of the one in it that ``steps`` lead to."""
    tables = _tables(kind)
    for step in steps:
        inner = [get_type_hints(table).get(str(step)) for table in tables]
        tables = [table for kind in inner for table in _tables(kind)] or tables
    return [field.name for table in tables for field in fields(table) if field.init]


def _tables(kind: Any) -> list[Any]:
    """Return the dataclasses that a type mentions."""
    return [kind] if is_dataclass(kind) else [table for part in get_args(kind) for table in _tables(part)]
