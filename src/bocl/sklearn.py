"""A learner as scikit-learn knows them: for pipelines, cross-validation and searches over settings.

model = BOCLClassifier().fit(X, y)
model.predict(X)
model.learn_task(X2, y2, name="later")
model.predict(X2, task="later")
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from bocl.checks import checked
from bocl.errors import InputError
from bocl.methods.bocl import BOCL
from bocl.methods.budget import GoalSettings
from bocl.methods.guessing import GuessSettings, TaskGuess
from bocl.methods.method import Learned
from bocl.methods.reward import RewardSettings
from bocl.networks.architectures import mlp
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings
from bocl.search.settings import SearchSettings
from bocl.tasks.class_weights import ClassWeight
from bocl.tasks.own import Cuts, PartFraction, Parts, make_own_task
from bocl.training.recipe import Recipe

TOLERANCE = GoalSettings().tolerance


class BOCLClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that learns one task with ``fit``, further ones with ``learn_task``, and forgets none.

    What ``fit`` learns is task 0. ``predict`` and its kin answer for it unless they are told another, so that further
    tasks change nothing for those who know only the first.

    learner_        the ``BOCL`` learner: ``learner_.save(folder)``, ``learner_.seen``
    learned_        what was learnt, a ``Learned`` per task
    classes_        the labels of task 0, in the order of probabilities; those of others: ``learner_.classes(task)``
    n_features_in_  of a sample
    """

    def __init__(
        self,
        network: nn.Module | Graph | None = None,
        *,
        hidden: Sequence[int] = (64, 32),
        standardise: bool = True,
        validation: float = 0.1,
        class_weight: ClassWeight = None,
        tolerance: float = TOLERANCE,
        recipe: Recipe | None = None,
        search: SearchSettings | None = None,
        growth: GrowthSettings | None = None,
        reward: RewardSettings | None = None,
        goal: GoalSettings | None = None,
        guess: GuessSettings | None = None,
        tasks: int = 10,
        random_state: int | np.random.RandomState | None = 0,
        device: str | torch.device = "auto",
        verbose: bool = False,
    ) -> None:
        """Take any network BOCL takes.

        network       if left out, a multilayer perceptron for as many features as there are
        hidden        its hidden layers
        standardise   whether every feature is scaled to 0 ± 1; each task has its own scale
        validation    fraction of the samples that is set aside to make choices by, and never trained on
        class_weight  "balanced" for classes that count the same, however many samples they have; or {label: weight}
        tolerance     accuracy that may be given up for a smaller network; without effect if ``reward`` has a price
        recipe        how networks are trained; if left out, ``Recipe()``
        search, growth, reward, goal, guess, tasks  as ``BOCL`` takes them; if left out, as usual. A goal has its own
                      tolerance
        random_state  the seed; None for another one each time
        device        `auto`, `cpu`, `cuda` or `cuda:N`
        verbose       whether progress is shown on standard error
        """
        self.network = network
        self.hidden = hidden
        self.standardise = standardise
        self.validation = validation
        self.class_weight = class_weight
        self.tolerance = tolerance
        self.recipe = recipe
        self.search = search
        self.growth = growth
        self.reward = reward
        self.goal = goal
        self.guess = guess
        self.tasks = tasks
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> BOCLClassifier:
        """Learn one task, afresh: what was learnt before is dropped.

        X  (n, features), or samples of any shape that the network takes
        y  (n,) labels
        """
        for attribute in ("learner_", "learned_", "classes_"):
            self.__dict__.pop(attribute, None)
        return self.learn_task(X, y)

    def learn_task(
        self, X: Any, y: Any, *, name: str | None = None, validation: tuple[Any, Any] | None = None
    ) -> BOCLClassifier:
        """Learn one more task, with labels of its own; the first one if nothing is learnt yet.

        name        what to call it; "task 1", "task 2", … if left out
        validation  samples (X, y) to make choices by, where none may be cut from the training samples
        """
        first = not hasattr(self, "learner_")
        X, y = validate_data(self, X, y, reset=first, allow_nd=True, ensure_min_samples=2)
        check_classification_targets(y)
        learner = self._new_learner(X.shape[1:]) if first else self._learner()
        index = len(learner.seen)
        name = f"task {index + 1}" if name is None else str(name)
        if any(name == seen.name for seen in learner.seen):
            raise InputError(f"a task '{name}' is learnt already; give this one another name")
        cuts = Cuts(
            checked("validation", self.validation, PartFraction),
            test=0,
            standardise=checked("standardise", self.standardise, bool),
            seed=learner.seed,
            class_weight=self.class_weight,
        )
        task, _ = make_own_task(name, index, Parts((X, y), validation), cuts, lambda part: f"task '{name}', {part}")
        learned = learner.learn(task, verbose=self.verbose)
        if first:
            self.learner_ = learner
            self.learned_: list[Learned] = []
            self.classes_ = np.array(learner.classes(0))
        self.learned_.append(learned)
        return self

    def _new_learner(self, shape: tuple[int, ...]) -> BOCL:
        state = self.random_state
        seed = state if isinstance(state, Integral) else int(check_random_state(state).randint(2**31))
        network = mlp(prod(shape), self.hidden) if self.network is None else self.network
        if self.goal is not None and self.tolerance != TOLERANCE:
            raise InputError(f"give tolerance or goal, not both: goal=GoalSettings(tolerance={self.tolerance}, …)")
        settings = {name: getattr(self, name) for name in ("recipe", "search", "growth", "reward", "goal", "guess")}
        given = {name: value for name, value in settings.items() if value is not None}
        usual: dict[str, Any] = {"recipe": Recipe(), "goal": GoalSettings(tolerance=self.tolerance)}
        return BOCL(network, **usual | given, tasks=self.tasks, seed=seed, device=self.device)

    def predict(self, X: Any, task: int | str | None = 0) -> NDArray[Any]:
        """Return the most likely label of every sample, (n,), of a task given by number, from 0, or by name.

        With ``guess=GuessSettings("auto")`` the task may be None: that of every sample is guessed.
        """
        return np.array(self._learner().predict_labels(self._samples(X), task))

    def predict_task(self, X: Any, *, together: bool = False) -> TaskGuess:
        """Guess which task samples are of; ``together``, if all are of one."""
        return self._learner().predict_task(self._samples(X), together=together)

    def predict_proba(self, X: Any, task: int | str | None = 0) -> NDArray[np.float32]:
        """Return the probability of every class of a task, (n, classes)."""
        return _array(self._learner().predict_proba(self._samples(X), task))

    def decision_function(self, X: Any, task: int | str | None = 0) -> NDArray[np.float32]:
        """Return the logits of a task, (n, classes); the log-odds of the second class, (n,), where there are two."""
        logits = _array(self._learner().predict(self._samples(X), task))
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def score(self, X: Any, y: Any, sample_weight: Any = None, task: int | str | None = 0) -> float:
        """Return the share of samples whose label is predicted rightly."""
        return float(accuracy_score(y, self.predict(X, task), sample_weight=sample_weight))

    def _learner(self) -> BOCL:
        check_is_fitted(self)
        learner: BOCL = self.learner_
        return learner

    def _samples(self, X: Any) -> Any:
        return validate_data(self, X, reset=False, allow_nd=True)


def _array(tensor: Tensor) -> NDArray[np.float32]:
    found: NDArray[np.float32] = tensor.cpu().numpy()
    return found
