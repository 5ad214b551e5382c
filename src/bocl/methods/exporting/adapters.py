"""One task of a learner that grows by low-rank factors, in the forms that other libraries read.

    peft      adapter_config.json, adapter_model.safetensors: what PeftModel.from_pretrained(base, folder) loads
    merged    model.safetensors: the module's own tensors with the factors added in, for module.load_state_dict

Where the module has a head, the task's is part of both: a linear layer with a bias, for which there must be one in the
module before either is loaded. Otherwise it is in head.safetensors: logits are features @ weight.T + bias. A README.md
says which, and how to load it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from math import sqrt
from typing import Any, Literal

import torch
from safetensors.numpy import save as pack_tensors
from safetensors.torch import load
from torch import Tensor, nn

from bocl.errors import InputError
from bocl.methods.exporting.card import listed, plain
from bocl.methods.method import Learner
from bocl.methods.seen import SeenTask
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.modules import every_part_called
from bocl.networks.low_rank.network import FactoredNetwork, TaskModule, alike, made_up_samples
from bocl.networks.task_modules import HeadedModule
from bocl.training.precision import repeatable_products

_PREFIX = "base_model.model."  # before every name in an adapter's file
_OF_NORM = {"weight": "weight", "bias": "bias", "mean": "running_mean", "var": "running_var"}  # as PyTorch calls it
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_SAME_FEATURES = 1e-3  # adding factors to float32 weights changes features by about 1e-6 of their size


Adapter = Literal["peft", "merged"]


def adapter_files(learner: Learner, number: int, to: Adapter) -> dict[str, bytes]:
    """Return the files of one task, by name."""
    network = _factored(learner, to)
    backbone, own = network.graph, network.tasks[number]
    files = _peft(backbone, own.weights) if to == "peft" else _merged(backbone, own, learner.seen[number])
    if backbone.head is None:
        files["head.safetensors"] = _packed({name: own.weights[f"head/{name}"] for name in ("weight", "bias")})
    if learner.text is not None:
        files["tokenizer.json"] = learner.text.tokenizer.encode()
    files["README.md"] = _readme(network, learner.seen[number], number, type(learner).__name__, to).encode()
    return files


def run_adapter(learner: Learner, number: int, to: Adapter, files: Mapping[str, bytes]) -> Callable[[Tensor], Tensor]:
    """Return what the files of a task compute, read again as those do for whom they are written."""
    network = _factored(learner, to)
    backbone, module = network.graph, learner.module(number)
    tensors = load(files["adapter_model.safetensors" if to == "peft" else "model.safetensors"])
    tensors = {name.removeprefix(_PREFIX): tensor.to(backbone.device) for name, tensor in tensors.items()}
    apart = load(files["head.safetensors"]) if "head.safetensors" in files else {}
    head = [
        apart[name].to(backbone.device) if backbone.head is None else tensors[f"{backbone.head}.{name}"]
        for name in ("weight", "bias")
    ]
    if to == "merged":
        body = deepcopy(backbone.module)
        body.load_state_dict({name: tensor for name, tensor in tensors.items() if name in backbone.tensors})
    else:
        body = _with_adapter(backbone, tensors, json.loads(files["adapter_config.json"]), *head)
    module.network = HeadedModule(body, *head)

    def compute(samples: Tensor) -> Tensor:
        with torch.no_grad(), repeatable_products("float32"):
            logits: Tensor = module(samples.to(backbone.device))
        return logits.cpu()

    return compute


def _factored(learner: Learner, to: Adapter) -> FactoredNetwork:
    if not isinstance(learner.network, FactoredNetwork):
        raise InputError(
            f"method {learner.name} did not grow by low-rank factors (growth.form = 'low-rank'), and nothing else is "
            f"exported as {to}; pt2, onnx and safetensors take every task"
        )
    return learner.network


def _with_adapter(
    backbone: Backbone, tensors: Mapping[str, Tensor], config: Mapping[str, Any], weight: Tensor, bias: Tensor
) -> nn.Module:
    """Return the module with the factors of an adapter's files, and with its own norms: W x + α/√r B (A x)."""
    weights = {"head/weight": weight, "head/bias": bias}
    for layer in backbone.plan.layers:
        down, up = (tensors.get(f"{layer.name}.lora_{side}.weight") for side in "AB")
        if down is not None and up is not None:
            rank = config["rank_pattern"][re.escape(layer.name)]
            weights[f"factor/{layer.name}/down"] = down
            weights[f"factor/{layer.name}/up"] = up.flatten(1) * (config["lora_alpha"] / sqrt(rank))
    for name, kinds in backbone.norms_by_name.items():
        weights |= {f"norm/{name}/{kind}": tensors[f"{name}.{_OF_NORM[kind]}"] for kind in kinds}
    return TaskModule(backbone, weights).module


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
                f"'{layer.name}' has dilation {layer.dilation}, which PEFT leaves out; export the task as merged"
            )
        part = backbone.module.get_submodule(layer.name)
        if layer.kernel and type(part) is not _CONVOLUTIONS[len(layer.kernel) - 1]:
            raise InputError(
                f"PEFT makes factors of the class of '{layer.name}', {type(part).__name__}, which may change them; "
                "export the task as merged, or save the learner"
            )
        ranks[layer.name] = len(down)
        up = up / (alpha / sqrt(len(down)))
        tensors[f"{_PREFIX}{layer.name}.lora_A.weight"] = down
        tensors[f"{_PREFIX}{layer.name}.lora_B.weight"] = up.view(*up.shape, *(1,) * len(layer.kernel))
    targets = list(ranks) or [backbone.plan.layers[0].name]  # PEFT asks for one
    saved = [*backbone.norms_by_name, *([] if backbone.head is None else [backbone.head])]
    _check_told_apart(backbone.module, saved, targets)
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
        "target_modules": "|".join(map(re.escape, targets)),  # as a pattern, names match whole; in a list, by their end
        "rank_pattern": {re.escape(name): ranks[name] for name in sorted(ranks, key=len, reverse=True)},
        "alpha_pattern": {},
        "modules_to_save": saved or None,
    }
    config = json.dumps(facts, indent=2) + "\n"
    return {"adapter_config.json": config.encode(), "adapter_model.safetensors": _packed(tensors)}


def _check_told_apart(module: nn.Module, saved: Sequence[str], targets: Sequence[str]) -> None:
    """Refuse names of norms and of the head that PEFT takes for other layers too: it looks at how a name ends."""
    names = [name for name, _ in module.named_modules(remove_duplicate=False)]
    for own in saved:
        ends_alike = [name for name in names if name.endswith(own) and name not in saved]
        left_out = [name for name in targets if re.match(rf"(.*\.)?{own}($|\.)", name)]
        for other in (*ends_alike, *left_out):
            raise InputError(
                f"'{own}' is the task's own, but PEFT would take '{other}' for it, because of its name; export the "
                "task as merged"
            )


def _merged(backbone: Backbone, own: TaskModule, about: SeenTask) -> dict[str, bytes]:
    """Return the module's tensors with up · down added to the weight of every layer that has factors."""
    tensors, weights = dict(backbone.tensors), own.weights
    for layer in backbone.plan.layers:
        down, up = (weights.get(f"factor/{layer.name}/{side}") for side in ("down", "up"))
        if down is not None and up is not None:
            name = f"{layer.name}.weight"
            if name not in tensors:
                raise InputError(
                    f"'{layer.name}' makes its weight from other tensors, so no factors can be added to it; export the "
                    "task as peft"
                )
            tensors[name] = tensors[name] + torch.tensordot(up, down, 1)
    tensors |= _own_tensors(backbone, weights)
    _check_merged(backbone, tensors, own, about)
    return {"model.safetensors": _packed(tensors)}


def _check_merged(backbone: Backbone, tensors: Mapping[str, Tensor], own: TaskModule, about: SeenTask) -> None:
    """Refuse weights with which the module computes other features than the task, on samples that are made up."""
    x = made_up_samples(about.shape, about.padding).to(backbone.device)
    with torch.no_grad(), every_part_called(), repeatable_products("float32"):
        try:
            wanted = own.features(x)
        except Exception:  # the module may fail in any way on samples that are none of a task
            return
        module = deepcopy(backbone.module)
        module.load_state_dict({name: tensor for name, tensor in tensors.items() if name in backbone.tensors})
        same = alike(module(x), wanted, _SAME_FEATURES)
    if not same and bool(wanted.isfinite().all()):
        raise InputError(
            f"{backbone.description.kind} would not give the task's features with merged weights: layers share one, or "
            "a layer changes its own before it is used; export the task as peft"
        )


def _own_tensors(backbone: Backbone, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what takes the place of the module's own tensors, by its names: norms of the task, and the head."""
    found = {
        f"{name}.{_OF_NORM[kind]}": weights[f"norm/{name}/{kind}"]
        for name, kinds in backbone.norms_by_name.items()
        for kind in kinds
    }
    if backbone.head is not None:
        found |= {f"{backbone.head}.{name}": weights[f"head/{name}"] for name in ("weight", "bias")}
    return found


def _packed(tensors: Mapping[str, Tensor]) -> bytes:
    plain = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    return pack_tensors(plain, metadata={"format": "pt"})


def _readme(network: FactoredNetwork, about: SeenTask, number: int, learner: str, to: str) -> str:
    """Return a card as on the Hugging Face Hub: what the task is, and how it is loaded."""
    backbone, growth = network.graph, network.growths[number]
    kind, added = backbone.description.kind, sum(network.parameters_by_task()[number].values())
    ranks = [f"{rank} in {group.name}" for group, rank in zip(backbone.groups, growth.widths, strict=True) if rank]
    reads = [str(task + 1) for task in growth.reads if any(network.growths[task].widths)]
    lines = [
        "---",
        f"base_model: {kind}",
        *(["library_name: peft"] if to == "peft" else []),
        "tags:",
        "- bocl",
        *(["- lora"] if to == "peft" else []),
        "---",
        "",
        f"# {plain(about.name)}",
        "",
        f"Task {number + 1} of a {learner} learner, on a {kind} whose own weights were not changed.",
        "",
        f"- Classes, in the order of the logits: {listed(map(str, about.class_labels))}.",
        f"- Samples: shape {about.shape}{_sample_words(about)}.",
        f"- Size: {added:,} parameters of its own, next to {backbone.parameters():,} of the module.",
        *([f"- Ranks: {', '.join(ranks)}."] if ranks else []),
        *([f"- It reads the factors of task {', '.join(reads)}, which are part of these files."] if reads else []),
        "",
        *_loading(backbone, about.classes, to),
    ]
    return "\n".join(lines) + "\n"


def _loading(backbone: Backbone, classes: int, to: str) -> list[str]:
    """Return the lines that say how an export is loaded."""
    head, code = backbone.head, []
    said = [f"`module` is {'the pretrained' if to == 'peft' else 'a'} {backbone.description.kind}."]
    if head is not None:
        said.append("Its head gives way to the task's, which has a bias even where the module's has none.")
        place = re.sub(r"\.(\d+)", r"[\1]", f".{head}")
        code.append(f"module{place} = torch.nn.Linear({backbone.features}, {classes})")
    if to == "peft":
        code.append('module = peft.PeftModel.from_pretrained(module, "FOLDER")')
    else:
        code.append('module.load_state_dict(safetensors.torch.load_file("FOLDER/model.safetensors"))')
    code.append("module.eval()")
    if to == "peft" and any(isinstance(part, nn.TransformerEncoderLayer) for part in backbone.module.modules()):
        said.append("PyTorch's own transformer layers compute past an adapter in evaluation mode if they may.")
        code.append("torch.backends.mha.set_fastpath_enabled(False)")
    if head is None:
        said.append("It gives features, and the head of the task stands apart.")
        code.append('head = safetensors.torch.load_file("FOLDER/head.safetensors")')
        code.append('logits = module(x) @ head["weight"].T + head["bias"]')
    else:
        code.append("logits = module(x)")
    return ["## Load it", "", " ".join(said), "", "```python", *code, "```"]


def _sample_words(about: SeenTask) -> str:
    """Return how samples are made ready for the module, in words."""
    if about.padding is not None:
        return f", token ids, where {about.padding} stands for no token"
    if not about.in_bytes and about.mean == (0.0,):
        return ""
    return f", scaled as (x{' / 255' if about.in_bytes else ''} - {list(about.mean)}) / {list(about.std)}"
