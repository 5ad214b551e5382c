"""The estimator: scikit-learn's own checks, and what it shares with the plain learner."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

import bocl
from bocl.sklearn import BOCLClassifier

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "scikit-learn.md"
RECIPE = bocl.Recipe(epochs=20, learning_rate=1e-2)
SEARCH = bocl.SearchSettings(kind="random", trials=2, warm_points=1, bounds=2)
CANNOT_HOLD: dict[str, str] = {}  # {check: reason}; the guide says that there are none


def small(**options):
    return BOCLClassifier(**{"hidden": (12,), "recipe": RECIPE, "search": SEARCH, "device": "cpu"} | options)


def blobs(seed=0, samples=80, labels=("ash", "beech", "cedar")):
    X, y = make_blobs(samples, n_features=4, centers=len(labels), cluster_std=0.5, random_state=seed)
    return 20 * X + 300, np.array(labels)[y]


@parametrize_with_checks([small()], expected_failed_checks=lambda _: CANNOT_HOLD)
def test_scikit_learns_checks_hold(estimator, check):
    check(estimator)


@pytest.mark.skipif(not sklearn.__version__.startswith("1.9."), reason="the guide is about the checks of 1.9")
def test_the_guide_lists_the_checks():
    checks = [check.func.__name__ for _, check in estimator_checks_generator(small())]
    names = set(checks)
    listed = set(re.findall(r"\bcheck_\w+", GUIDE.read_text(encoding="utf-8"))) - {"check_estimator"}
    assert listed == names
    assert f"{len(checks)} checks" in GUIDE.read_text(encoding="utf-8")
    assert set(CANNOT_HOLD) <= names


def test_it_is_the_plain_learner():
    data, held_out = blobs(0), blobs(1)
    model = small(random_state=3).learn_task(*data, name="trees", validation=held_out)
    (task,) = bocl.from_arrays([data], validation=[held_out], test=[held_out], standardise=True, names=["trees"])
    learner = bocl.BOCL(bocl.mlp(4, [12]), recipe=RECIPE, search=SEARCH, seed=3, device="cpu")
    learned = learner.learn(task)
    assert model.learned_ == [learned]
    X = held_out[0]
    assert np.array_equal(model.decision_function(X), learner.predict(X, "trees"))
    assert np.array_equal(model.predict_proba(X), learner.predict_proba(X, "trees"))
    assert model.predict(X).tolist() == learner.predict_labels(X, "trees")


def test_every_sample_is_used():
    X, y = blobs(samples=40)
    model = small(validation=0.25).fit(X, y)
    assert model.learned_[0].effort.samples == 30 * RECIPE.epochs, "all but the 10 to make choices by, in every epoch"


def test_a_further_task_changes_nothing_for_the_first():
    X, y = blobs(0)
    X2, y2 = blobs(1, labels=(10, 20))
    model = small().fit(X, y)
    before = model.predict_proba(X)
    assert model.learn_task(X2, y2, name="later") is model
    assert np.array_equal(model.predict_proba(X), before)
    assert model.classes_.tolist() == ["ash", "beech", "cedar"]
    assert set(model.predict(X)) <= {"ash", "beech", "cedar"}
    assert set(model.predict(X2, task="later")) == set(model.predict(X2, task=1)) == {10, 20}
    assert model.decision_function(X2, task=1).shape == (80,)
    assert model.score(X, y) > 0.9
    assert model.score(X2, y2, task="later") > 0.9
    assert [learned.name for learned in model.learned_] == ["task 1", "later"]

    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X2, task="later"), model.predict_proba(X2, task="later"))
    assert [learned.name for learned in again.learn_task(X2, y2).learned_] == ["task 1", "later", "task 3"]

    model.fit(X2, y2)
    assert model.classes_.tolist() == [10, 20]
    assert len(model.learner_.seen) == 1


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"name": "task 1"}, lambda X, y: (X, y), r"a task 'task 1' is learnt already; give this one another name"),
        ({}, lambda X, y: (X[:, :3], y), r"X has 3 features, but BOCLClassifier is expecting 4 features"),
        ({}, lambda X, y: (X, np.full(len(y), "ash")), r"task 'task 2', train: all labels are 'ash'"),
        ({"validation": ([[1.0, 2]], ["ash"])}, lambda X, y: (X, y), r"task 'task 2', validation: samples of shape"),
    ],
)
def test_a_task_that_is_refused_leaves_the_model_as_it_was(options, change, message):
    X, y = blobs()
    model = small(recipe=bocl.Recipe(epochs=1)).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(ValueError, match=message):
        model.learn_task(*change(X, y), **options)
    assert len(model.learned_) == len(model.learner_.seen) == 1
    assert np.array_equal(model.predict_proba(X), before)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 1.5}, r"^validation is 1\.5; it must be below 1"),
        ({"recipe": {"epochs": 3}}, r"^recipe is .*; it must be a Recipe"),
        ({"search": 0}, r"^search is 0; it must be a SearchSettings"),
        ({"hidden": (0,)}, r"^mlp\.hidden"),
        ({"standardise": "yes"}, r"^standardise is 'yes'; it must be true or false"),
        ({"class_weight": "even"}, r"train: class_weight is 'even'; give \"balanced\" or a weight for each label"),
        ({"random_state": -1}, r"^seed is -1; it must be at least 0"),
        ({"device": "tpu"}, r"unknown device 'tpu'"),
    ],
)
def test_wrong_parameters_are_told_when_it_learns(options, message):
    with pytest.raises(ValueError, match=message):
        small(**options).fit(*blobs())


def test_it_works_in_pipelines_and_searches():
    X, y = blobs(samples=60)
    pipeline = make_pipeline(StandardScaler(), small(standardise=False))
    assert cross_val_score(pipeline, X, y, cv=3).min() > 0.9
    grid = GridSearchCV(pipeline, {"boclclassifier__recipe": [bocl.Recipe(epochs=1), RECIPE]}, cv=2).fit(X, y)
    assert grid.best_params_ == {"boclclassifier__recipe": RECIPE}
    best = grid.best_estimator_
    best[-1].learn_task(best[:-1].transform(X), y == "ash", name="ash or not")
    assert best.predict(X, task="ash or not").dtype == bool
    assert best.score(X, y) > 0.9


def test_classes_that_count_the_same_are_found_though_rare():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(400, 2)), np.arange(400) % 20 == 0
    X[y] += 1.0  # 20 samples in a cloud that reaches into that of the 380 others
    recalls = [
        recall_score(y, small(class_weight=weight).fit(X, y).predict(X))
        for weight in (None, "balanced", {False: 1, True: 19})
    ]
    assert recalls[0] < 0.3
    assert recalls[1] == recalls[2] > 0.6


def test_images_are_taken_where_the_network_takes_them():
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = rng.integers(0, 99, size=(40, 1, 6, 6), dtype=np.uint8)
    X[y == 1, :, :3] += 100
    model = small(network=bocl.convnet(1, (4,), 8)).fit(X, y)
    assert model.score(X, y) == 1
    assert small().fit(X, y).score(X, y) == 1, "an MLP flattens them"


def test_seeds_are_as_scikit_learn_has_them():
    X, y = blobs()
    quick = small(recipe=bocl.Recipe(epochs=1))
    states = [0, 0, 1, np.random.RandomState(5), np.random.RandomState(5)]
    zero, same, one, drawn, redrawn = (
        clone(quick).set_params(random_state=state).fit(X, y).predict_proba(X).tolist() for state in states
    )
    assert zero == same != one
    assert drawn == redrawn != zero


def test_a_task_is_told(capsys):
    X, y = blobs()
    small(recipe=bocl.Recipe(epochs=1)).fit(X, y)
    assert capsys.readouterr() == ("", "")
    small(verbose=True).fit(X, y)
    assert "task 1" in capsys.readouterr().err


def test_a_tolerance_is_the_goal():
    X, y = blobs()
    assert small(tolerance=0.02).fit(X, y).learner_.goal == bocl.GoalSettings(tolerance=0.02)
    assert small(goal=bocl.GoalSettings(target=0.5)).fit(X, y).learner_.goal.target == 0.5
    with pytest.raises(bocl.InputError, match="give tolerance or goal, not both"):
        small(goal=bocl.GoalSettings(target=0.5), tolerance=0.02).fit(X, y)
    with pytest.raises(bocl.ConfigError, match=r"goal.tolerance is 2; it must be at most 1"):
        small(tolerance=2).fit(X, y)


def test_samples_without_a_task_are_those_of_the_task_that_is_guessed():
    (X, y), (other, labels) = blobs(0), blobs(7, labels=("up", "down"))
    model = small(guess=bocl.GuessSettings("auto")).fit(X, y).learn_task(other, labels, name="later")
    both = np.concatenate([X, other])
    guess = model.predict_task(both)
    assert guess.names == ("task 1",) * len(X) + ("later",) * len(other)
    assert (model.predict(both, task=None) == np.concatenate([model.predict(X), model.predict(other, "later")])).all()
    assert model.predict_proba(both, task=None).shape == (len(both), 3)
    assert model.score(both, np.concatenate([y, labels]), task=None) > 0.8
    assert (model.predict(other) != model.predict(other, task=None)).all(), "task 0 unless told otherwise"
