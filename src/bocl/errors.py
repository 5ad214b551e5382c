"""Everything bocl raises on purpose. Every message names the wrong value and the way out.

BoclError
├── InputError            the caller gave something wrong         exit code 2
│   ├── ConfigError       a preset, a config file or --set
│   ├── DataError         arrays, labels, data files, downloads
│   ├── NetworkError      a module that cannot be traced or grown
│   ├── DeviceError       a device that is not there
│   └── FolderError       a run or model folder that does not fit
│       └── DamagedError  a run's file that is not what the run wrote
└── WorkError             the input was right, the work failed    exit code 1

DataWarning               data that can be used, but better otherwise
GoalWarning               a task that was learnt, but not as well as was wanted
NetworkWarning            a module that can be used, but not all it holds
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class BoclError(Exception):
    """Anything bocl raises on purpose: a message, and lines below it where there are several mistakes."""

    def __str__(self) -> str:
        return "\n  ".join(map(str, self.args))


class InputError(BoclError, ValueError):
    """The caller gave something wrong; nothing was changed."""


class ConfigError(InputError):
    """A preset, a config file or an override is wrong."""


class DataError(InputError):
    """Arrays, labels or data files cannot be used."""


class NetworkError(InputError):
    """A module cannot be traced into layers that grow."""


class DeviceError(InputError):
    """The device asked for is not there."""


class FolderError(InputError):
    """A run or model folder is missing, damaged or made by something else."""


class DamagedError(FolderError):
    """A file of a run is missing, or is not what the run wrote."""


class WorkError(BoclError, RuntimeError):
    """The input was right, but the work could not be done."""


class DataWarning(UserWarning):
    """Data can be used as it is, but something about it is likely a mistake."""


class GoalWarning(UserWarning):
    """A task was learnt, but no network reached the goal, or was of any use."""


class NetworkWarning(UserWarning):
    """A module holds something that no learner keeps, such as trained weights."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` or the list of known words, ready to end a message."""
    known = list(known)
    by_small_letters = {each.lower(): each for each in known}
    close = get_close_matches(word.lower(), by_small_letters, n=1, cutoff=0.6)
    return f" (did you mean '{by_small_letters[close[0]]}'?)" if close else f" (known: {', '.join(known)})"
