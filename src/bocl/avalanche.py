"""Avalanche's benchmarks for our learners, and a learner as Avalanche knows its strategies.

strategy = Strategy(bocl.BOCL(bocl.mlp(64, [48, 24])))
for experience in benchmark.train_stream:
    strategy.train(experience)
    results = strategy.eval(benchmark.test_stream)

An experience is a task, called "experience 3" after its number in the stream. That name says at evaluation which task
samples belong to, whatever task labels the benchmark has.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from bocl.checks import checked
from bocl.errors import DataError, DataWarning, InputError
from bocl.extras import needed
from bocl.methods.method import Learner
from bocl.tasks.arrays import ArrayStream, from_arrays
from bocl.tasks.own import Cuts, PartFraction, Parts, make_own_task
from bocl.tasks.task import Task
from bocl.training.evaluation import BATCH

Pair = tuple[Tensor, Tensor]


def from_avalanche(
    benchmark: Any, *, validation: float | Iterable[Any] = 0.1, standardise: bool = False, seed: int = 0
) -> ArrayStream:
    """Make a stream of an Avalanche benchmark: a task per experience of its train stream, tested on its test stream.

    benchmark    with as many experiences in ``test_stream`` as in ``train_stream``
    validation   fraction of each experience's samples that is set aside to make choices by, and never trained on; or
                 the benchmark's stream of such samples: ``benchmark.valid_stream``
    standardise  whether floats are scaled to 0 ± 1 by each feature of vectors or channel of images, as bytes always are
    seed         decides which samples are set aside

    Samples are what the datasets give in evaluation, without the transforms that are for training only. Labels stay
    Avalanche's class numbers: ``learner.predict_labels`` answers with them.
    """
    if not isinstance(benchmark, _avalanche("benchmarks").CLScenario):
        raise InputError(
            f"a {type(benchmark).__name__} is not a benchmark of Avalanche; give what its generators return, such as "
            "nc_benchmark(…) or task_incremental_benchmark(…)"
        )
    streams = benchmark.streams
    for name in ("train", "test"):
        if name not in streams:
            known = ", ".join(f"'{each}'" for each in streams)
            raise InputError(f"the benchmark has no stream '{name}' (it has {known}); give it one of that name")
    train, test = (_experiences(streams[name], "from_avalanche") for name in ("train", "test"))
    if len(train) != len(test):
        raise DataError(
            f"the benchmark has {len(train)} train and {len(test)} test experiences; give every train experience test "
            "samples of its own, for instance with benchmark_from_datasets"
        )
    _look_at_task_labels([_task_label(experience) for experience in train])
    names, held_out = [*map(_name, train)], _held_out(validation)
    return from_arrays(
        [*map(_samples, train)],
        test=[*map(_samples, test)],
        validation=held_out if isinstance(held_out, float) else [_part(held_out, name) for name in names],
        standardise=standardise,
        seed=seed,
        names=names,
    )


class Strategy:
    """A learner with the ``train`` and ``eval`` of Avalanche's strategies, measured by Avalanche's own evaluator.

    learner    the learner that was given: ``learner.predict_labels(x, "experience 3")``, ``learner.save(folder)``
    evaluator  the ``EvaluationPlugin``

    Metrics and loggers are shown what they read of a strategy: experiences, the samples, logits and loss of evaluation,
    and a clock. Those that follow training step by step, such as the accuracy of an epoch, stay silent.
    """

    def __init__(
        self,
        learner: Learner,
        *,
        evaluator: Any = None,
        validation: float | Iterable[Any] = 0.1,
        standardise: bool = False,
        verbose: bool = False,
    ) -> None:
        """Take any learner, also one that has learnt before.

        evaluator    an ``EvaluationPlugin``, or a function that makes one; if left out, Avalanche's default, which
                     measures accuracy and loss and prints them
        validation, standardise  as ``from_avalanche`` takes them; the seed is the learner's
        verbose      whether progress is shown on standard error, as the command line shows it
        """
        if not isinstance(learner, Learner):
            raise InputError(
                f"a {type(learner).__name__} is not a learner; give one, such as bocl.BOCL(bocl.mlp(64, [48]))"
            )
        plugins = _avalanche("training.plugins")
        make = _avalanche("training.plugins.evaluation").default_evaluator if evaluator is None else evaluator
        self.evaluator = make() if callable(make) else make
        if not isinstance(self.evaluator, plugins.EvaluationPlugin):
            raise InputError(f"evaluator is a {type(self.evaluator).__name__}; give an EvaluationPlugin of Avalanche")
        self.learner = learner
        self._held_out = _held_out(validation)
        self._standardise = checked("standardise", standardise, bool)
        self._verbose = checked("verbose", verbose, bool)
        self._task_labels: list[int | None] = []

        # What Avalanche's metrics and loggers read of a strategy.
        self.clock = _avalanche("training.plugins.clock").Clock()
        self.is_training = False
        self.experience: Any = None
        self.current_eval_stream: Sequence[Any] = ()
        self.dataloader: Any = ()
        self.mb_x = self.mb_y = self.mb_task_id = self.mb_output = self.loss = torch.empty(0)

    @property
    def is_eval(self) -> bool:
        """Whether samples are evaluated, not learnt from."""
        return not self.is_training

    def train(self, experiences: Any, eval_streams: Any = None, **_options: Any) -> dict[str, Any]:
        """Learn one experience, or each of a stream, as a task; return the last value of every metric.

        ``eval_streams`` and the options of data loaders, such as ``num_workers``, are taken because loops give them.
        They change nothing.
        """
        del eval_streams
        self.is_training = True
        self._tell("before_training")
        for experience in _experiences(experiences, "train"):
            task, labels = self._task(experience), [*self._task_labels, _task_label(experience)]
            _look_at_task_labels(labels)
            self.experience = experience
            self._tell("before_training_exp")
            learned = self.learner.learn(task, verbose=self._verbose)
            self._task_labels = labels
            # The place of later points on curves: as many steps as the samples shown would make in one network.
            self.clock.train_iterations += math.ceil(learned.effort.samples / self.learner.recipe.batch_size)
            self._tell("after_training_exp")
        self._tell("after_training")
        return self._last_metrics()

    def _task(self, experience: Any) -> Task:
        """Return an experience as the next task, or refuse it."""
        name, stream = _name(experience), experience.origin_stream.name
        if stream != "train":
            raise InputError(f"this {name} is of the stream '{stream}'; train on those of benchmark.train_stream only")
        if any(name == seen.name for seen in self.learner.seen):
            raise InputError(f"{name} is learnt already, and every experience is a task of its own; train on the next")
        held_out = self._held_out
        fraction = held_out if isinstance(held_out, float) else 0.1
        cuts = Cuts(fraction, test=0, standardise=self._standardise, seed=self.learner.seed)
        parts = Parts(_samples(experience), None if isinstance(held_out, float) else _part(held_out, name))
        task, _ = make_own_task(name, len(self.learner.seen), parts, cuts, lambda part: f"{name}, {part}")
        return task

    def eval(self, experiences: Any, **_options: Any) -> dict[str, Any]:
        """Evaluate on one experience, or on each of a stream; return the last value of every metric.

        In an experience that is not learnt yet, every class gets the same logit.
        """
        self.is_training = False
        self.current_eval_stream = _experiences(experiences, "eval")
        known = {seen.name: seen.class_labels for seen in self.learner.seen}
        self._tell("before_eval")
        for experience in self.current_eval_stream:
            name, label = _name(experience), _task_label(experience)
            self.experience, self.dataloader = experience, _loader(experience)
            self._tell("before_eval_exp")
            for x, y in _batches(experience, self.dataloader):
                self.mb_x, self.mb_y, self.mb_task_id = x, y, torch.full_like(y, label or 0)
                self._tell("before_eval_iteration")
                self.mb_output = self._answers(name, known.get(name, ()))
                self.loss = F.cross_entropy(self.mb_output, self.mb_y)
                self._tell("after_eval_iteration")
            self._tell("after_eval_exp")
        self._tell("after_eval")
        return self._last_metrics()

    def _answers(self, task: str, classes: Sequence[Any]) -> Tensor:
        """Return a logit for every sample and class number, (n, largest number + 1): -∞ for classes of other tasks."""
        wanted = self.mb_y.tolist()
        if not classes:
            return torch.zeros(len(wanted), 1 + max(wanted))
        if strange := sorted({*wanted} - {*classes}):
            raise DataError(
                f"{task} has samples of class {strange[0]} to evaluate, which it did not have in training; give every "
                "train experience test samples of its own"
            )
        answers = torch.full((len(wanted), 1 + max(classes)), -math.inf)
        answers[:, [*classes]] = self.learner.predict(self.mb_x, task).float().cpu()
        return answers

    def _tell(self, event: str) -> None:
        for listener in (self.evaluator, self.clock):
            getattr(listener, event)(self)

    def _last_metrics(self) -> dict[str, Any]:
        self.experience = None
        found: dict[str, Any] = self.evaluator.get_last_metrics()
        return found


def _avalanche(module: str) -> Any:
    return needed(f"avalanche.{module}", "avalanche", "bocl.avalanche works with Avalanche")


def _experiences(given: Any, taker: str) -> list[Any]:
    """Return one experience, or those of a stream, each with all it knows of itself."""
    kind, found = _avalanche("benchmarks").CLExperience, []
    for experience in given if isinstance(given, Iterable) else [given]:
        if not isinstance(experience, kind):
            raise InputError(
                f"{taker} takes an experience or a stream of Avalanche, such as benchmark.train_stream, not a "
                f"{type(given).__name__}"
            )
        found.append(experience.logging())
    return found


def _name(experience: Any) -> str:
    return f"experience {experience.current_experience}"


def _task_label(experience: Any) -> int | None:
    """Return the task label of an experience's samples; None where they have none."""
    if not hasattr(experience.dataset, "targets_task_labels"):
        return None
    labels = sorted(experience.dataset.targets_task_labels.uniques)
    if len(labels) > 1:
        raise DataError(
            f"{_name(experience)} has samples of several task labels, {labels}; give every task label an experience of "
            "its own"
        )
    return int(labels[0]) if labels else None


def _look_at_task_labels(labels: Sequence[int | None]) -> None:
    """Warn where the task label of the last experiences does not tell them apart."""
    if None not in labels and len({*labels}) == len(labels):
        return
    shared = "have no task label" if None in labels else f"share task label {max(labels, key=labels.count)}"
    warnings.warn(
        f"experiences {shared}, so Avalanche's strategies are not told which one a test sample is of, and bocl is: its "
        "figures are task-incremental, not to be compared with class- or domain-incremental ones; for a comparison, "
        "give every experience a task label of its own, for instance with task_incremental_benchmark",
        DataWarning,
        stacklevel=3,
    )


def _held_out(validation: float | Iterable[Any]) -> float | dict[str, Any]:
    """Return the fraction to set aside, or {name: experience of validation samples}."""
    if isinstance(validation, Iterable):
        return {_name(experience): experience for experience in _experiences(validation, "validation")}
    return checked("validation", validation, PartFraction)


def _part(held_out: Mapping[str, Any], name: str) -> Pair:
    if name not in held_out:
        raise DataError(f"validation has no {name}; give the whole stream, such as benchmark.valid_stream")
    return _samples(held_out[name])


def _loader(experience: Any) -> DataLoader[Any]:
    # A loader draws a number when it starts, and must not draw it from the generator that others train with.
    return DataLoader(experience.dataset.eval(), BATCH, generator=torch.Generator())


def _batches(experience: Any, loader: DataLoader[Any]) -> Iterator[Pair]:
    """Yield samples (n, *shape) and class numbers (n,)."""
    try:
        for x, y, *_ in loader:
            if not isinstance(x, Tensor):
                raise TypeError(f"each is a {type(x).__name__}")
            yield x, y
    except (TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise DataError(
            f"{_name(experience)}: its samples make no array ({reason}); give its dataset a transform to tensors of "
            "one shape, such as ToTensor"
        ) from error


def _samples(experience: Any) -> Pair:
    """Return all samples (n, *shape) and class numbers (n,) of an experience."""
    batches = [*_batches(experience, _loader(experience))]
    if not batches:
        raise DataError(f"{_name(experience)} has no samples; leave it out")
    samples, labels = zip(*batches, strict=True)
    return torch.cat(samples), torch.cat(labels)
