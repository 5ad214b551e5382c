"""The networks that have a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from bocl.networks.architectures import convnet, lenet, mlp, resnet
from bocl.networks.mobile import efficientnet_lite0, mobilenet_v2
from bocl.networks.text_encoder import text_encoder

NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "convnet": convnet,
    "lenet": lenet,
    "resnet": resnet,
    "efficientnet-lite0": efficientnet_lite0,
    "mobilenet-v2": mobilenet_v2,
    "text-encoder": text_encoder,
}


def make_network(name: str, arguments: dict[str, Any]) -> nn.Module:
    """Make a network by name; it remembers how it was made, so that a saved model can make it again."""
    module = NETWORKS[name](**arguments)
    module.bocl_build = {"build": name, "arguments": dict(arguments)}  # type: ignore[assignment]
    return module
