"""From values to places along an axis, and the round numbers that stand there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from bocl.report.charts import Axis, Kind

_PADDING = 0.06  # of the range, left free at either end


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` at places from ``start`` to ``end``; on a log scale equal steps are factors."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the place of a value; what is beyond the ends stays at them."""
        low, high, value = (math.log10(max(each, 1e-12)) if self.log else each for each in (self.low, self.high, value))
        share = (value - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def fit(axis: Axis, values: Iterable[float], start: float, end: float, *, zero: bool = False) -> Scale:
    """Return a scale that shows these values, with room around them; ``zero``: from or to zero exactly."""
    found = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(found), max(found)
    if axis.log and low > 0:
        room = (high / low) ** _PADDING if high > low else 1.5
        return Scale(low / room, high * room, start, end, log=True)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    least = {"percent": 0.002, "count": 1.0, "plain": 1e-6}[axis.kind]
    room = max((high - low) * _PADDING, least if high - low < least else 0.0)
    return Scale(low if zero and low == 0 else low - room, high if zero and high == 0 else high + room, start, end)


def ticks(scale: Scale, most: int = 5) -> list[float]:
    """Return round values between the ends of a scale, ``most`` of them or fewer."""
    if scale.log:
        decades = range(math.floor(math.log10(scale.low)), math.ceil(math.log10(scale.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [factor * 10.0**decade for decade in decades for factor in factors]
            found = [value for value in found if scale.low <= value <= scale.high]
            if len(found) <= most:
                return found
        return found[:: math.ceil(len(found) / most)]
    rough = (scale.high - scale.low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= rough * (1 - 1e-9))
    first = math.ceil(scale.low / step - 1e-9)
    count = math.floor(scale.high / step + 1e-9) - first + 1
    return [(first + index) * step for index in range(count)]


def whole_ticks(scale: Scale, most: int = 10) -> list[float]:
    """Return ticks of a counted thing: whole numbers alone."""
    found = [value for value in ticks(scale, most) if value == round(value)]
    return found or [float(math.ceil(scale.low))]


def say(value: float, kind: Kind, among: Iterable[float] = ()) -> str:
    """Return a tick's number, as precise as it takes to tell it from those it stands among."""
    if kind == "count":
        if abs(value) >= 1e6:
            return f"{value / 1e6:g}M"
        return f"{value / 1e3:g}k" if abs(value) >= 1e3 else f"{value:g}"
    factor = 100 if kind == "percent" else 1
    shown = [factor * each for each in among] or [factor * value]
    digits = next((digits for digits in range(4) if all(abs(round(s, digits) - s) < 1e-9 for s in shown)), 4)
    text = f"{factor * value:.{digits}f}"
    return "0" if float(text) == 0 else text
