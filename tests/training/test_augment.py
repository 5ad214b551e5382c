"""Training images are changed anew whenever they are shown, by nothing but the seed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from training_examples import children, easy_task

from bocl.errors import InputError
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.trace import trace
from bocl.training.augment import changed, draw_changes
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.trainer import train

RECIPE = Recipe("sgd", 0.05, batch_size=8, epochs=3, augment="flip-shift")
IMAGES = torch.arange(2 * 3 * 8 * 16, dtype=torch.float32).view(2, 3, 8, 16) + 1


def image_task(samples: int = 20) -> DeviceTask:
    images = torch.randn(samples, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    split = DeviceSplit(images, torch.arange(samples) % 3)
    return DeviceTask("images", 0, 3, split, split)


def image_network(count: int = 1):
    module = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 3))
    network = ExpandableNetwork(trace(module))
    return network.grow([network.graph.widths] * count, 3, seeds=range(count))


class Watching:
    """A network that keeps what it is shown."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.zeros(1, 1))
        self.count, self.draws, self.training, self.signature = 1, False, True, "watching"
        self.parameters = self.state = {"weight": self.weight}
        self.shown: list[torch.Tensor] = []

    def precompute(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs

    def __call__(self, x, task=0, precomputed=None):
        if self.training:
            assert precomputed is None, "what is computed beforehand is of other images"
            self.shown.append(x.clone())
        return torch.zeros(1, len(x), 3) + 0 * self.weight


def test_a_mirrored_image_is_mirrored_and_another_is_not():
    found = changed(IMAGES, torch.tensor([[1, 0, 0], [0, 0, 0]]))
    assert torch.equal(found[0], IMAGES[0].flip(2))
    assert torch.equal(found[1], IMAGES[1])


def test_a_moved_image_leaves_zeros():
    found = changed(IMAGES, torch.tensor([[0, 1, -2], [0, -1, 0]]))
    assert torch.equal(found[0, :, :-1, 2:], IMAGES[0, :, 1:, :-2])
    assert not found[0, :, -1].any()
    assert not found[0, :, :, :2].any()
    assert torch.equal(found[1, :, 1:], IMAGES[1, :, :-1])
    assert not found[1, :, 0].any()


@pytest.mark.parametrize(
    ("augment", "values"),
    [("flip", ({0, 1}, {0}, {0})), ("shift", ({0}, {-1, 0, 1}, {-2, -1, 0, 1, 2}))],
)
def test_what_is_drawn_is_what_was_asked_for(augment, values):
    drawn = draw_changes(augment, torch.zeros(40, 5), IMAGES.shape, torch.Generator().manual_seed(0))
    assert drawn.shape == (40, 5, 3)
    assert tuple(set(column.tolist()) for column in drawn.flatten(0, 1).unbind(1)) == values


def test_every_epoch_shows_other_images_and_a_seed_the_same():
    watching = [Watching() for _ in range(3)]
    for network, seed in zip(watching, (0, 0, 1), strict=True):
        train(network, [image_task()], RECIPE, seed=seed)
    first, again, other = (torch.cat(network.shown) for network in watching)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    kinds = {image.numpy().tobytes() for image in first}
    assert len(kinds) > 40, "20 images, three epochs, each as good as never the same"


def test_validation_images_stay_as_they_are():
    judged = []

    class Judged(Watching):
        def __call__(self, x, task=0, precomputed=None):
            if not self.training:
                judged.append(x)
            return super().__call__(x, task, precomputed)

    train(Judged(), [image_task()], RECIPE, seed=0)
    assert torch.equal(judged[-1], image_task().validation.inputs)


def test_each_of_a_stack_sees_the_same_images():
    stack = image_network(2)
    train(stack, [image_task()], RECIPE, seed=0)
    alone = image_network(2).kept([1])
    train(alone, [image_task()], RECIPE, seed=0)
    for name, tensor in alone.growth(0).tensors.items():
        torch.testing.assert_close(stack.growth(1).tensors[name], tensor, rtol=1e-4, atol=1e-6)


def test_samples_that_are_no_images_are_refused_in_one_line():
    with pytest.raises(InputError, match=r"recipe\.augment is flip, which changes images.*\(4,\).*leave it out"):
        train(children(), [easy_task()], replace(RECIPE, augment="flip"), seed=0)
