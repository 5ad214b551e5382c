"""A task's network computes, and is trained as, the nn.Module it was traced from."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from network_examples import NETWORKS, copy_into, grown, make_task
from torch import nn

from bocl.networks.architectures import lenet, mlp, resnet
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings
from bocl.networks.trace import trace
from bocl.seeding import seed_for
from bocl.training.batches import epoch_order
from bocl.training.recipe import Recipe
from bocl.training.trainer import train

MODULES = {
    **{name: (make, (2, 6, 6)) for name, make in NETWORKS.items()},
    "lenet": (lambda: lenet(1, 3), (1, 32, 32)),
    "resnet": (lambda: resnet(2, (4, 6), 1, 3), (2, 6, 6)),
    "conv1d": (
        lambda: nn.Sequential(
            nn.Conv1d(2, 4, 3, stride=2, dilation=2, padding=1),
            nn.BatchNorm1d(4, eps=1e-3, momentum=0.3),
            nn.GELU(),
            nn.AvgPool1d(2, padding=1, count_include_pad=False),
            nn.Conv1d(4, 3, 3, padding="same", bias=False),
            nn.GroupNorm(3, 3, affine=False),
            nn.Flatten(),
            nn.Linear(9, 6),
            nn.BatchNorm1d(6, affine=False),
            nn.LeakyReLU(0.2),
            nn.Linear(6, 3, bias=False),
        ),
        (2, 12),
    ),
    "conv3d": (
        lambda: nn.Sequential(
            nn.Conv3d(1, 3, 2), nn.Softplus(), nn.MaxPool3d(2, stride=1), nn.Flatten(), nn.Linear(24, 3)
        ),
        (1, 4, 4, 4),
    ),
    "norm on raw input": (
        lambda: nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(72, 4), nn.Tanh(), nn.Linear(4, 3)),
        (2, 6, 6),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_first_task_in_compact_form_is_the_module_in_evaluation(name):
    make, shape = MODULES[name]
    module = make().eval()
    network = ExpandableNetwork(trace(module))
    children = network.grow([network.graph.widths], 3, seeds=[0])
    train(children, [make_task(shape=shape, samples=16)], Recipe(batch_size=8, epochs=2), seed=0)
    network.commit(children.growth(0))
    copy_into(module, network.growths[0].tensors)
    x = make_task(shape=shape, seed=1).validation.inputs
    with torch.no_grad():
        expected = module(x)
    torch.testing.assert_close(network.predict(x, 0), expected)
    torch.testing.assert_close(children(x)[0].detach(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("optimiser", "schedule", "decay"),
    [("sgd", "constant", 0.0), ("sgd", "cosine", 1e-2), ("adam", "constant", 1e-2), ("adam", "cosine", 0.0)],
)
@pytest.mark.parametrize("name", MODULES)
def test_training_a_first_task_is_a_plain_loop_on_the_module(name, optimiser, schedule, decay):
    make, shape = MODULES[name]
    module = make()
    network = ExpandableNetwork(trace(module))
    module.double().train()
    children = network.grow([network.graph.widths], 3, seeds=[0], dtype=torch.float64)
    copy_into(module, children.growth(0).tensors)
    task = make_task(shape=shape, samples=20, dtype=torch.float64)
    recipe = Recipe(optimiser, 0.02, 0.8, decay, batch_size=8, epochs=2, schedule=schedule)
    (fit,) = train(children, [task], recipe, seed=3)

    if optimiser == "sgd":
        steps = torch.optim.SGD(module.parameters(), 0.02, momentum=0.8, weight_decay=decay)
    else:
        steps = torch.optim.Adam(module.parameters(), 0.02, weight_decay=decay)
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(steps, T_max=6)
    order = torch.Generator().manual_seed(seed_for(3, "order", 0))
    losses = []
    for _ in range(2):
        losses.clear()
        for batch in epoch_order(20, 8, order):
            loss = F.cross_entropy(module(task.train.inputs[batch]), task.train.labels[batch])
            steps.zero_grad()
            loss.backward()
            steps.step()
            losses.append(loss.item())
            if schedule == "cosine":
                rates.step()

    reference = copy.deepcopy(module)
    copy_into(reference, children.growth(0).tensors)
    for (key, mine), theirs in zip(reference.state_dict().items(), module.state_dict().values(), strict=True):
        if not key.endswith("num_batches_tracked"):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-9, msg=lambda m, k=key: f"{k}: {m}")
    assert fit.loss == pytest.approx(sum(losses) / 3, rel=1e-9)
    with torch.no_grad():
        right = module.eval()(task.validation.inputs).argmax(1) == task.validation.labels
    assert fit.accuracy == pytest.approx(right.double().mean().item())


@pytest.mark.parametrize("norm", [None, nn.BatchNorm2d])
def test_a_grown_task_without_attention_is_a_module_of_the_grown_widths(norm):
    def make(first: int, second: int, third: int, classes: int) -> nn.Module:
        layers = [nn.Conv2d(2, first, 3, padding=1), norm(first) if norm else nn.Identity(), nn.ReLU(), nn.MaxPool2d(2)]
        layers += [nn.Conv2d(first, second, 2), norm(second) if norm else nn.Identity(), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*layers, nn.Linear(4 * second, third), nn.ReLU(), nn.Linear(third, classes))

    network = grown(make(4, 3, 5, 3), [(1, 2, 0), (0, 1, 3)], GrowthSettings(attention=False))
    wide = make(5, 6, 8, 3).eval()
    copy_into(
        wide, {n.replace("/weight", "/rows") if n[:5] == "layer" else n: t for n, t in network.tasks[2].weights.items()}
    )
    x = make_task(seed=2).validation.inputs
    with torch.no_grad():
        torch.testing.assert_close(network.predict(x, 2), wide(x))


def test_group_norm_keeps_the_blocks_of_earlier_tasks_and_adds_one_per_growth():
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    network = grown(module, [(3,), (0,), (2,)], GrowthSettings(attention=False))
    x = make_task(seed=2).validation.inputs
    w = network.tasks[3].weights
    features = F.conv2d(x, w["layer/0/weight"], w["layer/0/bias"])
    base, first, third = features.split([4, 3, 2], 1)
    normal = torch.cat([F.group_norm(base, 2), F.group_norm(first, 1), F.group_norm(third, 1)], 1)
    shifted = normal * w["norm/1/weight"].view(-1, 1, 1) + w["norm/1/bias"].view(-1, 1, 1)
    expected = torch.relu(shifted).flatten(1) @ w["head/weight"].T + w["head/bias"]
    torch.testing.assert_close(network.predict(x, 3), expected, rtol=1e-4, atol=1e-5)


def test_shipped_networks_have_the_layers_of_the_paper():
    assert [layer.name for layer in trace(lenet()).layers] == ["conv1", "conv2", "fc1", "fc2"]
    assert trace(lenet()).widths == (6, 16, 120, 84)
    assert trace(mlp(784, [312, 128])).widths == (312, 128)
    assert lenet()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert resnet()(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
