"""A captured step is the step it was captured from. These run where there is a GPU."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from training_examples import children, easy_task

from bocl.methods.gem import GEM
from bocl.networks.architectures import lenet, mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.plain import PlainNetwork
from bocl.networks.trace import trace
from bocl.tasks.arrays import from_arrays
from bocl.training.batches import Batch, DeviceSplit, DeviceTask
from bocl.training.gpu_lock import holding_gpu
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.steps import EagerStep, GraphedStep, StepCache, make_step
from bocl.training.trainer import train

RECIPE = Recipe("sgd", 0.05, batch_size=16, epochs=3, schedule="cosine", precision="float32")


def on_gpu():
    task = easy_task()
    train_split, validation = (
        DeviceSplit(split.inputs.cuda(), split.labels.cuda()) for split in (task.train, task.validation)
    )
    return replace(task, train=train_split, validation=validation)


def gpu_children(count):
    from bocl.networks.stacked import Children

    made = children(count)
    return Children(made.graph, None, [made.growth(index) for index in range(count)], device="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("change", [{"average": "last"}, {"average": "exponential", "average_share": 0.2}, {}])
@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_a_captured_training_is_the_eager_one(optimiser, change):
    recipe = replace(RECIPE, optimiser=optimiser, **change)
    captured, eager = gpu_children(3), gpu_children(3)
    fits = [train(captured, [on_gpu()], recipe, seed=0), train(eager, [on_gpu()], recipe, seed=0, graphed=False)]
    assert fits[0] == fits[1]
    for name, tensor in captured.state.items():
        torch.testing.assert_close(tensor, eager.state[name], rtol=1e-6, atol=1e-7)


def pull(parameters):
    for tensor in parameters.values():
        tensor.grad.mul_(0.5).add_(tensor)


def pull_as_the_host_decides(parameters):
    """Pull harder where gradients are long: the host reads what one graph leaves and writes what the next one takes."""
    length = torch.stack([tensor.grad.norm() for tensor in parameters.values()]).norm()
    strength = torch.zeros((), device="cuda")
    yield lambda: strength.fill_(1.0 if length.item() > 0.5 else 0.5)
    for tensor in parameters.values():
        tensor.grad.add_(strength * tensor)


def shrink(parameters, step_size):
    for tensor in parameters.values():
        tensor.div_(1 + 0.1 * step_size(tensor))


HOOKS = {
    "tensor operations": Hooks(adjust_gradients=pull),
    "the host between": Hooks(adjust_gradients=pull_as_the_host_decides),
    "after the step": Hooks(proximal=shrink),
}


@pytest.mark.gpu
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("hook", HOOKS)
def test_hooks_are_captured_too(hook, optimiser):
    recipe = replace(RECIPE, optimiser=optimiser)
    hooks = HOOKS[hook]
    captured, eager, free = gpu_children(2), gpu_children(2), gpu_children(2)
    assert isinstance(make_step(gpu_children(2), [on_gpu()], recipe, hooks), GraphedStep)
    train(captured, [on_gpu()], recipe, seed=0, hooks=hooks)
    train(eager, [on_gpu()], recipe, seed=0, graphed=False, hooks=hooks)
    train(free, [on_gpu()], recipe, seed=0)
    for name, tensor in captured.state.items():
        torch.testing.assert_close(tensor, eager.state[name], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(captured.state["head/weight"], free.state["head/weight"], rtol=0.01)


@pytest.mark.gpu
def test_the_host_has_its_say_in_every_captured_step():
    told = []

    def count(parameters):
        yield lambda: told.append(len(told))

    step = make_step(gpu_children(1), [on_gpu()], RECIPE, Hooks(adjust_gradients=count))
    assert isinstance(step, GraphedStep)
    before = len(told)
    for _ in range(5):
        step(on_gpu(), Batch(torch.arange(16)), 0.05)
    assert len(told) == before + 5


@pytest.mark.gpu
@pytest.mark.parametrize("network", [mlp(3072, [8], 4), lenet(3, 4)], ids=["mlp", "lenet"])
def test_steering_by_memories_is_captured(network, caplog, monkeypatch):
    draw = np.random.default_rng(0)
    arrays = [(draw.normal(size=(48, 3, 32, 32)).astype("float32"), np.arange(48) % 4) for _ in range(3)]

    def learnt():
        learner = GEM(network, recipe=replace(RECIPE, epochs=2), device="cuda")
        for task in from_arrays(arrays):
            learner.learn(task)
        return learner.network.tensors

    with caplog.at_level("INFO", logger="bocl"):
        captured = learnt()
    assert "without a CUDA graph" not in caplog.text
    monkeypatch.setattr("bocl.training.trainer.make_step", lambda *given, **_: EagerStep(given[0], *given[2:]))
    for name, tensor in learnt().items():
        torch.testing.assert_close(tensor, captured[name], rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_several_tasks_are_captured_too(optimiser):
    def two_heads():
        network = PlainNetwork(trace(mlp(4, [6], 3)), device="cuda")
        for task in range(2):
            network.add_task(3, seed=task)
        return network.trainable()

    tasks = [replace(on_gpu(), index=0), replace(on_gpu(), index=1)]
    recipe = replace(RECIPE, optimiser=optimiser)
    captured, eager = two_heads(), two_heads()
    fits = [train(captured, tasks, recipe, seed=0), train(eager, tasks, recipe, seed=0, graphed=False)]
    assert fits[0][0].accuracy == fits[1][0].accuracy
    for name, tensor in captured.state.items():  # the eager optimiser is not the fused one: its last bits differ
        torch.testing.assert_close(tensor, eager.state[name], rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_weights_of_classes_are_captured_too():
    task = replace(on_gpu(), class_weights=torch.tensor([0.2, 0.3, 2.5], device="cuda"))
    captured, eager, unweighted = gpu_children(2), gpu_children(2), gpu_children(2)
    train(captured, [task], RECIPE, seed=0)
    train(eager, [task], RECIPE, seed=0, graphed=False)
    train(unweighted, [on_gpu()], RECIPE, seed=0)
    for name, tensor in captured.state.items():
        torch.testing.assert_close(tensor, eager.state[name], rtol=1e-5, atol=1e-6)
    assert any(not torch.allclose(tensor, unweighted.state[name]) for name, tensor in captured.state.items())


@pytest.mark.gpu
def test_a_step_captured_once_serves_later_rounds():
    task, cache = on_gpu(), StepCache()
    first, again, alone = gpu_children(2), gpu_children(2), gpu_children(2)
    train(first, [task], RECIPE, seed=0, cache=cache)
    train(again, [task], RECIPE, seed=0, cache=cache)
    train(alone, [task], RECIPE, seed=0)
    for name, tensor in again.state.items():
        torch.testing.assert_close(tensor, alone.state[name], rtol=1e-6, atol=1e-7)


@pytest.mark.gpu
def test_a_captured_step_keeps_alive_all_it_reads():
    """Memory that is given back after the capture is filled with NaN; a later round must not read it."""
    network = ExpandableNetwork(trace(mlp(4, [64], 3)), device="cuda")
    network.commit(network.grow([network.graph.widths], 3, seeds=[0]).growth(0))
    small = on_gpu().train
    wide = DeviceSplit(small.inputs.repeat(2000, 1), small.labels.repeat(2000))
    task, cache, ends = DeviceTask("wide", 1, 3, wide, small), StepCache(), []
    for _ in range(2):
        children = network.grow([(2,)], 3, seeds=[1])
        (fit,) = train(children, [task], replace(RECIPE, batch_size=4096, epochs=1), seed=0, cache=cache)
        ends.append(fit)
        torch.cuda.synchronize()
        filled = [torch.full((size,), torch.nan, device="cuda") for size in (1 << 10, 1 << 20, 1 << 22, 1 << 24)]
        del filled
    assert ends[0] == ends[1]


@pytest.mark.gpu
def test_runs_side_by_side_end_as_if_they_were_alone():
    def ends(beside: bool) -> list[dict[str, torch.Tensor]]:
        found: dict[int, dict[str, torch.Tensor]] = {}

        def one(number: int) -> None:
            with holding_gpu(), torch.cuda.stream(torch.cuda.Stream()):
                network = gpu_children(number + 1)
                train(network, [on_gpu()], replace(RECIPE, epochs=20), seed=number)
                found[number] = {name: tensor.cpu() for name, tensor in network.state.items()}

        threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
            if not beside:
                thread.join()
        for thread in threads:
            thread.join()
        return [found[number] for number in range(3)]

    for alone, beside in zip(ends(False), ends(True), strict=True):
        assert all(torch.equal(tensor, beside[name]) for name, tensor in alone.items())


def test_without_a_gpu_the_step_is_eager():
    step = make_step(children(), [easy_task()], RECIPE, Hooks())
    assert isinstance(step, EagerStep)
