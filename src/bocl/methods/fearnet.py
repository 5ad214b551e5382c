"""FearNet: features that never change, a store of recent samples, a network for all earlier ones, and one that chooses.

With z(x) the features:

    HC     P_HC(k | x) ∝ 1 / (ε + min ‖z - z_i‖)  over the stored samples i of class k
    mPFC   an autoencoder with a classifier on its code, trained on

               min  -log p(y | z) + λ Σ_j 10^-j ‖h_j - h'_j‖² / units of layer j

           where h_0 is z, h_j the encoder's layers and h'_j the decoder's; per class a mean μ and covariance Σ of codes
    BLA    A(x), how likely it is that the class of x is in HC

    P(k | x) = A(x) P_HC(k | x) + (1 - A(x)) P_mPFC(k | x)

A task goes into HC as it is. Once HC has `sleep_every` tasks, the network sleeps: the mPFC is trained on the samples in
HC and, for each class it has already, on as many pseudo-samples as HC has of a class: draws of N(μ, Σ), decoded. Then μ
and Σ are measured again for every class, and HC is emptied. While HC holds tasks, the BLA is trained to tell them from
pseudo-samples. The first task is followed by sleep at once.

The most likely class is the one that the paper's rule chooses: of HC if A/(1 - A) max P_HC > max P_mPFC, else of the
mPFC. That is class-incremental learning: which task a sample is of is not known. ``class_accuracy`` measures it.
``predict`` answers as all methods do, with the task known: its classes are all in one memory, so that memory answers,
among these classes. Storing a task changes no such answer for earlier tasks; a sleep does.

Source: Kemker and Kanan, "FearNet: Brain-Inspired Model for Incremental Learning". Deviations:
- Features are those of a pretrained module. Without one the first task trains the network, with a head that is left out
  afterwards, and its features are frozen from then on. They are moved by their mean over the first task and divided by
  one spread for all.
- The network starts with the first task, not with half of all classes.
- The mPFC has one hidden layer on either side, and no activation on its code, which is modelled by a Gaussian.
- The BLA reads the code. On features it would learn that real samples look otherwise than decoded ones, whatever their
  class. It starts anew for every task.
- All networks are trained by the recipe, but without patience: the newest task's validation samples say nothing of
  earlier tasks. Class weights and changed images are for the training of features only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import NonNegative, PositiveInt, checked, section
from bocl.errors import NetworkError
from bocl.methods.method import EXTRA, Learned, Learner, State
from bocl.methods.plain import train_one, train_plain
from bocl.methods.rounds import RoundTrainer
from bocl.methods.seen import SeenTask, check_inputs, task_number
from bocl.networks.check import check_tensors
from bocl.networks.graph import Graph
from bocl.networks.growing import Base, whole_base
from bocl.networks.growth import PARTS, Shapes
from bocl.networks.memories import Memories, Sizes, StackOfOne, encode, scaled
from bocl.networks.plain import PlainNetwork
from bocl.records.events import Callback, RoundStarted
from bocl.seeding import seed_for
from bocl.tasks.samples import checked_labels
from bocl.tasks.task import Task
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.device import resolve_device
from bocl.training.evaluation import BATCH, accuracy
from bocl.training.precision import repeatable_products
from bocl.training.recipe import Recipe
from bocl.training.surroundings import usual_surroundings
from bocl.training.trainer import Effort

_Units = Annotated[PositiveInt, Field(le=4096)]  # a class has a covariance of the square of this


@section("fearnet")
@dataclass(frozen=True)
class FearNetSettings:
    """Sizes of the memories, and when they sleep.

    sleep_every     tasks that are in HC when it sleeps; the paper sleeps after ten classes
    hidden          units of the mPFC's hidden layers
    code            units of its code, and of the BLA's hidden layer; for networks as small as those of the presets. On
                    features of EfficientNet-Lite0, 128 were better by validation samples (``replication/fearnet.py``)
    reconstruction  λ, by the same samples; that a layer counts a tenth of the one before it is our choice
    """

    sleep_every: PositiveInt = 2
    hidden: _Units = 128
    code: _Units = 32
    reconstruction: NonNegative = 1.0


class FearNet(Learner):
    """FearNet: frozen features, a store of recent samples, a network that dreams of earlier ones, and a judge."""

    name: ClassVar[str] = "fearnet"
    forgets: ClassVar[bool] = True
    if_out_of_memory: ClassVar[str] = "a smaller recipe.batch_size, fearnet.sleep_every or network"
    takes_whole: ClassVar[bool] = True
    network: Memories

    def __init__(
        self,
        network: nn.Module | Base,
        *,
        settings: FearNetSettings = FearNetSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        pretrained: bool = False,
    ) -> None:
        """Take any network BOCL takes, and with ``pretrained`` any module, whose features stay as they are."""
        self.pretrained = checked("pretrained", pretrained, bool)
        base = whole_base(network, resolve_device(device), pretrained=self.pretrained)
        super().__init__(base, recipe=recipe, seed=seed, device=device)
        self.settings = checked("settings", settings, FearNetSettings)
        self.network = Memories(self.graph, Sizes(settings.hidden, settings.code), self.device)

    def _learn(self, _task: Task, data: DeviceTask, callback: Callback, _trainer: RoundTrainer, /) -> Learned:
        """Store the task; sleep if HC has enough tasks, or else train the judge."""
        network, first = self.network, not self.seen
        before = network.parameters() if self.seen else {}
        effort = self._begin(data, callback) if first else Effort()
        (train, labels), (validation, wanted) = (self._features(split) for split in (data.train, data.validation))
        z, held_out = (scaled(network.tensors, features) for features in (train, validation))
        network.remember([z[labels == label] for label in range(data.classes)])
        wanted = wanted + network.first_class(data.index)
        sleeps = first or len(network.classes) - network.slept >= self.settings.sleep_every
        effort += (self._sleep if sleeps else self._train_bla)(data, DeviceSplit(held_out, wanted), callback)
        now = network.parameters()
        return Learned(
            data.name,
            self.graph.widths if first and isinstance(self.graph, Graph) else self.graph.no_units,
            accuracy(partial(network.predict, task=data.index), data.validation),
            {part: now[part] - before.get(part, 0) for part in PARTS},
            effort=effort,
        )

    def _begin(self, data: DeviceTask, callback: Callback) -> Effort:
        """Find the features: without a pretrained module, by training the network on the first task."""
        body, effort = dict[str, Tensor](), Effort()
        if isinstance(self.graph, Graph):
            plain = PlainNetwork(self.graph, shared_head=True, device=self.device)
            plain.add_task(data.classes, seed=self._seed("base", data))
            effort = train_plain(plain, [data], self.recipe, seed=self._seed("order", data), callback=callback)
            body = {name: tensor for name, tensor in plain.tensors.items() if not name.startswith("head0/")}
        self.network.begin(body, seed=self._seed("mpfc", data))
        self.network.scale(self._features(data.train)[0])
        return effort

    def _sleep(self, data: DeviceTask, held_out: DeviceSplit, callback: Callback) -> Effort:
        """Train the mPFC on what is in HC and on what it dreams of all classes before, and empty HC."""
        network = self.network
        samples = [*network.dreams(self._each(), seed=self._seed("dreams", data)), *network.recent]
        mpfc = network.mpfc(reconstruction=self.settings.reconstruction, seed=self._seed("classifier", data))
        effort = self._train(mpfc, samples, range(len(samples)), data, held_out, callback)
        network.sleep(mpfc, samples)
        return effort

    def _train_bla(self, data: DeviceTask, held_out: DeviceSplit, callback: Callback) -> Effort:
        """Train a new BLA to tell what is in HC from what the mPFC dreams."""
        network = self.network
        dreams = network.dreams(self._each(), seed=self._seed("dreams", data))
        memories = [0] * len(dreams) + [1] * len(network.recent)
        with torch.no_grad():
            codes = [encode(network.tensors, z)[-1] for z in (*dreams, *network.recent)]
            held_out = DeviceSplit(encode(network.tensors, held_out.inputs)[-1], torch.ones_like(held_out.labels))
        bla = network.bla(seed=self._seed("bla", data))
        effort = self._train(bla, codes, memories, data, held_out, callback)
        network.take(bla)
        return effort

    def _train(
        self,
        part: StackOfOne,
        samples: Sequence[Tensor],
        labels: Sequence[int],
        data: DeviceTask,
        held_out: DeviceSplit,
        callback: Callback,
    ) -> Effort:
        """Train a part of the network on samples (n, …) of several classes, each with its label."""
        counts = torch.tensor([len(of_class) for of_class in samples], device=self.device)
        wanted = torch.tensor(labels, device=self.device).repeat_interleave(counts)
        task = DeviceTask(data.name, data.index, len(samples), DeviceSplit(torch.cat([*samples]), wanted), held_out)
        recipe = replace(self.recipe, augment="off", patience=0)
        callback(RoundStarted("base", (self.graph.no_units,)))
        return train_one(part, [task], recipe, seed=self._seed("order of memories", data), callback=callback).effort

    def _each(self) -> int:
        """Return how many samples a class has in HC, on average."""
        return round(sum(map(len, self.network.recent)) / len(self.network.recent))

    def _seed(self, purpose: str, data: DeviceTask) -> int:
        return seed_for(self.seed, purpose, data.index)

    def _features(self, split: DeviceSplit) -> tuple[Tensor, Tensor]:
        """Return the features (n, d) of all samples, and their labels (n,)."""
        found, labels = [], []
        with repeatable_products("float32"):
            for part in split.parts(BATCH):
                inputs, wanted = split.rows(part)
                found.append(self.network.raw_features(inputs))
                labels.append(wanted)
        return torch.cat(found), torch.cat(labels)

    # Where no task is known.

    @usual_surroundings()
    def class_accuracy(self, x: Any, y: Any, task: int | str) -> float:
        """Return the share of a task's samples whose class is found among those of all tasks learnt so far.

        Classes of different tasks are different, also where they are called the same. Of the task only the scale of its
        samples is used, and what its labels mean.
        """
        number = task_number(task, self.seen)
        found = self.network.among_all(check_inputs(x, number, self.seen, self.device, self.text)).argmax(1)
        wanted = checked_labels(y, len(found), "y")
        places = {label: place for place, label in enumerate(self.classes(number), self.network.first_class(number))}
        hits = [place == places.get(label) for place, label in zip(found.tolist(), wanted, strict=True)]
        return sum(hits) / len(hits) if hits else 0.0

    # What is kept.

    def base_sha256(self) -> str:
        """Return a sha256 of the pretrained weights; '' without such."""
        return self.network.base_sha256()

    def _kept(self, _first: int = 0, /) -> State:
        network = self.network
        statistics = {"mean": network.means, "covariance": network.covariances} if network.slept else {}
        recent = {f"recent/{number}": samples for number, samples in enumerate(network.recent)}
        return State({}, {**statistics, **recent})

    def _check_kept(self, kept: State, seen: Sequence[SeenTask], /) -> None:
        """Refuse what cannot be stored of these tasks, of which the facts say how many are in the mPFC."""
        slept, code = kept.facts["slept"], self.settings.code
        lasting = sum(entry.classes for entry in seen[:slept])
        wanted: Shapes = {"mean": (lasting, code), "covariance": (lasting, code, code)} if slept else {}
        for number in range(sum(entry.classes for entry in seen[slept:])):
            found = kept.tensors.get(f"recent/{number}")
            wanted[f"recent/{number}"] = (max(1, 0 if found is None else len(found)), self.network.width)
        check_tensors(
            {EXTRA + name: tensor for name, tensor in kept.tensors.items()},
            {EXTRA + name: shape for name, shape in wanted.items()},
        )
        for name, tensor in kept.tensors.items():
            if not tensor.isfinite().all():
                raise NetworkError(f"tensor '{EXTRA}{name}' holds numbers that are not finite")

    def _restore_kept(self, kept: State, /) -> None:
        tensors = {name: tensor.to(self.device) for name, tensor in kept.tensors.items()}
        recent = [tensors[f"recent/{number}"] for number in range(sum(name.startswith("recent/") for name in tensors))]
        self.network.remember_again(recent, tensors.get("mean"), tensors.get("covariance"))
