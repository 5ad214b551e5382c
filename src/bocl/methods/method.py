"""What every method is: one call per task, predictions for any task seen, a state that can be saved.

A method is a ``Learner``: it says how it learns a task (``_learn``) and with which network. What the other rooms
ask of a method (its budget, its proof, its gates, what it keeps) are methods of ``Learner`` with a default, so that
no other room needs to know which method it is. A method counts tasks in the order it learns them, from 0.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import asdict, dataclass, field
from operator import eq
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from bocl.checks import Natural, checked
from bocl.errors import DataError
from bocl.methods import guessing
from bocl.methods.discriminant import Discriminant
from bocl.methods.failures import Listener, out_of_memory_explained
from bocl.methods.guessing import GUESS, OFF, GuessSettings, MapKind, TaskGuess
from bocl.methods.round_trainer import LocalTrainer
from bocl.methods.rounds import RoundTrainer
from bocl.methods.seen import SeenTask, check_inputs, check_task, check_text, seen_from, task_number, text_from
from bocl.methods.task_network import TaskNetwork, task_network
from bocl.networks.check import check_tensors
from bocl.networks.graph import Graph
from bocl.networks.growth import Shapes
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.single_task import SingleTask
from bocl.networks.trace import trace
from bocl.records.events import Callback, TaskStarted, ignore_events, in_turn
from bocl.records.interrupts import held_back
from bocl.records.record import Diagnostics, Limit, Trial
from bocl.tasks.labels import Label
from bocl.tasks.samples import checked_labels
from bocl.tasks.task import Task, with_validation
from bocl.tasks.texts import TextFormat
from bocl.training.batches import DeviceTask, task_to_device
from bocl.training.device import resolve_device
from bocl.training.recipe import Recipe
from bocl.training.surroundings import usual_surroundings
from bocl.training.trainer import Effort
from bocl.widths import Widths
from bocl.wording import counted, percent, shown

if TYPE_CHECKING:
    from bocl.methods.exporting.export import Exported

EXTRA = "memory/"  # begins the saved names of tensors that a method keeps besides its network


@dataclass(frozen=True)
class Learned:
    """What a method did for one task.

    widths               units added to each hidden group
    validation_accuracy  of the network that was kept, in compact form
    parameters           what the task added to what is stored, by part
    trials               every child of its search, first one that is always a candidate (z = 0, or a network of the
                         task's own); empty without a search
    difficulty           M_t, where it was measured
    effort               samples shown and seconds spent, over all networks trained for the task
    diagnostics          of its search, where the searcher has any
    units                how many units of each hidden group the method's own steps were about, by step (DEN's)
    reads                numbers of the tasks whose units it reads; None where a method reads all there are
    limit                what kept its growth from being larger: nothing larger was worth it by the goal (`tolerance`,
                         `target`, `price`), nothing larger fits the `budget`, or it reached the `bounds`
    bounds               of its search in the end: most units it might add to each group
    widened              how often they were widened because the best child lay on them
    """

    name: str
    widths: Widths
    validation_accuracy: float
    parameters: dict[str, int]
    trials: tuple[Trial, ...] = ()
    difficulty: float = math.nan
    effort: Effort = field(default_factory=Effort)
    diagnostics: Diagnostics | None = None
    units: dict[str, Widths] = field(default_factory=dict)
    reads: tuple[int, ...] | None = None
    limit: Limit = ""
    bounds: Widths = ()
    widened: int = 0

    @property
    def added_parameters(self) -> int:
        """All parameters the task added: shared, head, attention and norms."""
        return sum(self.parameters.values())


@dataclass(frozen=True, eq=False)
class State:
    """All a method must keep, without its settings: JSON values and tensors."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]


class Network(Protocol):
    """What a learner asks of its network, whatever its kind."""

    @property
    def graph(self) -> Graph | Backbone:
        """What every task's network is made from."""
        ...

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task)."""
        ...

    def single_task(self, task: int, /) -> SingleTask:
        """Return what a task computes with, apart from the others."""
        ...

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part: shared, heads, attention, norms."""
        ...

    def stored(self, first: int = 0, last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: facts as JSON values, and every tensor. The classes are saved by the learner.

        A network whose tasks are frozen gives what the tasks ``first`` to before ``last`` added: a fact that grows is a
        list to which they add, and their tensors are called ``TASK/NAME``. Another network gives all it has.
        """
        ...

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int], /) -> Shapes:
        """Return the shape every saved tensor must have, or refuse saved facts that cannot be."""
        ...

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int], /) -> None:
        """Take back what ``stored`` returned, after tasks of these numbers of classes."""
        ...


class Learner:
    """A system that learns tasks in a row.

    name              as in ``method_table.py``
    forgets           whether learning a task may change what earlier tasks compute with
    if_out_of_memory  what a user can make smaller
    chooses           whether it chooses among trained networks by validation samples
    """

    name: ClassVar[str]
    forgets: ClassVar[bool]
    if_out_of_memory: ClassVar[str] = "a smaller recipe.batch_size or network"
    chooses: bool = False
    takes_whole: ClassVar[bool] = False  # whether it takes a pretrained module as it is, however tasks grow
    network: Network

    graph: Graph | Backbone

    def __init__(
        self,
        network: nn.Module | Graph | Backbone,
        *,
        recipe: Recipe,
        seed: int,
        device: str | torch.device,
        guess: GuessSettings = GuessSettings(),  # noqa: B008 - frozen
    ) -> None:
        self.graph = network if isinstance(network, Graph | Backbone) else trace(network)
        self.recipe = checked("recipe", recipe, Recipe)
        self.seed = checked("seed", seed, Natural)
        self.device = resolve_device(device)
        self.guess = checked("guess", guess, GuessSettings)
        self.discriminant: Discriminant | None = None  # what tasks are guessed by, where they are
        self.seen: list[SeenTask] = []
        self.text: TextFormat | None = None  # how texts become samples, once a task of texts is learnt

    def learn(
        self,
        task: Task,
        callback: Callback = ignore_events,
        *,
        trainer: RoundTrainer | None = None,
        verbose: bool = False,
    ) -> Learned:
        """Learn one more task.

        callback  is called with every event, so that a person can watch; results never depend on it
        trainer   trains the rounds of methods that grow children, instead of this process
        verbose   whether progress is shown on standard error, as the command line shows it
        """
        if verbose:
            return self._learn_shown(task, callback, trainer)
        listener = Listener(callback)
        with self._all_or_nothing(), usual_surroundings(), out_of_memory_explained(self.if_out_of_memory, listener):
            check_text(task, self.text, self.seen)
            check_task(self.graph, task, self.seen)
            self.check_budget(task.classes)
            first = self.seen[0] if self.seen else SeenTask.of(task)
            map_kind = self.map_kind(first)
            data = self.to_learn_from(task, len(self.seen))
            learned = self._learn(task, data, listener, trainer or LocalTrainer())
            if map_kind is not None:
                self.discriminant = self._discriminant_with(task, first, map_kind)
            self.seen.append(SeenTask.of(task))
            self.text = task.text
        return learned

    def _learn_shown(self, task: Task, callback: Callback, trainer: RoundTrainer | None) -> Learned:
        from bocl.progress.display import Display, below_task, task_line
        from bocl.records.words import growth_words

        began = time.perf_counter()
        with Display() as display, display.watch(self.name, self.seed) as show:
            started = TaskStarted(len(self.seen), len(self.seen) + 1, getattr(task, "name", ""))
            show(started)
            learned = self.learn(task, in_turn(show, callback), trainer=trainer)
            accuracy, seconds = f"validation {percent(learned.validation_accuracy)}", time.perf_counter() - began
            trials, added = len(learned.trials), learned.added_parameters
            display.say(task_line(started, learned.widths, accuracy, added, trials, seconds))
            if words := growth_words(learned, started.index):
                display.say(below_task(started, words))
        return learned

    def to_learn_from(self, task: Task, index: int) -> DeviceTask:
        """Return a task's samples on the device; all of them to train on, where the recipe says so and it may be."""
        everything = self.recipe.use_validation and not self.chooses
        return task_to_device(with_validation(task) if everything else task, index, self.device)

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, trainer: RoundTrainer, /) -> Learned:
        """Learn one more task, which fits the network and the budget; write into no tensor that is kept."""
        raise NotImplementedError

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Put the learner and its network back to where they were if the work inside fails or is interrupted."""
        before = [
            (part, {name: copy(kept) if isinstance(kept, list | dict) else kept for name, kept in vars(part).items()})
            for part in (self, self.network)
        ]
        try:
            yield
        except BaseException:
            with held_back():
                for part, attributes in before:
                    part.__dict__ = attributes
            raise

    @usual_surroundings()
    def predict(self, x: Any, task: int | str | None = None, *, together: bool = False) -> Tensor:
        """Return logits (n, classes) for the inputs of a task learnt before, given by its number, from 0, or its name.

        Where the method forgets nothing they have the same bits as on the day the task was learnt.

        x         (n, *shape), as the task's samples came, which are scaled here; for a task of bytes, float32 is taken
                  as already scaled (``Split.inputs``); for a task of texts, a list of strings, or their token ids
        task      if left out, every sample's task is guessed (``predict_task``), and where the guesses have different
                  numbers of classes, rows end in -inf
        together  whether all samples are of one task, which is guessed from all of them
        """
        if task is None:
            return self._without_task(x, together)[1]
        number = task_number(task, self.seen)
        return self.network.predict(check_inputs(x, number, self.seen, self.device, self.text), number)

    @usual_surroundings()
    def predict_task(self, x: Any, *, together: bool = False) -> TaskGuess:
        """Guess which task samples are of, by means and a covariance that are kept of every task's samples.

        The guesses may change when a task is learnt; the logits of a task, once it is named, do not.

        x         (n, *shape), as samples came
        together  whether all of them are of one task: 20 that are tell it far better than one
        """
        from bocl.methods.unnamed import guess_tasks

        return guess_tasks(self, x, together=together)

    @usual_surroundings()
    def _without_task(self, x: Any, together: bool) -> tuple[TaskGuess, Tensor]:
        from bocl.methods.unnamed import predict_unnamed

        return predict_unnamed(self, x, together=together)

    def predict_proba(self, x: Any, task: int | str | None = None, *, together: bool = False) -> Tensor:
        """Return the probability of every class, (n, classes), in the order of ``classes(task)``."""
        return self.predict(x, task, together=together).softmax(dim=1)

    def predict_labels(self, x: Any, task: int | str | None = None, *, together: bool = False) -> list[Label]:
        """Return the most likely label of every sample, as the labels of its task, given or guessed, were given."""
        if task is None:
            guess, logits = self._without_task(x, together)
            best = zip(guess.tasks.tolist(), logits.argmax(dim=1).tolist() if len(logits) else (), strict=True)
            return [self.seen[number].class_labels[label] for number, label in best]
        labels = self.classes(task)
        return [labels[number] for number in self.predict(x, task).argmax(dim=1).tolist()]

    def score(self, x: Any, y: Any, task: int | str | None = None, *, together: bool = False) -> float:
        """Return the share of samples whose label is predicted rightly."""
        found = self.predict_labels(x, task, together=together)
        wanted = checked_labels(y, len(found), "y")
        known = {label for entry in self.seen for label in entry.class_labels} if task is None else self.classes(task)
        if wanted and not set(wanted) & set(known):
            raise DataError(
                f"y: no label is one of the task's: {shown(wanted[0])} is none of {shown(list(known))}; give labels as "
                "the task's were given"
            )
        return float(np.mean([*map(eq, found, wanted)])) if found else 0.0

    def classes(self, task: int | str) -> tuple[Label, ...]:
        """Return the labels of a task, in the order of its logits."""
        return self.seen[task_number(task, self.seen)].class_labels

    @usual_surroundings()
    def logits(self, inputs: Tensor, task: int) -> Tensor:
        """Return logits (n, classes) for inputs as the network sees them, on its device (``Split.inputs``)."""
        return self.network.predict(inputs, task)

    @usual_surroundings()
    def module(self, task: int | str, *, scaling: bool = True) -> TaskNetwork:
        """Return one task as an ``nn.Module`` with parameters of its own, which gives the bits that ``predict`` gives.

        Where gradients of its parameters are recorded, PyTorch may choose other kernels, and the last bit may differ.

        scaling  whether it takes samples as they came and scales them, as ``predict`` does; bytes are then numbers from
                 0 to 255, whatever their type. Otherwise it takes what the network sees (``Split.inputs``)
        """
        number = task_number(task, self.seen)
        single = self.network.single_task(number)
        return task_network(self.network.graph, single, self.seen[number], self.text, scaling=scaling)

    def __repr__(self) -> str:
        names = [entry.name for entry in self.seen]
        learnt = f"{counted(len(names), 'task')} learnt" + (f": {', '.join(map(repr, names[-3:]))}" if names else "")
        learnt = learnt.replace(": ", ": …, ", 1) if len(names) > 3 else learnt
        stored = f", {sum(self.parameters().values()):,} parameters" if names else ""
        return f"<{type(self).__name__}: {learnt}{stored}, on {self.device}>"

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part: shared, heads, attention, norms."""
        return self.network.parameters()

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own; ``bocl.load`` rebuilds it from there."""
        from bocl.methods.saving import save

        save(self, folder)

    def export(self, task: int | str | None, path: str | Path, to: str) -> Exported:
        """Write one task to a new file or folder, in a form that other systems read; None is all tasks in one file.

        to  `pt2`, `onnx`, `safetensors`, `hub-folder`, and of low-rank growth `peft` and `merged`
        """
        from bocl.methods.exporting.export import export

        return export(self, task, path, to)

    # What is kept between two tasks.

    def state(self, first: int = 0) -> State:
        """Return what has been learnt: the network's, the tasks seen, and what the method keeps besides.

        first  where the method forgets nothing: the number of the first task whose additions are wanted
        """
        kept = self._kept(first)
        facts, tensors = self.network.stored(first)
        text = {} if self.text is None or first else {"text": asdict(self.text)}
        facts = {**facts, "seen": [asdict(entry) for entry in self.seen[first:]], **text, **kept.facts}
        extra = {EXTRA + name: value for name, value in kept.tensors.items()}
        guess = {GUESS + name: value for name, value in guessing.stored(self.discriminant, first).items()}
        return State(facts, {**tensors, **extra, **guess})

    def check_state(self, state: State) -> None:
        """Refuse a saved state that is not one of this method: its facts first, then every tensor by name and shape."""
        seen = seen_from(state.facts, self.graph)
        text_from(state.facts)
        kept, guess, own = split_extra(state.tensors)
        check_tensors(own, self.network.stored_shapes(state.facts, [entry.classes for entry in seen]))
        guessing.check_stored(guess, seen, self.map_kind(seen[0]) if seen else None, self.guess.size)
        self._check_kept(State(state.facts, kept), seen)

    @usual_surroundings()
    def restore(self, state: State) -> None:
        """Take back what ``state`` returned, in a method made with the same settings."""
        self.seen, self.text = seen_from(state.facts, self.graph), text_from(state.facts)
        kept, guess, own = split_extra(state.tensors)
        self.network.restore(state.facts, own, [entry.classes for entry in self.seen])
        self.discriminant = guessing.restored(guess, len(self.seen), self.device)
        self._restore_kept(State(state.facts, kept))

    def _kept(self, _first: int = 0, /) -> State:
        """Return what the method keeps besides its network; where it forgets nothing, from this task's number on."""
        return State({}, {})

    def _check_kept(self, kept: State, _seen: Sequence[SeenTask], /) -> None:
        """Refuse what is not what ``_kept`` returned after these tasks."""
        check_tensors({EXTRA + name: tensor for name, tensor in kept.tensors.items()}, {})

    def _restore_kept(self, _kept: State, /) -> None:
        """Take back what ``_kept`` returned."""

    # What tasks are guessed by.

    def _discriminant_with(self, task: Task, first: SeenTask, kind: MapKind) -> Discriminant:
        from bocl.methods.unnamed import added_up

        return added_up(self, task, first, kind)

    def map_kind(self, first: SeenTask) -> MapKind | None:
        """Return the map of samples by which tasks are guessed, None where they are not; refuse one that cannot be."""
        if self.guess.map == OFF:
            return None
        return guessing.map_kind(self.guess, first, features=self.frozen_features is not None, method=self.name)

    @property
    def frozen_features(self) -> Callable[[Tensor], Tensor] | None:
        """What a frozen pretrained network makes of inputs, (n, C); None where the method keeps none."""
        return None

    # What a run asks of every method.

    def check_budget(self, classes: int) -> None:
        """Refuse, before anything is trained, a budget that tasks of so many classes exceed even if nothing grows."""

    def base_sha256(self) -> str:
        """Return a sha256 of the pretrained weights that tasks grow from; '' without such."""
        return ""

    def recall(self, tasks: Sequence[Task]) -> None:
        """Take back the data of the tasks learnt before, where the method needs it and no saved state holds it."""

    def extra_numbers(self) -> int:
        """Count the numbers kept besides the parameters: to learn later tasks with, and to guess tasks by."""
        to_guess = 0 if self.discriminant is None else self.discriminant.numbers()
        return sum(tensor.numel() for tensor in self._kept(len(self.seen)).tensors.values()) + to_guess

    def widths_by_task(self) -> list[Widths] | None:
        """Return what every task added, where the state says it."""
        return None

    def tensors_of(self, task: int) -> dict[str, Tensor]:
        """Return every tensor and buffer that a task computes with; what all tasks share is with the first.

        A method that changes earlier tasks stores nothing for one task only: all it stores is given for each.
        """
        if self.forgets:
            return self.state().tensors
        _, tensors = self.network.stored(task, task + 1)
        guess = {} if self.discriminant is None else guessing.of_task(self.discriminant.tasks[task])
        own = {name.removeprefix(f"{task}/"): tensor for name, tensor in tensors.items()}
        return own | {GUESS + name: tensor for name, tensor in guess.items()}

    def gate_openness(self, _task: int, _inputs: Tensor, /) -> dict[str, Tensor]:
        """Return {gated layer: mean gate on the units of every task up to this one}; nothing without gates."""
        return {}


def split_extra(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Return what a method keeps besides its network, what it guesses tasks by, and the network's own tensors.

    The names of the first two are without ``EXTRA`` and ``GUESS``.
    """
    kept, guess = (
        {name.removeprefix(begin): tensor for name, tensor in tensors.items() if name.startswith(begin)}
        for begin in (EXTRA, GUESS)
    )
    return kept, guess, {name: tensor for name, tensor in tensors.items() if not name.startswith((EXTRA, GUESS))}
