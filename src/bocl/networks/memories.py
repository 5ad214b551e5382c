"""FearNet's network: features that never change, two memories that read them, and a judge between the two.

With z the features of a sample, moved and scaled once, by the first task's:

    HC     the recent samples themselves         P_HC(k | x) ∝ 1 / (ε + distance from z to the nearest one of class k)
    mPFC   an autoencoder, and a classifier on its code c(z); for each class the mean and covariance of its codes
    BLA    a small network on c(z)               A(x): how likely the answer is in HC

    P(k | x) = A(x) P_HC(k | x) + (1 - A(x)) P_mPFC(k | x)

A class is in one of the two memories. So where the task is known, its memory is, too, and BLA has no say.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bocl.checks import Natural
from bocl.errors import NetworkError
from bocl.networks.by_task import sha256_of
from bocl.networks.check import BASE
from bocl.networks.compact import CompactNetwork, assemble
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth, GrowthSpace, Shapes, count_tensors, uniform_within
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.single_task import SingleTask
from bocl.settings import parse_value

NEAREST = 1e-3  # ε
SCALE = ("mpfc/centre", "mpfc/spread")  # of the features
CODE = ("mpfc/encoder0", "mpfc/encoder1")
DECODED = ("mpfc/decoder1", "mpfc/decoder0")
HEAD = ("head/weight", "head/bias")
DEEPER = 0.1  # what the reconstruction of a layer counts, compared with that of the layer before


@dataclass(frozen=True)
class Sizes:
    """Units of the mPFC: of its hidden layers, and of its code, which are also those of the BLA's hidden layer."""

    hidden: int
    code: int


class Memories:
    """The network, from the first task on.

    graph       a traced network, whose body the first task trains; or a pretrained module
    tensors     the body's; mpfc/…, head/… and bla/…
    classes     of each task
    slept       tasks whose classes the mPFC has; those after them are in HC
    recent      HC: the features of every class of these tasks, (n, d) each
    means       (C, c) of the codes of each class that the mPFC has
    covariances (C, c, c) of these
    """

    def __init__(self, graph: Graph | Backbone, sizes: Sizes, device: torch.device | str = "cpu") -> None:
        self.graph, self.sizes, self.device = graph, sizes, torch.device(device)
        self.tensors: dict[str, Tensor] = {}
        self.classes: list[int] = []
        self.slept = 0
        self.recent: list[Tensor] = []
        self.means, self.covariances = self._no_statistics()
        self._body: CompactNetwork | None = None

    def _no_statistics(self) -> tuple[Tensor, Tensor]:
        code = self.sizes.code
        return torch.zeros(0, code, device=self.device), torch.zeros(0, code, code, device=self.device)

    @property
    def width(self) -> int:
        """How many features there are."""
        if isinstance(self.graph, Backbone):
            if self.graph.features is None:
                raise NetworkError("the module has not seen samples yet; how many features it has is not known")
            return self.graph.features
        shape = GrowthSpace.first(self.graph, 1).shapes(self.graph.widths)["head/weight"]
        return int(shape[1])

    # What it answers.

    def raw_features(self, x: Tensor) -> Tensor:
        """Return the features (n, d) of samples (n, *shape), as a head reads them."""
        if isinstance(self.graph, Backbone):
            return self.graph.run(x)
        with torch.no_grad():
            return self._assembled(self.graph).features(x)

    def _assembled(self, graph: Graph) -> CompactNetwork:
        if self._body is None:
            body = {name: tensor for name, tensor in self.tensors.items() if name.startswith(("layer/", "norm/"))}
            self._body = assemble(graph, None, Growth(graph.widths, 0, body))
        return self._body

    def features(self, x: Tensor) -> Tensor:
        """Return z (n, d), which is what all memories read."""
        return scaled(self.tensors, self.raw_features(x))

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return log probabilities (n, classes of the task) where it is known that x is of this task."""
        with torch.no_grad():
            return remembered(self._sizes_of_recent(task), self._of_task(task), self.raw_features(x))

    def among_all(self, x: Tensor) -> Tensor:
        """Return log probabilities (n, classes of all tasks), in the order of the tasks, where no task is known."""
        with torch.no_grad():
            z = self.features(x)
            codes = encode(self.tensors, z)[-1]
            lasting = classify(self.tensors, codes).log_softmax(1)
            if not self.recent:
                return lasting
            judged = judge(self.tensors, codes).log_softmax(1)
            recent = nearest(torch.cat(self.recent), [len(samples) for samples in self.recent], z)
            return torch.cat([lasting + judged[:, :1], recent + judged[:, 1:]], dim=1)

    def first_class(self, task: int) -> int:
        """Return the place of a task's first class among those of all tasks."""
        return sum(self.classes[:task])

    def _recent_of(self, task: int) -> list[Tensor]:
        first = self.first_class(task) - self.first_class(self.slept)
        return self.recent[first : first + self.classes[task]] if task >= self.slept else []

    def _sizes_of_recent(self, task: int) -> list[int]:
        return [len(samples) for samples in self._recent_of(task)]

    def _of_task(self, task: int) -> dict[str, Tensor]:
        """Return what of the memories one task is answered from."""
        scale = {name: self.tensors[name] for name in SCALE}
        if task >= self.slept:
            return scale | {"recent": torch.cat(self._recent_of(task))}
        code = {name: tensor for name, tensor in self.tensors.items() if name.startswith(CODE)}
        first = self.first_class(task)
        return scale | code | {name: self.tensors[name][first : first + self.classes[task]] for name in HEAD}

    # What it learns.

    def begin(self, body: Mapping[str, Tensor], *, seed: int) -> None:
        """Take the body that gives the features, and untrained memories."""
        self.tensors = {**body, **drawn(self._shapes(), seed, self.device)}

    def scale(self, features: Tensor) -> None:
        """Take the scale of the first task's features (n, d)."""
        spread = features.var(0, correction=0).mean().sqrt()
        scale = features.mean(0), torch.where(spread > 0, spread, 1.0)[None]
        self.tensors = {**self.tensors, **dict(zip(SCALE, scale, strict=True))}

    def remember(self, features: Sequence[Tensor]) -> None:
        """Put a task into HC: z (n, d) of every class."""
        self.recent = [*self.recent, *features]
        self.classes = [*self.classes, len(features)]

    def dreams(self, each: int, *, seed: int) -> list[Tensor]:
        """Return pseudo-samples (each, d) of every class that the mPFC has: draws of its codes, decoded."""
        generator = torch.Generator().manual_seed(seed)
        found = []
        for mean, covariance in zip(self.means.cpu(), self.covariances.cpu(), strict=True):
            values, vectors = torch.linalg.eigh(covariance.double())  # few samples leave directions without variance
            noise = torch.randn(each, len(mean), generator=generator, dtype=torch.float64)
            codes = mean + noise * values.clamp(min=0).sqrt() @ vectors.T
            with torch.no_grad():
                found.append(decode(self.tensors, codes.float().to(self.device))[-1])
        return found

    def mpfc(self, *, reconstruction: float, seed: int) -> StackOfOne:
        """Return the mPFC to be trained on z, with new places for the classes in HC."""
        new = drawn(self._head_shapes(len(self.recent)), seed, self.device)
        own = {name: tensor for name, tensor in self.tensors.items() if name.startswith((*CODE, *DECODED))}
        own |= {name: torch.cat([self.tensors[name], new[name]]) for name in HEAD}

        def compute(tensors: Mapping[str, Tensor], z: Tensor, *, training: bool) -> Tensor:
            layers = encode(tensors, z)
            logits = classify(tensors, layers[-1])
            return with_loss(logits, reconstruction * rebuilding(tensors, layers)) if training else logits

        return StackOfOne(own, compute)

    def bla(self, *, seed: int) -> StackOfOne:
        """Return an untrained BLA to be trained on codes: 0 is of the mPFC, 1 is of HC."""
        return StackOfOne(
            drawn(self._bla_shapes(), seed, self.device), lambda tensors, codes, **_: judge(tensors, codes)
        )

    def take(self, trained: StackOfOne) -> None:
        """Keep trained weights."""
        self.tensors = {**self.tensors, **trained.tensors}

    def sleep(self, trained: StackOfOne, samples: Sequence[Tensor]) -> None:
        """Keep a trained mPFC and the statistics of its codes for z (n, d) of every class; HC is empty then."""
        self.take(trained)
        with torch.no_grad():
            codes = [encode(self.tensors, z)[-1] for z in samples]
        self.means = torch.stack([of_class.mean(0) for of_class in codes])
        self.covariances = torch.stack([covariance_of(of_class) for of_class in codes])
        self.slept, self.recent = len(self.classes), []

    # What is stored.

    def _shapes(self) -> Shapes:
        """Return the shapes of the memories' tensors, those of the classifier with no class."""
        d, hidden, code = self.width, self.sizes.hidden, self.sizes.code
        shapes: Shapes = {SCALE[0]: (d,), SCALE[1]: (1,)}
        sizes = ((d, hidden), (hidden, code), (code, hidden), (hidden, d))
        for name, (inputs, units) in zip((*CODE, *DECODED), sizes, strict=True):
            shapes |= {f"{name}/weight": (units, inputs), f"{name}/bias": (units,)}
        return {**shapes, **self._head_shapes(0), **self._bla_shapes()}

    def _head_shapes(self, classes: int) -> Shapes:
        return {HEAD[0]: (classes, self.sizes.code), HEAD[1]: (classes,)}

    def _bla_shapes(self) -> Shapes:
        code = self.sizes.code
        return {
            "bla/hidden/weight": (code, code),
            "bla/hidden/bias": (code,),
            "bla/answer/weight": (2, code),
            "bla/answer/bias": (2,),
        }

    def stored(self, _first: int = 0, _last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved of the network; HC and the statistics of codes are saved by the learner."""
        if isinstance(self.graph, Backbone):
            base = {f"{BASE}{name}": tensor for name, tensor in self.graph.tensors.items()}
            return {"slept": self.slept, "features": self.graph.features}, base | self.tensors
        return {"slept": self.slept}, dict(self.tensors)

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor after tasks of these numbers of classes."""
        slept = self._take_facts(facts, len(classes))
        body: Shapes = {}
        if isinstance(self.graph, Backbone):
            body = {f"{BASE}{name}": tuple(tensor.shape) for name, tensor in self.graph.tensors.items()}
        elif classes:
            shapes = GrowthSpace.first(self.graph, 1).shapes(self.graph.widths)
            body = {name: shape for name, shape in shapes.items() if name not in HEAD}
        return {**body, **self._shapes(), **self._head_shapes(sum(classes[:slept]))} if classes else body

    def _take_facts(self, facts: Mapping[str, Any], tasks: int) -> int:
        slept: int = parse_value(Natural, facts["slept"], "facts.slept")
        if not min(tasks, 1) <= slept <= tasks:
            raise NetworkError(f"facts.slept is {slept}, and {tasks} tasks were learnt")
        if isinstance(self.graph, Backbone):
            self.graph.recall(parse_value(int | None, facts.get("features"), "facts.features"), ())
        return slept

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back saved weights; HC and the statistics are given back by the learner."""
        self.slept, self.classes = self._take_facts(facts, len(classes)), list(classes)
        if isinstance(self.graph, Backbone):
            self.graph.load({name.removeprefix(BASE): t for name, t in tensors.items() if name.startswith(BASE)})
        self.tensors = {name: t.to(self.device) for name, t in tensors.items() if not name.startswith(BASE)}
        self._body = None

    def remember_again(self, recent: Sequence[Tensor], means: Tensor | None, covariances: Tensor | None) -> None:
        """Take back HC and the statistics of codes."""
        self.recent = [*recent]
        empty = self._no_statistics()
        self.means = empty[0] if means is None else means
        self.covariances = empty[1] if covariances is None else covariances

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part; a pretrained module is a part of its own."""
        base = {"base": self.graph.parameters()} if isinstance(self.graph, Backbone) else {}
        return {**base, **count_tensors(self.tensors)}

    def base_sha256(self) -> str:
        """Return a sha256 of a pretrained module's tensors; '' where there is none."""
        return sha256_of(self.graph.tensors) if isinstance(self.graph, Backbone) else ""

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with: the features, and of the memory that has its classes what is theirs."""
        recent = {"recent": self._sizes_of_recent(task)}
        if isinstance(self.graph, Backbone):
            base = {f"{BASE}{name}": tensor for name, tensor in self.graph.tensors.items()}
            return SingleTask("memories", recent | {"features": self.graph.features}, base | self._of_task(task))
        body = self._assembled(self.graph).single_task()
        return SingleTask("memories", recent | body.facts, {**body.tensors, **self._of_task(task)})


class StackOfOne:
    """A function of named tensors as it is trained: every tensor (1, …).

    compute  (tensors, x, training=…) → logits (n, classes)
    """

    count = 1
    draws = False

    def __init__(self, tensors: Mapping[str, Tensor], compute: Callable[..., Tensor]) -> None:
        self.parameters = {name: nn.Parameter(tensor.detach().clone()[None]) for name, tensor in tensors.items()}
        self.state: dict[str, Tensor] = dict(self.parameters)
        self._compute = compute
        self.training = True

    @property
    def signature(self) -> Hashable:
        """No two share a captured step."""
        return id(self)

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors as they are stored, as copies."""
        return {name: tensor.detach()[0].clone() for name, tensor in self.state.items()}

    def precompute(self, _inputs: Tensor) -> Tensor | None:
        """Compute nothing: all of it is trained."""
        return None

    def __call__(self, x: Tensor, task: int = 0, precomputed: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """Return logits (1, n, classes) for inputs (n, …)."""
        own = {name: tensor[0] for name, tensor in self.parameters.items()}
        return self._compute(own, x, training=self.training).unsqueeze(0)


class _WithLoss(torch.autograd.Function):
    @staticmethod
    def forward(_context: Any, logits: Tensor, _loss: Tensor) -> Tensor:
        return logits.view_as(logits)

    @staticmethod
    def backward(_context: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        return gradient, gradient.new_ones(())


def with_loss(logits: Tensor, loss: Tensor) -> Tensor:
    """Return the same logits; the gradient of a loss on them has that of ``loss`` (a scalar) added.

    So what is trained may have a term of its own in its objective, and the training loop need not know.
    """
    made: Tensor = _WithLoss.apply(logits, loss)  # type: ignore[no-untyped-call]
    return made


# The parts, as functions of tensors by name.


def linear(tensors: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    """Return a linear layer's product with x (n, in): (n, out)."""
    return F.linear(x, tensors[f"{name}/weight"], tensors[f"{name}/bias"])


def scaled(tensors: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """Return z (n, d)."""
    return (features - tensors[SCALE[0]]) / tensors[SCALE[1]]


def encode(tensors: Mapping[str, Tensor], z: Tensor) -> list[Tensor]:
    """Return the values of the encoder's layers: z (n, d), its hidden layer, and the code (n, c)."""
    hidden = F.elu(linear(tensors, CODE[0], z))
    return [z, hidden, linear(tensors, CODE[1], hidden)]


def decode(tensors: Mapping[str, Tensor], codes: Tensor) -> list[Tensor]:
    """Return the values of the decoder's layers after the code (n, c): its hidden layer, and z as rebuilt (n, d)."""
    hidden = F.elu(linear(tensors, DECODED[0], codes))
    return [hidden, linear(tensors, DECODED[1], hidden)]


def classify(tensors: Mapping[str, Tensor], codes: Tensor) -> Tensor:
    """Return the classifier's logits (n, C) for codes (n, c)."""
    return linear(tensors, "head", codes)


def judge(tensors: Mapping[str, Tensor], codes: Tensor) -> Tensor:
    """Return the BLA's logits (n, 2) for codes (n, c): of the mPFC, of HC."""
    return linear(tensors, "bla/answer", F.elu(linear(tensors, "bla/hidden", codes)))


def rebuilding(tensors: Mapping[str, Tensor], layers: Sequence[Tensor]) -> Tensor:
    """Return Σ_j λ_j ‖h_j - h'_j‖² / units, the mean over samples: h_0 is z and h'_0 what is decoded; λ_j = 10^-j."""
    hidden, rebuilt = decode(tensors, layers[-1])
    return F.mse_loss(rebuilt, layers[0]) + DEEPER * F.mse_loss(hidden, layers[1])


def nearest(recent: Tensor, sizes: Sequence[int], z: Tensor) -> Tensor:
    """Return log P_HC (n, classes) for z (n, d), from the stored samples of one class after another."""
    # One way to compute for any number of samples: an export has no other.
    distances = torch.cdist(z, recent, compute_mode="use_mm_for_euclid_dist").split(list(sizes), dim=1)
    closeness = torch.stack([1 / (NEAREST + of_class.amin(1)) for of_class in distances], dim=1)
    return (closeness / closeness.sum(1, keepdim=True)).log()


def remembered(sizes: Sequence[int], tensors: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """Return log probabilities (n, classes) for features (n, d), from what of the memories belongs to one task.

    sizes  how many samples of each class are in HC; empty where the classes are in the mPFC
    """
    z = scaled(tensors, features)
    if sizes:
        return nearest(tensors["recent"], sizes, z)
    return classify(tensors, encode(tensors, z)[-1]).log_softmax(1)


def covariance_of(codes: Tensor) -> Tensor:
    """Return the covariance (c, c) of codes (n, c)."""
    moved = codes - codes.mean(0)
    return moved.T @ moved / len(codes)


def drawn(shapes: Shapes, seed: int, device: torch.device) -> dict[str, Tensor]:
    """Return tensors of linear layers: uniform in ±1/√fan-in; a bias follows its weight."""
    generator, fan_in, made = torch.Generator().manual_seed(seed), 1, {}
    for name, shape in shapes.items():
        fan_in = shape[1] if len(shape) == 2 else fan_in
        made[name] = uniform_within(shape, fan_in, generator, torch.float32).to(device)
    return made
