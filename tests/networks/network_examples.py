"""Small networks of every kind, tasks to train them on, and the check that nothing is forgotten."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from bocl.networks.architectures import mlp
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings
from bocl.networks.mobile import InvertedResidual
from bocl.networks.stacked import Children
from bocl.networks.trace import trace
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.trainer import train
from bocl.widths import Widths

IMAGE = (2, 6, 6)
BATCHES = (1, 7, 128)


def conv_net(
    norm: Callable[[int], nn.Module] | None = None, activation: Callable[[], nn.Module] = nn.ReLU
) -> nn.Module:
    """Return conv, norm, pool, conv, flatten, linear, head for 2 x 6 x 6 images: groups of 4, 3 and 5 units."""
    layers: list[nn.Module] = [nn.Conv2d(2, 4, 3, padding=1)]
    layers += [norm(4)] if norm else []
    layers += [activation(), nn.MaxPool2d(2), nn.Conv2d(4, 3, 2)]
    layers += [norm(3)] if norm else []
    layers += [activation(), nn.Flatten(), nn.Linear(12, 5), activation(), nn.Linear(5, 3)]
    return nn.Sequential(*layers)


class ResidualBlock(nn.Module):
    """Two convolutions with norms, added to their input."""

    def __init__(self, width: int, inner: int, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, inner, 3, padding=1, bias=False), norm(inner)
        self.conv2, self.norm2 = nn.Conv2d(inner, width, 3, padding=1), norm(width)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Keep the shape."""
        return self.relu(x + self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x))))))


def residual_net(norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> nn.Module:
    """Return a stem, one residual block, global average, head: groups of 4 (the stream) and 3 units."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1),
        norm(4),
        nn.ReLU(),
        ResidualBlock(4, 3, norm),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )


def mobile_net(expand: bool = True) -> nn.Module:
    """Return a stem and an inverted residual block: groups of 4 (the stream) and 8 units, depthwise convolutions."""
    block = InvertedResidual(4, 4, 2 if expand else 1, 3, 1, same=False, eps=1e-3)
    stem = [nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU6()]
    return nn.Sequential(
        *stem, block, nn.ZeroPad2d((0, 1, 0, 1)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    )


class SqueezeExcite(nn.Module):
    """Channels weighed by what their means say."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.expand = nn.Conv2d(width, inner, 1), nn.Conv2d(inner, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Keep the shape."""
        return x * torch.sigmoid(self.expand(torch.relu(self.reduce(self.pool(x)))))


class DropPath(nn.Module):
    """Stochastic depth, as others write it: it branches in training, which cannot be traced."""

    def __init__(self, drop_prob: float) -> None:
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x: Tensor) -> Tensor:
        """Drop whole samples."""
        if not self.training:
            return x
        return x * torch.empty(len(x), *(1,) * (x.dim() - 1)).bernoulli_(1 - self.drop_prob) / (1 - self.drop_prob)


def between_with_head(*layers: nn.Module) -> nn.Module:
    """Return a first convolution of 4 channels, these layers, and a head."""
    body = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), *layers, nn.Flatten())
    return nn.Sequential(*body, nn.Linear(body(torch.zeros(1, *IMAGE)).shape[1], 3))


def with_layer_norms() -> nn.Module:
    """Return an MLP with layer norms: groups of 6 and 5 units."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(72, 6), nn.LayerNorm(6), nn.SiLU(),
        nn.Linear(6, 5), nn.LayerNorm(5, elementwise_affine=False), nn.Hardswish(), nn.Linear(5, 3),
    )  # fmt: skip


def small_mlp() -> nn.Module:
    """Return an MLP for 2 x 6 x 6 images: groups of 6 and 5 units."""
    return mlp(72, [6, 5], 3)


def one_group(channels: int) -> nn.Module:
    """Return a group norm over all channels."""
    return nn.GroupNorm(1, channels)


NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "mlp": small_mlp,
    "cnn": conv_net,
    "cnn, batch norm": lambda: conv_net(nn.BatchNorm2d),
    "cnn, group norm": lambda: conv_net(one_group),
    "cnn, sigmoid": lambda: conv_net(activation=nn.Sigmoid),
    "residual, batch norm": residual_net,
    "residual, group norm": lambda: residual_net(one_group),
    "inverted residual": mobile_net,
    "depthwise first": lambda: mobile_net(expand=False),
    "grouped convolution": lambda: between_with_head(nn.Conv2d(4, 6, 3, groups=2), nn.ReLU()),
    "squeeze and excite": lambda: between_with_head(SqueezeExcite(4, 3), nn.MaxPool2d(2)),
    "layer norm": with_layer_norms,
}


def make_task(
    classes: int = 3,
    index: int = 0,
    *,
    shape: tuple[int, ...] = IMAGE,
    samples: int = 24,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> DeviceTask:
    """Return a task of random samples."""
    generator = torch.Generator().manual_seed(1000 * seed + index)

    def split(size: int) -> DeviceSplit:
        inputs = torch.randn(size, *shape, generator=generator, dtype=torch.float64)
        return DeviceSplit(inputs.to(dtype), torch.arange(size) % classes)

    return DeviceTask(f"task {index}", index, classes, split(samples), split(9))


def learn(
    network: ExpandableNetwork,
    z: Widths,
    classes: int,
    *,
    epochs: int = 1,
    pad_to: Widths | None = None,
    dtype: torch.dtype = torch.float32,
    reads: tuple[int, ...] | None = None,
) -> Children:
    """Grow by z, train and commit; return the children as training left them."""
    index = len(network.tasks)
    children = network.grow([z], classes, seeds=[index], pad_to=pad_to, dtype=dtype, reads=reads)
    recipe = Recipe("sgd", learning_rate=0.05, batch_size=8, epochs=epochs)
    train(children, [make_task(classes, index, dtype=dtype)], recipe, seed=index)
    network.commit(children.growth(0))
    return children


def grown(
    module: nn.Module | Graph,
    later: Sequence[Widths] = (),
    settings: GrowthSettings | None = None,
    dtype: torch.dtype = torch.float32,
) -> ExpandableNetwork:
    """Return a network that has learnt a first task and one more for every entry of ``later``."""
    graph = module if isinstance(module, Graph) else trace(module)
    network = ExpandableNetwork(graph, settings)
    for number, z in enumerate((graph.widths, *later)):
        learn(network, tuple(z), 3 + number % 2, dtype=dtype)
    return network


class Remembered:
    """What every task said and held when it was committed; ``check`` fails if any of it has changed."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(99)
        self.inputs = [torch.randn(size, *IMAGE, generator=generator) for size in BATCHES]
        self.logits: list[list[Tensor]] = []
        self.hashes: list[dict[str, str]] = []

    def take(self, network: ExpandableNetwork) -> None:
        """Remember the tasks committed since the last time."""
        for task in range(len(self.logits), len(network.tasks)):
            self.logits.append([network.predict(x, task) for x in self.inputs])
            self.hashes.append(hashes(network, task))

    def check(self, network: ExpandableNetwork) -> None:
        """Raise AssertionError naming the task and tensor that changed."""
        for task, (logits, hashed) in enumerate(zip(self.logits, self.hashes, strict=True)):
            for x, before in zip(self.inputs, logits, strict=True):
                assert torch.equal(network.predict(x, task), before), f"task {task}, batch of {len(x)}: logits"
            now = hashes(network, task)
            assert now.keys() == hashed.keys(), f"task {task}: tensors came or went"
            changed = [name for name in hashed if hashed[name] != now[name]]
            assert not changed, f"task {task}: {changed} changed"


def hashes(network: ExpandableNetwork, task: int) -> dict[str, str]:
    """Return a hash of every tensor a task stored and of every one it computes on."""
    stored = {f"stored {name}": tensor for name, tensor in network.growths[task].tensors.items()}
    used = {f"used {name}": tensor for name, tensor in network.tasks[task].weights.items()}
    return {name: hash_of(tensor) for name, tensor in (stored | used).items()}


def hash_of(tensor: Tensor) -> str:
    """Return a hash of a tensor's shape, type and bytes."""
    digest = hashlib.sha256(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
    digest.update(tensor.detach().contiguous().numpy().tobytes())
    return digest.hexdigest()


def copy_into(module: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy the tensors of a first task into the module that was traced."""
    heads = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    kinds = {"rows": "weight", "mean": "running_mean", "var": "running_var"}
    with torch.no_grad():
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            owner, _, kind = (f"{heads[-1]}/{rest}" if part == "head" else rest).rpartition("/")
            getattr(module.get_submodule(owner), kinds.get(kind, kind)).copy_(tensor)


def random_stack(kinds: Sequence[str], widths: Sequence[int], norm: str, pool: str) -> nn.Module:
    """Return a random legal network for 2 x 6 x 6 images: blocks of ``kinds``, then flatten, linear, head."""
    norms: dict[str, Callable[[int], nn.Module]] = {
        "none": lambda _: nn.Identity(),
        "batch": nn.BatchNorm2d,
        "group": one_group,
    }
    pools: dict[str, nn.Module] = {
        "none": nn.Identity(),
        "max": nn.MaxPool2d(2),
        "average": nn.AvgPool2d(2),
        "adaptive": nn.AdaptiveAvgPool2d(2),
    }
    layers: list[nn.Module] = []
    for kind, (before, width) in zip(kinds, pairwise((2, *widths)), strict=True):
        layers += [nn.Conv2d(before, width, 3, padding=1), norms[norm](width), nn.ReLU()]
        if kind == "residual":
            layers.append(ResidualBlock(width, max(1, width - 1), norms[norm]))
    side = {"none": 6, "max": 3, "average": 3, "adaptive": 2}[pool]
    layers += [pools[pool], nn.Flatten(), nn.Linear(widths[-1] * side * side, 4), nn.Tanh(), nn.Linear(4, 2)]
    return nn.Sequential(*layers)
