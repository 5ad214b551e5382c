"""One task of a learner that grows by low-rank factors, in the forms that other libraries read.

    peft      adapter_config.json, adapter_model.safetensors: what PeftModel.from_pretrained(base, folder) loads
    merged    model.safetensors: the module's own tensors with the factors added in, for module.load_state_dict

Where the module has a head, the task's is part of both. Otherwise it is in head.safetensors: logits are
features @ weight.T + bias. A README.md says which.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import sqrt
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.numpy import save as pack_tensors
from torch import Tensor, nn

from bocl.errors import FolderError, InputError, did_you_mean
from bocl.methods.method import Learner
from bocl.methods.seen import task_number
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.network import FactoredNetwork
from bocl.records.files import make_folder, write_whole
from bocl.training.surroundings import usual_surroundings
from bocl.wording import shown

Format = Literal["peft", "merged"]
FORMATS: tuple[Format, ...] = get_args(Format)
_PREFIX = "base_model.model."  # before every name in an adapter's file


@usual_surroundings()
def export(learner: Learner, task: int | str, folder: str | Path, to: str = "peft") -> Path:
    """Write one task to a new or empty folder, and return that folder."""
    if to not in FORMATS:
        raise InputError(f"to is {shown(to)}{did_you_mean(to, FORMATS)}; a task is exported as {' or '.join(FORMATS)}")
    number = task_number(task, learner.seen)
    network = learner.network
    if not isinstance(network, FactoredNetwork):
        raise InputError(
            f"{learner.name} did not grow by low-rank factors (growth.form = 'low-rank'), and nothing else is "
            f"exported as {to}"
        )
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderError(f"{folder} is not an empty folder; give a new one")
    backbone, weights = network.graph, network.tasks[number].weights
    files = _peft(backbone, weights) if to == "peft" else _merged(backbone, weights)
    if backbone.head is None:
        files["head.safetensors"] = _packed({name: weights[f"head/{name}"] for name in ("weight", "bias")})
    files["README.md"] = _readme(learner, number, to).encode()
    make_folder(folder)
    for name, content in files.items():
        write_whole(folder / name, content)
    return folder


def _peft(backbone: Backbone, weights: Mapping[str, Tensor]) -> dict[str, bytes]:
    """Return the files of an adapter. PEFT adds α/√R · lora_B lora_A for rank R, so what scales ``up`` is taken out."""
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    alpha = backbone.settings.scale
    for layer in backbone.plan.layers:
        down, up = (weights.get(f"factor/{layer.name}/{side}") for side in ("down", "up"))
        if down is None or up is None:
            continue
        if any(size > 1 for size in layer.dilation):
            raise InputError(
                f"'{layer.name}' has dilation {layer.dilation}, which PEFT leaves out; export it as merged"
            )
        ranks[layer.name] = len(down)
        up = up / (alpha / sqrt(len(down)))
        tensors[f"{_PREFIX}{layer.name}.lora_A.weight"] = down
        tensors[f"{_PREFIX}{layer.name}.lora_B.weight"] = up.view(*up.shape, *(1,) * len(layer.kernel))
    saved = [*backbone.norms_by_name, *([] if backbone.head is None else [backbone.head])]
    counts = {name: tensor for name, tensor in backbone.tensors.items() if name.endswith("num_batches_tracked")}
    counts = {name: tensor for name, tensor in counts.items() if name.rpartition(".")[0] in backbone.norms_by_name}
    tensors |= {f"{_PREFIX}{name}": tensor for name, tensor in {**_own_tensors(backbone, weights), **counts}.items()}
    facts: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": None,
        "base_model_name_or_path": backbone.description.kind,
        "inference_mode": True,
        "r": max(ranks.values(), default=1),
        "lora_alpha": alpha,
        "use_rslora": True,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": sorted(ranks) or [backbone.plan.layers[0].name],
        "rank_pattern": {re.escape(name): rank for name, rank in ranks.items()},
        "alpha_pattern": {},
        "modules_to_save": saved or None,
    }
    config = json.dumps(facts, indent=2) + "\n"
    return {"adapter_config.json": config.encode(), "adapter_model.safetensors": _packed(tensors)}


def _merged(backbone: Backbone, weights: Mapping[str, Tensor]) -> dict[str, bytes]:
    """Return the module's tensors with up · down added to the weight of every layer that has factors."""
    tensors = dict(backbone.tensors)
    for layer in backbone.plan.layers:
        down, up = (weights.get(f"factor/{layer.name}/{side}") for side in ("down", "up"))
        if down is not None and up is not None:
            name = f"{layer.name}.weight"
            tensors[name] = tensors[name] + torch.tensordot(up, down, 1)
    return {"model.safetensors": _packed({**tensors, **_own_tensors(backbone, weights)})}


def _own_tensors(backbone: Backbone, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what takes the place of the module's own tensors, by its names: norms of the task, and the head."""
    named = {"weight": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}
    found = {
        f"{name}.{named[kind]}": weights[f"norm/{name}/{kind}"]
        for name, kinds in backbone.norms_by_name.items()
        for kind in kinds
    }
    if backbone.head is not None:
        found |= {f"{backbone.head}.{name}": weights[f"head/{name}"] for name in ("weight", "bias")}
    return found


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    plain = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    return pack_tensors(plain, metadata={"format": "pt"})


def _readme(learner: Learner, number: int, to: str) -> str:
    about, backbone = learner.seen[number], learner.graph
    assert isinstance(backbone, Backbone)
    kind, classes = backbone.description.kind, ", ".join(map(str, about.class_labels))
    lines = [
        f"# {about.name}",
        "",
        f"Task {number + 1} of a {type(learner).__name__} learner, on a {kind} whose own weights were not changed.",
        "",
        f"- Classes, in the order of the logits: {classes}.",
        f"- Samples: shape {about.shape}" + (", token ids" if about.padding is not None else _scale_words(about)) + ".",
    ]
    if to == "peft" and any(isinstance(part, nn.TransformerEncoderLayer) for part in backbone.module.modules()):
        lines.append(
            "- PyTorch's own transformer layers compute past an adapter in evaluation mode; call "
            "`torch.backends.mha.set_fastpath_enabled(False)`."
        )
    if to == "peft":
        lines.append(
            f"- `peft.PeftModel.from_pretrained(base, folder)` adds it to a {kind} with its pretrained weights."
        )
    else:
        lines.append(f"- `model.safetensors` holds the state dict of a {kind}.")
    if backbone.head is None:
        lines.append("- The module gives features. Logits are `features @ weight.T + bias`, from `head.safetensors`.")
    else:
        lines.append(f"- Its head is `{backbone.head}`, with {about.classes} outputs.")
    return "\n".join(lines) + "\n"


def _scale_words(about: Any) -> str:
    scaled = f"scaled as (x{' / 255' if about.in_bytes else ''} - {list(about.mean)}) / {list(about.std)}"
    return f", {scaled}" if about.in_bytes or about.mean != (0.0,) else ""
