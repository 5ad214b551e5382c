"""``bocl bench``: what training children costs on this machine, one by one and together, or predicting one sample."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from bocl.cli.options import Device


def bench_command(
    quick: Annotated[bool, typer.Option(help="Fewer samples: seconds instead of minutes.")] = False,
    predict: Annotated[
        bool, typer.Option("--predict", help="Predicting one sample instead, beside a plain module.")
    ] = False,
    pretrained: Annotated[
        bool,
        typer.Option(
            "--pretrained", help="Children of a large frozen network instead: a text encoder, a mobile network."
        ),
    ] = False,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Also a plain module of a child's size, compiled by PyTorch: a minute.")
    ] = False,
    device: Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Measure a plain loop, an eager loop on the device, and ours, on the same data and widths."""
    from functools import partial

    from bocl.benchmarks.adapting import measure_adapting
    from bocl.benchmarks.prediction import measure_predictions
    from bocl.benchmarks.speed import measure
    from bocl.cli.printing import print_json, say
    from bocl.errors import InputError
    from bocl.records.journal import to_json
    from bocl.training.device import resolve_device

    if predict and pretrained:
        raise InputError("--predict and --pretrained measure different things; give one of them")
    if compiled and (predict or pretrained):
        raise InputError("--compiled is about training children; leave out --predict and --pretrained")
    training: Any = partial(measure, compiled=compiled)
    work: Any = measure_predictions if predict else measure_adapting if pretrained else training
    rows = work(resolve_device(device), quick=quick, tell=lambda row: None if as_json else say(row.describe()))
    if as_json:
        print_json(to_json({"rows": [asdict(row) for row in rows]}, "bench"))
