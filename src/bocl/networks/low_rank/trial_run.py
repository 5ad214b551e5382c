"""What a few samples show about a trained module, before any task is learnt.

A module is any code. It runs here on samples (n, *shape) in evaluation mode, and is refused where what it computes for
a sample is not always the same, or not the same among other samples. The module that a function is given is a copy,
which it may spoil.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from bocl.errors import NetworkError
from bocl.networks.low_rank.modules import every_part_called

if TYPE_CHECKING:
    from bocl.networks.low_rank.backbone import Backbone
    from bocl.networks.low_rank.children import FactoredChildren
    from bocl.networks.low_rank.network import FactoredNetwork

#: Most by which two results may differ, as a share of the largest number in them: of one computation done again, and of
#: samples computed with more or fewer others, which rounds differently.
_AGAIN, _OTHERS = 1e-5, 1e-2
_FACTORS = 1.0  # about how much the factors of ``check_together`` make, as a share of what their layer does
_WAY_OUT = (
    "Build the module with batch_first=True, so that samples are in the first dimension everywhere inside, leave such "
    "layers out with patterns in growth.groups, or grow by units"
)
_NO_GRADIENT = "take torch.no_grad(), torch.inference_mode() and .detach() out of its forward"


def run_module(module: nn.Module, x: Tensor, kind: str, advice: str = "") -> Tensor:
    """Return what a module of a kind returns for x, or say in one line why it cannot take it.

    advice  what ends that line where an index or a shape is wrong
    """
    try:
        with torch.no_grad(), every_part_called():
            result = module(x)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the module may fail in any way
        wrong = {str(tensor.dtype).removeprefix("torch.") for tensor in module.parameters()} - {"float32"}
        hint = f" (it has {', '.join(sorted(wrong))} weights: convert it with .float())" if wrong else ""
        hint += advice if isinstance(error, IndexError | RuntimeError | ValueError) else ""
        raise NetworkError(f"{kind} cannot take samples of shape {tuple(x.shape[1:])}: {_said(error)}{hint}") from error
    if not isinstance(result, Tensor):
        raise NetworkError(
            f"{kind} returns a {type(result).__name__}; it must return one tensor, (n, features). "
            "Wrap it in a module whose forward returns what a head should read"
        )
    return result


def features_of(module: nn.Module, x: Tensor, kind: str, tensors: Mapping[str, Tensor], advice: str = "") -> Tensor:
    """Return the features (n, features) of x, or refuse a module whose result for a sample is not its own.

    tensors  as the module's own are before it runs
    """
    given = x.clone()
    features = run_module(module, given, kind, advice)
    if features.dim() != 2 or len(features) != len(x):
        raise NetworkError(
            f"{kind} turns {len(x)} samples of shape {tuple(x.shape[1:])} into a tensor of shape "
            f"{tuple(features.shape)}; it must give one vector of features for each: (n, features)"
        )
    if not torch.equal(given, x):
        raise NetworkError(
            f"{kind} changes its input in place, which is a task's data; compute with a new tensor in its forward "
            "(x = x - 0.5 instead of x -= 0.5, and no inplace=True on the input)"
        )
    after = module.state_dict()
    for name in {**tensors, **after}:
        if name not in tensors or name not in after or not _same(tensors[name], after[name]):
            raise NetworkError(
                f"the forward of {kind} changes its tensor '{name}' in evaluation mode, so that results depend on what "
                "was computed before; change it only if self.training"
            )
    if features.dtype != torch.float32:
        raise NetworkError(f"{kind} returns {features.dtype}; convert it with .float()")
    if not features.isfinite().all():
        raise NetworkError(f"{kind} returns NaN or infinity for samples of the task; are its weights finite?")
    if not _alike(run_module(module, x.clone(), kind), features, _AGAIN):
        raise NetworkError(
            f"{kind} gives another result for the same samples when it is called again; nothing in it may be random in "
            "evaluation mode (F.dropout needs training=self.training)"
        )
    _check_alone(module, x, kind, features)
    return features


def _check_alone(module: nn.Module, x: Tensor, kind: str, features: Tensor) -> None:
    """Refuse a module that computes something else for the first sample without the others."""
    begin = f"what {kind} computes for a sample depends on the others of its batch"
    way_out = "(a batch norm needs running statistics, a squeeze() the dimensions that it leaves out)"
    try:
        alone = run_module(module, x[:1].clone(), kind)
    except NetworkError as error:
        raise NetworkError(f"{begin}: alone, {error} {way_out}") from error
    if alone.shape != features[:1].shape:
        raise NetworkError(f"{begin}: alone, it becomes a tensor of shape {tuple(alone.shape)} {way_out}")
    if not _alike(alone, features[:1], _OTHERS):
        raise NetworkError(f"{begin} {way_out}")


def check_padding(module: nn.Module, x: Tensor, kind: str, features: Tensor, columns: int) -> None:
    """Refuse a module of texts whose features for the first of them depend on how far it is filled up.

    columns  so many of its token ids hold all its tokens
    """
    try:
        alone = run_module(module, x[:1, :columns].clone(), kind)
    except NetworkError as error:
        raise NetworkError(f"batches of texts are cut down to the longest: {error}") from error
    if not _alike(alone, features[:1], _OTHERS):
        raise NetworkError(
            f"what {kind} computes for a text depends on how far it is filled up, and so on the others of its batch; "
            f"texts are filled up with the id {int(x[0, -1])}, which the network must take for no token (its padding, "
            "or pad_id in tokenizer.json)"
        )


def check_rows(module: nn.Module, x: Tensor, kind: str, layers: Collection[str]) -> None:
    """Refuse layers that do not read samples in their first dimension: as many rows for each of them."""

    def shapes_read(samples: Tensor) -> list[tuple[str, tuple[int, ...]]]:
        """Return (layer, shape of what it reads) for every call."""
        found: list[tuple[str, tuple[int, ...]]] = []

        def note(name: str) -> Any:
            return lambda _part, arguments, named: found.extend(
                (name, tuple(read.shape)) for read in (*arguments, *named.values()) if isinstance(read, Tensor)
            )

        parts = {name: module.get_submodule(name) for name in layers}
        handles = [part.register_forward_pre_hook(note(name), with_kwargs=True) for name, part in parts.items()]
        run_module(module, samples.clone(), kind)
        for handle in handles:
            handle.remove()
        return found

    of_all, of_one = shapes_read(x), shapes_read(x[:1])
    if [name for name, _ in of_all] != [name for name, _ in of_one]:
        raise NetworkError(
            f"which layers {kind} calls depends on the samples, so that several children cannot be computed at once; "
            "grow by units"
        )
    for (name, shape), (_, one) in zip(of_all, of_one, strict=True):
        if not one or shape != (len(x) * one[0], *one[1:]):
            raise NetworkError(
                f"'{name}' of {kind} reads a tensor of shape {shape} for {len(x)} samples, and {one} for one; it must "
                f"have as many rows for each of them. {_WAY_OUT}"
            )


def check_head(module: nn.Module, x: Tensor, kind: str, head: str | None, *, has_setting: bool, named: bool) -> None:
    """Refuse a head whose output is not the module's, and a module that ends in a layer that looks like one.

    head         name of the layer that was taken for the head, and is an identity here; None where there is none
    has_setting  whether growth.head could name it
    named        whether it did
    """
    results: dict[str, Tensor] = {}

    def note(name: str) -> Any:
        return lambda _part, _arguments, result: results.__setitem__(name, result)

    ends = {name: part for name, part in module.named_modules() if isinstance(part, nn.Linear | nn.Identity)}
    handles = [part.register_forward_hook(note(name)) for name, part in ends.items()]
    last = run_module(module, x.clone(), kind)
    for handle in handles:
        handle.remove()
    by_name = "it must end in its last nn.Linear, named head, fc or classifier, or in features without a head"
    if head is not None and results.get(head) is not last:
        by_setting = "name the head with growth.head, or set growth.head = 'none' if there is none"
        raise NetworkError(
            f"'{head}' was taken for the head of {kind}, but its output is not the module's; "
            f"{by_setting if has_setting else by_name}"
        )
    linear = [name for name, result in results.items() if result is last and isinstance(ends[name], nn.Linear)]
    if head is None and linear and not named:
        by_setting = (
            f"If that is its head, set growth.head = '{linear[0]}' and every task has its own; if it gives features, "
            "set growth.head = 'none'"
        )
        by_name = "I" + by_name[1:]
        raise NetworkError(f"{kind} ends in the linear layer '{linear[0]}'. {by_setting if has_setting else by_name}")


def check_training(module: nn.Module, x: Tensor, kind: str, features: Tensor) -> None:
    """Refuse a module that gives other than features (n, features) in training mode, in which it is left."""
    devices = [x.device] if x.is_cuda else []
    with torch.random.fork_rng(devices):
        try:
            result = run_module(module.train(), torch.cat([x, x]), kind)  # a batch norm needs two
        except NetworkError as error:
            raise NetworkError(f"in training mode, {error}") from error
    if result.shape[1:] != features.shape[1:]:
        shapes = f"{tuple(result.shape[1:])}, and in evaluation mode {tuple(features.shape[1:])}"
        raise NetworkError(f"{kind} turns a sample in training mode into a tensor of shape {shapes}; both must be one")


def takes_part(module: nn.Module, layer: str, x: Tensor, features: Tensor, value: float = torch.nan) -> bool:
    """Whether the features (n, features) that a module gives for x are others if a layer returns this value."""

    def spoil(_part: nn.Module, _arguments: Any, result: Tensor) -> Tensor:
        return torch.full_like(result, value)

    handle = module.get_submodule(layer).register_forward_hook(spoil)
    try:
        with torch.no_grad(), every_part_called():
            return not torch.equal(module(x.clone()), features)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # that the value makes the module fail shows that it reads it
        return True
    finally:
        handle.remove()


def check_together(backbone: Backbone, x: Tensor) -> None:
    """Refuse a module whose children compute together something else than each alone; two of them have random factors.

    Their samples lie one child's after another's, so everything inside must keep samples in the first dimension.
    """
    kind, (network, children) = backbone.description.kind, _random_children(backbone)
    try:
        with torch.no_grad():
            together = children(x)
            alone = torch.stack([network.candidate(children.growth(place))(x) for place in range(2)])
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the module may fail in any way
        raise NetworkError(f"{kind} cannot compute several children at once: {_said(error)}. {_WAY_OUT}") from error
    if not _alike(together, alone, _OTHERS):
        raise NetworkError(f"children of {kind} compute together something else than each alone. {_WAY_OUT}")


def _random_children(backbone: Backbone) -> tuple[FactoredNetwork, FactoredChildren]:
    """Return a network without tasks, and two children of it with random factors of ranks 1 and 2."""
    from bocl.networks.low_rank.network import FactoredNetwork

    network = FactoredNetwork(backbone)
    children = network.grow([tuple(rank for _ in backbone.groups) for rank in (1, 2)], 2, seeds=[0, 1], reads=())
    children.training = False
    generator = torch.Generator().manual_seed(0)
    for name, tensor in children.state.items():
        part, _, rest = name.partition("/")
        draw = torch.rand(tensor.shape, generator=generator).to(tensor.device) * 2 - 1
        if part == "norm":
            tensor.data.mul_(1 + _FACTORS * draw)
        elif name == "head/bias":
            tensor.data.zero_()  # features may be small
        elif name.endswith("/up"):
            weight: Any = backbone.module.get_submodule(rest.removesuffix("/up")).weight
            size = float(weight.norm()) / len(weight) ** 0.5 / backbone.settings.scale
            tensor.data.copy_(_FACTORS * size * draw)
    return network, children


def check_factors_train(backbone: Backbone, module: nn.Module, x: Tensor, features: Tensor) -> None:
    """Refuse layers whose factors get no gradient, though the features (n, features) depend on them.

    A gradient of 0 is one: a ReLU may be off for these samples.
    """
    kind, (_, children) = backbone.description.kind, _random_children(backbone)
    factors = {name: tensor for name, tensor in children.parameters.items() if name.startswith("factor/")}
    lost = _without_gradient(lambda: children(x), factors, kind)
    for layer in dict.fromkeys(name.removeprefix("factor/").rpartition("/")[0] for name in lost):
        if takes_part(module, layer, x, features, 1.0):
            raise NetworkError(
                f"'{layer}' of {kind} gets no gradient, so that its factors would never train; {_NO_GRADIENT}, or "
                "leave such layers out with patterns in growth.groups"
            )


def check_copies_train(module: nn.Module, x: Tensor, kind: str) -> None:
    """Refuse a module with a parameter that gets no gradient, though the features depend on it.

    A layer may be left out at random in training, and so it counts if it has a gradient in either mode.
    """
    named = {name: tensor for name, tensor in module.named_parameters() if tensor.is_floating_point()}
    features = run_module(module.eval(), x.clone(), kind)
    for tensor in named.values():
        tensor.requires_grad_()
    lost = list(named)
    for training, samples in ((False, x), (True, torch.cat([x, x]))):
        module.train(training)
        with torch.random.fork_rng([x.device] if x.is_cuda else []):
            lost = _without_gradient(partial(module, samples.clone()), {name: named[name] for name in lost}, kind)
        if not lost:
            return
    module.eval()
    for name in lost:
        value = named[name].data
        before = value.clone()
        value.add_(1)
        moved = run_module(module, x.clone(), kind)
        value.copy_(before)
        if not _alike(moved, features, _AGAIN):
            raise NetworkError(f"'{name}' of {kind} gets no gradient, so that it would never train; {_NO_GRADIENT}")


def _without_gradient(compute: Callable[[], Tensor], tensors: Mapping[str, Tensor], kind: str) -> list[str]:
    """Return the names of the tensors on which what is computed depends in no way that a gradient could follow."""
    try:
        with torch.enable_grad(), every_part_called():
            result = compute()
            weights = torch.rand(result.shape, generator=torch.Generator().manual_seed(0)).to(result.device)
            total = (result * weights).sum()
            if not total.requires_grad:
                return list(tensors)
            gradients = torch.autograd.grad(total, list(tensors.values()), allow_unused=True)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # the module may fail in any way
        raise NetworkError(f"{kind} cannot be trained: {_said(error)}; {_NO_GRADIENT}") from error
    return [name for name, gradient in zip(tensors, gradients, strict=True) if gradient is None]


def _alike(found: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Whether two tensors differ nowhere by more than this share of the largest number."""
    if found.shape != wanted.shape:
        return False
    return bool((found - wanted).abs().max() <= tolerance * wanted.abs().max())


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal to the bit; NaN is NaN."""
    return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())


def _said(error: Exception) -> str:
    """Return an error in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
