"""What a caller may have set for the whole process or thread, put aside while bocl computes.

Results depend on the data, the settings and the seed. They do not depend on the ``torch.autocast``, ``torch.no_grad``
or default dtype that somebody works under, and whoever calls finds all of it as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from bocl.errors import ConfigError

_CPU = torch.device("cpu")
_NUMPY_ERRORS: Any = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(mode: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])


def _cudnn() -> tuple[bool, bool]:
    return torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark


def _set_cudnn(mode: tuple[bool, bool]) -> None:
    torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark = mode


def _matmul_precision() -> str:
    try:
        _ = torch.backends.cudnn.allow_tf32
        return torch.get_float32_matmul_precision()
    except RuntimeError as error:
        raise ConfigError(
            "an fp32_precision of torch.backends is set, which PyTorch does not let others read or change by its "
            "older switches; set it to 'none', and use recipe.precision here"
        ) from error


#: How each switch is read and set, and what it is in a fresh process. Deterministic algorithms are off because
#: training repeats itself to the bit without them (``precision.py``), and some of them give other bits.
_SWITCHES: tuple[tuple[Callable[[], Any], Callable[[Any], None], Any], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    *(
        (partial(torch.is_autocast_enabled, kind), partial(torch.set_autocast_enabled, kind), False)
        for kind in ("cpu", "cuda")
    ),
    (_deterministic, _set_deterministic, (False, False)),
    (_cudnn, _set_cudnn, (True, False)),
    (_matmul_precision, torch.set_float32_matmul_precision, "highest"),
)


@contextmanager
def usual_surroundings() -> Iterator[None]:
    """Compute as in a fresh process, whatever the caller has set, and give all of it back.

    Only what differs is set: most callers have set nothing, and one sample is predicted in microseconds.
    """
    with ExitStack() as back:
        if torch.is_inference_mode_enabled() or not torch.is_grad_enabled():
            back.enter_context(torch.inference_mode(False))  # which lets gradients be computed again, too
        if torch.is_anomaly_enabled():
            back.enter_context(torch.autograd.set_detect_anomaly(False))
        if np.geterr() != _NUMPY_ERRORS:
            back.enter_context(np.errstate(**_NUMPY_ERRORS))
        if torch.empty(0).device != _CPU:  # the default one, sooner than get_default_device says it
            back.enter_context(_CPU)
        for get, put, usual in _SWITCHES:
            found = get()
            if found != usual:
                back.callback(put, found)
                put(usual)
        yield
