"""Modules that grow by low-rank factors, with samples for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bocl.networks.growth import GrowthSettings
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.network import FactoredNetwork
from bocl.networks.mobile import InvertedResidual
from bocl.networks.text_encoder import text_encoder
from bocl.widths import Widths


class Transformer(nn.Module):
    """PyTorch's own transformer layers, with dropout and norms, on series (n, 12) read as three tokens."""

    def __init__(self, layers: int = 2, width: int = 8) -> None:
        super().__init__()
        self.tokens = nn.Linear(4, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 2, 12, dropout=0.1, batch_first=True) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, 5)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, 12) to (n, 5)."""
        hidden = self.tokens(x.view(len(x), 3, 4))
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(self.norm(hidden.mean(1)))


class Attention(nn.Module):
    """A block as in a vision transformer: norms come first, and every part is a module."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.2), nn.Linear(2 * width, width))
        self.last = nn.Dropout(0.1) if kind == "dropout" else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, tokens, width) to the same."""
        query, key, value = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.proj((query @ key.mT / x.shape[-1] ** 0.5).softmax(-1) @ value)
        return x + self.last(self.mlp(self.norm2(x)))


class Vision(nn.Module):
    """A small vision transformer without a head: (n, 2, 8, 8) to (n, 6)."""

    def __init__(self, depth: int = 3, width: int = 6, kind: str = "dropout") -> None:
        super().__init__()
        self.patches = nn.Conv2d(2, width, 4, 4)
        self.blocks = nn.Sequential(*(Attention(width, kind) for _ in range(depth)))

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, 2, 8, 8) to (n, width)."""
        return self.blocks(self.patches(x).flatten(2).mT).mean(1)


class Mobile(nn.Module):
    """Inverted residual blocks with batch norms, and a group norm at the end."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, 2, padding=1)
        self.blocks = nn.Sequential(
            *(InvertedResidual(4, 4, 2, 3, 1, same=True, eps=1e-3) for _ in range(depth)),
            InvertedResidual(4, 6, 2, 3, 2, same=True, eps=1e-3),
        )
        self.norm = nn.GroupNorm(2, 6)
        self.fc = nn.Linear(6, 7)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, 2, 8, 8) to (n, 7)."""
        return self.fc(self.norm(self.blocks(self.stem(x))).mean((2, 3)))


class Series(nn.Module):
    """Convolutions over time of several kinds, as a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(3, 5, 3, padding="same"), nn.BatchNorm1d(5), nn.ReLU(),
            nn.Conv1d(5, 5, 3, dilation=2), nn.ReLU(), nn.Flatten(), nn.Linear(30, 6), nn.Tanh(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, 3, 10) to (n, 6)."""
        return self.body(x)


def _encoder() -> nn.Module:
    return text_encoder(vocabulary=30, width=8, layers=3, heads=2, inner=12, positions=16)


#: {name: (what makes the module, the shape of a sample)}
MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "transformer": (Transformer, (12,)),
    "vision": (Vision, (2, 8, 8)),
    "mobile": (Mobile, (2, 8, 8)),
    "series": (Series, (3, 10)),
    "text": (_encoder, (9,)),
}


def samples(name: str, count: int = 7, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return samples for a module; texts are of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    shape = MODULES[name][1]
    if name != "text":
        return torch.randn(count, *shape, generator=generator, dtype=dtype)
    ids = torch.randint(1, 30, (count, *shape), generator=generator, dtype=torch.int32)
    lengths = torch.randint(1, shape[0] + 1, (count, 1), generator=generator)
    return torch.where(torch.arange(shape[0]) < lengths, ids, 0).int()


def trained(module: nn.Module, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Give a module weights and statistics that nobody starts from."""
    generator = torch.Generator().manual_seed(seed)
    module = module.to(dtype)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                noise = torch.rand(tensor.shape, generator=generator, dtype=dtype)
                tensor.copy_(0.5 + noise if "var" in name else tensor + 0.3 * (noise - 0.5))
    return module


def factored(
    name: str,
    tasks: Sequence[tuple[Widths, tuple[int, ...]]] = (),
    dtype: torch.dtype = torch.float32,
    **settings: object,
) -> FactoredNetwork:
    """Return a network that has learnt tasks of these ranks, which read these tasks; their factors are random."""
    backbone = Backbone(trained(MODULES[name][0]()), GrowthSettings(form="low-rank", **settings))
    backbone.fit(samples(name, 3))
    if dtype != torch.float32:  # only in tests, which look closely
        backbone.module.to(dtype)
        for found in ("tensors", "norms"):
            backbone.__dict__.pop(found, None)
        backbone._example, backbone._cuts = samples(name, 3, dtype=dtype), {}
    network = FactoredNetwork(backbone)
    for number, (ranks, reads) in enumerate(tasks):
        children = network.grow([ranks], 3, seeds=[number], reads=reads, dtype=dtype)
        randomise(children, number)
        network.commit(children.growth(0))
    return network


def randomise(children: object, seed: int = 0) -> None:
    """Give every tensor of children random values, each child within its own ranks."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in sorted({**children.parameters, **children.buffers}.items()):  # type: ignore[attr-defined]
            for index, corners in enumerate(children._corners):  # type: ignore[attr-defined]
                place = (index, *(slice(size) for size in corners[name]))
                values = torch.rand(corners[name], generator=generator, dtype=tensor.dtype)
                tensor[place] = values + 0.5 if name.endswith("/var") else values - 0.5


def ranks(network: FactoredNetwork, *numbers: int) -> Widths:
    """Return ranks for all groups of a network: these numbers, over and over."""
    return tuple(numbers[at % len(numbers)] for at in range(len(network.graph.groups)))
