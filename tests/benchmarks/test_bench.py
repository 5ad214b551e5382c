"""The benchmarks measure what they say; how fast is never asserted."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from bocl.benchmarks import prediction, speed
from bocl.networks.stacked import Children
from bocl.networks.trace import trace

CPU = torch.device("cpu")
FIELDS = {
    *("network", "mode", "children", "seconds_per_child_epoch", "samples_per_second", "peak_memory_mb"),
    "speedup_over_plain",
}


@pytest.fixture
def tiny(monkeypatch):
    """Make every case small enough for a test."""
    original = speed.cases
    monkeypatch.setattr(
        speed,
        "cases",
        lambda device, quick: [
            replace(case, samples=64, recipe=replace(case.recipe, batch_size=32, epochs=1))
            for case in original(device, quick)
        ],
    )


def test_every_mode_is_measured_and_put_beside_the_plain_loop(tiny):
    told = []
    rows = speed.measure(CPU, quick=True, children=(1, 2), tell=told.append)
    assert told == rows
    assert [(row.network, row.mode, row.children) for row in rows] == [
        (network, mode, count)
        for network in ("mlp", "lenet", "resnet")
        for mode, count in (("plain", 1), ("eager", 1), ("ours", 1), ("ours", 2))
    ]
    for row in rows:
        assert row.seconds_per_child_epoch > 0
        plain = next(other for other in rows if other.network == row.network and other.mode == "plain")
        assert row.speedup_over_plain == pytest.approx(plain.seconds_per_child_epoch / row.seconds_per_child_epoch)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_the_plain_loop_trains_the_same_child(number):
    """The child anybody would write gives the logits of ours, so the loops do the same work."""
    case = replace(speed.cases(CPU, True)[number], samples=8)
    network, task = speed.known_network(case, CPU)
    own, forward = speed._child(case, network, CPU)
    children = network.grow([case.widths], 10, seeds=[0])
    assert isinstance(children, Children)
    torch.testing.assert_close(forward(task.train.inputs), children(task.train.inputs)[0])
    trained = [tensor for tensor in own.values() if tensor.requires_grad]
    assert sum(tensor.numel() for tensor in trained) == sum(p.numel() for p in children.parameters.values())


def test_a_compiled_module_of_a_childs_size_is_measured_where_there_is_one(tiny, monkeypatch):
    """Compiling takes a minute, and is PyTorch's business: here the module stays as it is."""
    given = []
    monkeypatch.setattr(torch, "compile", lambda module: given.append(module) or module)
    rows = speed.measure(CPU, quick=True, compiled=True, children=(1,), tell=lambda _row: None)
    assert [row.network for row in rows if row.mode == "compiled"] == ["mlp", "resnet"]
    for case in [case for case in speed.cases(CPU, True) if case.grown]:
        known, grown = trace(case.module()).widths, trace(case.grown()).widths
        assert grown == tuple(old + new for old, new in zip(known, case.widths, strict=True))
    image = next(module for module in given if hasattr(module, "stem"))
    assert image.stem.weight.is_contiguous(memory_format=torch.channels_last)


def test_the_command_prints_json(tiny, monkeypatch, capsys):
    import sys

    from bocl.cli.main import main

    monkeypatch.setattr(sys, "argv", ["bocl", "bench", "--quick", "--json", "--device", "cpu"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {frozenset(row) for row in rows} == {frozenset(FIELDS)}
    assert all(row["peak_memory_mb"] > 50 for row in rows), "the whole process, PyTorch included"


def test_a_prediction_is_put_beside_a_plain_module_of_the_same_weights(monkeypatch):
    compared = []

    def compare(plain, predict, x, *, rounds):
        torch.testing.assert_close(plain(x), predict(x))
        compared.append(str(x.dtype).removeprefix("torch."))
        return 1e-6, 3e-6

    monkeypatch.setattr(prediction, "_seconds", compare)
    told = []
    rows = prediction.measure_predictions(CPU, quick=True, tell=told.append)
    assert told == rows
    measured = [(kind, *count) for kind in ("float32", "uint8") for count in ((1, 0), (5, 0), (5, 4))]
    assert [(row.samples, row.tasks, row.task) for row in rows] == measured
    assert compared == [row.samples for row in rows]
    assert {(row.plain_microseconds, row.predict_microseconds) for row in rows} == {(1, 3)}
    assert [row.times_plain for row in rows] == pytest.approx([3] * 6)


def test_the_command_prints_what_a_prediction_costs(monkeypatch, capsys):
    import sys

    from bocl.cli.main import main

    monkeypatch.setattr(prediction, "_seconds", lambda *_, **__: (2e-5, 3e-5))
    monkeypatch.setattr(sys, "argv", ["bocl", "bench", "--predict", "--quick", "--device", "cpu"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert all("plain    20.0 µs  predict    30.0 µs   1.50 x plain" in line for line in lines)
