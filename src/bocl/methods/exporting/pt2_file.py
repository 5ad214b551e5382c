"""One task as a program of PyTorch (``torch.export``): a .pt2 file, which is run without our code.

program = torch.export.load("spring.pt2").module()
logits = program(samples)
"""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bocl.errors import InputError
from bocl.methods.task_network import TaskNetwork
from bocl.networks.low_rank.modules import every_part_called

ABOUT, TOKENIZER = "about.json", "tokenizer.json"  # among the extra files of a program
_EXAMPLES = 4  # samples that a program is traced with; any other number may follow
_MOST_SAMPLES = 2**31 - 1


def pt2(network: TaskNetwork) -> bytes:
    """Return the file of a task on the CPU; ``about.json`` in it says what the task's samples and classes are.

    Of a task of texts, ``tokenizer.json`` is in it too.
    """
    extra = {ABOUT: json.dumps(about_samples(network))}
    if network.text is not None:
        extra[TOKENIZER] = network.text.tokenizer
    with quiet():
        program = traced(network, "pt2")
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # the places of our files, and lines of code
        written = io.BytesIO()
        torch.export.save(program, written, extra_files=extra)
    return written.getvalue()


def run_pt2(data: bytes) -> Callable[[Tensor], Tensor]:
    """Return what a file computes."""
    with quiet():
        module = torch.export.load(io.BytesIO(data)).module()

    def compute(samples: Tensor) -> Tensor:
        with torch.no_grad():
            logits: Tensor = module(samples)
        return logits

    return compute


def traced(network: TaskNetwork, to: str) -> torch.export.ExportedProgram:
    """Trace a task for any number of samples, or refuse it by name."""
    about = network.about
    samples = torch.zeros(_EXAMPLES, *about.shape, dtype=sample_type(network))
    if about.padding is not None:
        samples += about.padding
        samples[:, 0] = 1 if about.padding == 0 else 0
    batch = torch.export.Dim("batch", min=1, max=_MOST_SAMPLES)
    errors = []
    for strict in (
        False,
        True,
    ):  # the second reads the module's code, and so takes len(x) for any number, but less else
        try:
            with every_part_called():
                return torch.export.export(network, (samples,), dynamic_shapes={"x": {0: batch}}, strict=strict)
        except Exception as error:  # a module of the user's may do what no program can
            errors.append(error)
    raise cannot(network, to, errors[0]) from errors[0]


def sample_type(network: TaskNetwork) -> torch.dtype:
    """Return the type of samples that an export takes."""
    if network.about.padding is not None:
        return torch.int64  # as tokenizers give ids elsewhere
    return torch.uint8 if network.about.in_bytes and network.scaling else torch.float32


def about_samples(network: TaskNetwork) -> dict[str, Any]:
    """Return what whoever runs an export must know, as JSON values."""
    about, kind = network.about, str(sample_type(network)).removeprefix("torch.")
    samples: dict[str, Any] = {"shape": list(about.shape), "type": kind, "columns": list(about.columns)}
    if about.padding is not None:
        samples["padding"] = about.padding
    if network.text is not None:
        samples["truncate"] = network.text.truncate
    return {"task": about.name, "labels": list(map(str, about.class_labels)), "samples": samples}


def cannot(network: TaskNetwork, to: str, error: Exception) -> InputError:
    """Return the error that refuses an export, with the reason of PyTorch's exporter in one line."""
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return InputError(
        f"task '{network.name}' cannot be exported as {to}: {reason}; export it as safetensors, which needs no tracing"
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Keep PyTorch's exporters from writing to the terminal of whoever exports."""
    loggers = [logging.getLogger(name) for name in ("torch.export", "torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, before, strict=True):
                logger.setLevel(level)
