"""Values → places along an axis, and the round numbers written there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import quantiles

from bocl.report.charts import Axis, Spacing

_PADDING = 0.06  # of the range, left free at either end
_LEAST_ERROR = 1e-4  # so that an accuracy of 100 % has a place
_ACCURACIES = (0.1, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999)


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` at places from ``start`` to ``end``, spaced as ``Axis`` says."""

    low: float
    high: float
    start: float
    end: float
    spacing: Spacing = "even"

    def __call__(self, value: float) -> float:
        """Return the place of a value; those beyond an end are placed at it."""
        low, high, at = (_stretched(each, self.spacing) for each in (self.low, self.high, _shown(value, self.spacing)))
        share = (at - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def fit(axis: Axis, values: Iterable[float], start: float, end: float, *, zero: bool = False) -> Scale:
    """Return a scale that shows these values with room around them; with ``zero`` it starts or ends exactly there."""
    found = [_shown(value, axis.spacing) for value in values if math.isfinite(value)] or [0.0]
    if zero:
        found.append(0.0)
    low, high = (_stretched(value, axis.spacing) for value in (min(found), max(found)))
    size = max(abs(low), abs(high))
    least = {"percent": 0.01, "count": max(0.1 * size, 2.0), "plain": max(0.1 * size, 1e-6)}[axis.kind]
    room = _PADDING * (high - low) if high - low >= least or axis.spacing != "even" else (least - high + low) / 2
    room = room or 0.1
    low = low if zero and low == 0 else low - room
    high = high if zero and high == 0 and low < 0 else high + room
    return Scale(_shrunk(low, axis.spacing), _shrunk(high, axis.spacing), start, end, axis.spacing)


def ticks(scale: Scale, most: int = 5) -> list[float]:
    """Return round values between the ends of a scale, about ``most`` at most."""
    if scale.spacing == "errors":
        values = list(_ACCURACIES)
    elif scale.spacing == "factors":
        decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
        values = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    else:
        return _even_ticks(scale, most)
    found = [value for value in values if scale.low <= value <= scale.high]
    return found[:: math.ceil(len(found) / (most + 2))] if len(found) > 1 else _even_ticks(scale, most)


def _even_ticks(scale: Scale, most: int) -> list[float]:
    rough = (scale.high - scale.low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * (1 - 1e-9))
    first = math.ceil(scale.low / step - 1e-9)
    count = math.floor(scale.high / step + 1e-9) - first + 1
    return [(first + index) * step for index in range(count)]


def whole_ticks(scale: Scale, most: int = 10) -> list[float]:
    """Return ticks for counts: whole numbers only."""
    found = [value for value in ticks(scale, most) if value == round(value)]
    return found or [float(math.ceil(scale.low))]


def say(value: float, axis: Axis, among: Sequence[float] = ()) -> str:
    """Return a tick's number, as precise as its neighbours need where they are evenly spaced."""
    if axis.kind == "count":
        if abs(value) >= 1e6:
            return f"{value / 1e6:g}M"
        return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"
    factor = 100 if axis.kind == "percent" else 1
    shown = [factor * each for each in (axis.spacing == "even" and among) or [value]]
    digits = next((digits for digits in range(4) if all(abs(round(s, digits) - s) < 1e-9 for s in shown)), 4)
    text = f"{factor * value:.{digits}f}"
    return "0" if float(text) == 0 else text


def by_errors(axis: Axis, accuracies: Iterable[float]) -> Axis:
    """Space an axis by errors if even spacing would press the small ones together."""
    errors = [max(1 - value, _LEAST_ERROR) for value in accuracies]
    return replace(axis, spacing="errors") if errors and max(errors) > 5 * min(errors) else axis


def by_factors(axis: Axis, counts: Iterable[float]) -> Axis:
    """Space an axis by factors if even spacing would press the small counts together."""
    found = list(counts)
    return replace(axis, spacing="factors") if found and max(found) > 8 * min(found) > 0 else axis


def without_the_lowest(axis: Axis, accuracies: Iterable[float]) -> tuple[float, float] | None:
    """Return the range of all values but those far below the rest, which would press the others together; else None.

    Far means more than two points below the lower quartile, and along the axis more than one and a half times the
    distance between the quartiles.
    """
    found = sorted(value for value in accuracies if math.isfinite(value))
    if len(found) < 3:
        return None
    places = [_stretched(_shown(value, axis.spacing), axis.spacing) for value in found]
    lower, _, upper = quantiles(places, n=4, method="inclusive")
    least = quantiles(found, n=4, method="inclusive")[0] - 0.02
    near = [
        value
        for value, place in zip(found, places, strict=True)
        if value >= least or place >= lower - 1.5 * (upper - lower)
    ]
    return (near[0], near[-1]) if len(near) < len(found) else None


def _shown(value: float, spacing: Spacing) -> float:
    """Return the nearest value that has a place."""
    if spacing == "factors":
        return max(value, 1e-12)
    return min(value, 1 - _LEAST_ERROR) if spacing == "errors" else value


def _stretched(value: float, spacing: Spacing) -> float:
    if spacing == "factors":
        return math.log10(value)
    return -math.log10(1 - value) if spacing == "errors" else value


def _shrunk(value: float, spacing: Spacing) -> float:
    if spacing == "factors":
        return float(10.0**value)
    return float(1 - 10.0**-value) if spacing == "errors" else value
