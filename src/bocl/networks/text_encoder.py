"""A text encoder of BERT's kind: token ids in, one vector for each text out.

The parts are named as in the files of published encoders, so that these can be read as they are.
"""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import Natural, PositiveInt, checked
from bocl.errors import NetworkError
from bocl.networks.architectures import leaving_random_numbers

_Size = Annotated[PositiveInt, Field(le=1_000_000)]


class _Embeddings(nn.Module):
    """Words, their places and the kind of text, each a vector, added up and normalised."""

    def __init__(self, vocabulary: int, width: int, positions: int) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(2, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, ids: Tensor) -> Tensor:
        """Map (n, length) to (n, length, width)."""
        words = self.word_embeddings(ids) + self.token_type_embeddings.weight[0]
        return self.LayerNorm(words + self.position_embeddings.weight[: ids.shape[1]])  # type: ignore[no-any-return]


class _SelfAttention(nn.Module):
    """Every token reads all others, with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Map (n, length, width) to the same; ``hidden`` (n, 1, 1, length) is -∞ where there is no token."""
        query, key, value = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        # Written out: the fused kernels of a GPU do not add gradients up in the same order every time.
        weights = (query @ key.mT / query.shape[-1] ** 0.5 + hidden).softmax(-1)
        read: Tensor = (weights @ value).transpose(1, 2).reshape(x.shape)
        return read


class _Sum(nn.Module):
    """A linear layer whose result is added to another value, and normalised."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, inner: Tensor, x: Tensor) -> Tensor:
        """Return (n, length, width)."""
        return self.LayerNorm(self.dense(inner) + x)  # type: ignore[no-any-return]


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.self = _SelfAttention(width, heads)
        self.output = _Sum(width, width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Map (n, length, width) to the same."""
        return self.output(self.self(x, hidden), x)  # type: ignore[no-any-return]


class _Widened(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, inner)
        self.activation = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, length, width) to (n, length, inner)."""
        return self.activation(self.dense(x))  # type: ignore[no-any-return]


class _Layer(nn.Module):
    """Attention, then two linear layers for each token."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.attention = _Attention(width, heads)
        self.intermediate = _Widened(width, inner)
        self.output = _Sum(inner, width)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Map (n, length, width) to the same."""
        x = self.attention(x, hidden)
        return self.output(self.intermediate(x), x)  # type: ignore[no-any-return]


class _Layers(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.layer = nn.ModuleList(_Layer(width, heads, inner) for _ in range(layers))

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """Map (n, length, width) to the same."""
        for layer in self.layer:
            x = layer(x, hidden)
        return x


class TextEncoder(nn.Module):
    """Embeddings, layers, and the mean over all tokens of a text."""

    def __init__(
        self, vocabulary: int, width: int, layers: int, heads: int, inner: int, positions: int, padding: int
    ) -> None:
        super().__init__()
        self.padding = padding
        self.embeddings = _Embeddings(vocabulary, width, positions)
        self.encoder = _Layers(layers, width, heads, inner)

    def forward(self, ids: Tensor) -> Tensor:
        """Map token ids (n, length) to features (n, width); the id ``padding`` is no token."""
        tokens = ids != self.padding
        hidden = torch.zeros_like(tokens, dtype=torch.float32).masked_fill_(~tokens, torch.finfo(torch.float32).min)
        x = self.encoder(self.embeddings(ids), hidden[:, None, None, :])
        weights = tokens.to(x.dtype).unsqueeze(-1)
        mean: Tensor = (x * weights).sum(1) / weights.sum(1).clamp(min=1)
        return mean


@leaving_random_numbers()
def text_encoder(
    vocabulary: int = 30_522,
    width: int = 384,
    layers: int = 6,
    heads: int = 12,
    inner: int = 1536,
    positions: int = 512,
    padding: int = 0,
) -> TextEncoder:
    """A text encoder; with its defaults that of all-MiniLM-L6-v2: 22,565,376 parameters.

    vocabulary  how many token ids there are
    width       numbers of a token's vector, and of a text's
    inner       width inside the second half of a layer
    positions   most tokens of a text
    padding     the id that is no token, with which shorter texts are filled up
    """
    sizes = {
        "vocabulary": vocabulary,
        "width": width,
        "layers": layers,
        "heads": heads,
        "inner": inner,
        "positions": positions,
    }
    found = {name: checked(f"text-encoder.{name}", size, _Size) for name, size in sizes.items()}
    if found["width"] % found["heads"]:
        raise NetworkError(
            f"text-encoder.width is {width}, which {heads} heads cannot share; make it a multiple of them"
        )
    return TextEncoder(**found, padding=checked("text-encoder.padding", padding, Natural))
