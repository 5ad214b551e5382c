"""Avalanche's benchmarks and loops with our learners: the same samples, the same names, the same accuracies."""

from __future__ import annotations

import io
import runpy
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bocl
from bocl.avalanche import Strategy, from_avalanche
from bocl.errors import DataError, DataWarning, InputError
from test_docs import blocks

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guides" / "avalanche.md"
CLASSES = ((7, 3), (0, 9, 4), (5, 1))  # of each experience
RECIPE = bocl.Recipe("adam", learning_rate=0.01, batch_size=16, epochs=8)
needs_avalanche = pytest.mark.avalanche


@pytest.fixture(scope="session")
def avalanche():
    """Import Avalanche; Avalanche imports torchvision, of which PyPI has no build for PyTorch's CPU build.

    Of torchvision's compiled operators its Python code names two while it is imported. Avalanche calls none of them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import torchvision  # noqa: F401
        except RuntimeError:
            for name in ("nms", "qnms"):
                torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float threshold) -> Tensor")
        import avalanche.benchmarks
        import avalanche.evaluation.metrics
        import avalanche.logging
        import avalanche.models
        import avalanche.training.plugins
    return avalanche


def samples(classes, seed=0, each=20, dtype=torch.float32):
    """Return blobs (n, 6), one per class, in random order."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.tensor(classes).repeat(each)[torch.randperm(each * len(classes), generator=generator)]
    centres = 1.6 * torch.randn(10, 6, generator=torch.Generator().manual_seed(1))
    x = centres[y] + torch.randn(len(y), 6, generator=generator)
    return ((40 + 8 * x).clamp(0, 255) if dtype == torch.uint8 else x).to(dtype), y


def parts(seed, **options):
    return [samples(classes, seed + task, **options) for task, classes in enumerate(CLASSES)]


@pytest.fixture
def benchmark(avalanche):
    return avalanche.benchmarks.tensors_benchmark(parts(0), parts(10), task_labels=[0, 1, 2])


def new_learner(seed=0):
    settings = bocl.FixedSettings(widths=4)
    return bocl.Fixed(bocl.mlp(6, [12]), settings=settings, recipe=RECIPE, seed=seed, device="cpu")


def quiet_evaluator(avalanche):
    log = avalanche.logging.TextLogger(io.StringIO())
    kinds = avalanche.evaluation.metrics
    return avalanche.training.plugins.EvaluationPlugin(
        kinds.accuracy_metrics(experience=True, stream=True),
        kinds.loss_metrics(experience=True, stream=True),
        kinds.forgetting_metrics(experience=True, stream=True),
        kinds.class_accuracy_metrics(experience=True),
        kinds.confusion_matrix_metrics(stream=True, save_image=False),
        loggers=[log],
    )


def new_strategy(avalanche, learner=None, **options):
    return Strategy(learner or new_learner(), evaluator=quiet_evaluator(avalanche), **options)


@needs_avalanche
def test_a_benchmark_becomes_a_stream(benchmark):
    stream = from_avalanche(benchmark, validation=0.2, seed=3)
    assert [task.name for task in stream] == ["experience 0", "experience 1", "experience 2"]
    assert [task.labels for task in stream] == [tuple(sorted(classes)) for classes in CLASSES]
    by_hand = bocl.from_arrays(parts(0), test=parts(10), validation=0.2, seed=3, names=[task.name for task in stream])
    assert stream.fingerprint() == by_hand.fingerprint()
    assert [len(task.validation) for task in stream] == [8, 12, 8]
    x, y = samples(CLASSES[1], 11)
    sealed = stream.test_split(1)
    assert torch.equal(sealed.raw, x)
    assert [stream[1].labels[number] for number in sealed.labels] == y.tolist()


@needs_avalanche
def test_a_learner_answers_with_avalanches_class_numbers(benchmark):
    learner = new_learner()
    for task in from_avalanche(benchmark):
        learner.learn(task)
    x, y = samples(CLASSES[1], 11)
    assert set(learner.predict_labels(x, "experience 1")) <= set(CLASSES[1])
    assert learner.score(x, y, "experience 1") > 0.9


@needs_avalanche
@pytest.mark.parametrize("standardise", [False, True])
def test_a_strategy_learns_what_the_learner_learns_from_the_stream(avalanche, benchmark, standardise):
    strategy = new_strategy(avalanche, new_learner(seed=2), validation=0.3, standardise=standardise)
    strategy.train(benchmark.train_stream)
    learner = new_learner(seed=2)
    for task in from_avalanche(benchmark, validation=0.3, standardise=standardise, seed=2):
        learner.learn(task)
    for task, classes in enumerate(CLASSES):
        x, _ = samples(classes, 10 + task)
        assert torch.equal(strategy.learner.predict(x, task), learner.predict(x, task))


@needs_avalanche
def test_names_are_those_of_avalanches_naive_after_every_experience(avalanche, benchmark):
    model = avalanche.models.MTSimpleMLP(input_size=6, hidden_size=12)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    naive = avalanche.training.Naive(
        model=model,
        optimizer=optimiser,
        criterion=nn.CrossEntropyLoss(),
        train_mb_size=16,
        eval_mb_size=100,
        evaluator=quiet_evaluator(avalanche),
    )
    strategy = new_strategy(avalanche)
    for experience in benchmark.train_stream:
        naive.train(experience)
        strategy.train(experience, num_workers=0, eval_streams=[benchmark.test_stream])
        theirs, ours = (each.eval(benchmark.test_stream, num_workers=0) for each in (naive, strategy))
        assert set(ours) == set(theirs)
    assert "Top1_Acc_Exp/eval_phase/test_stream/Task001/Exp001" in ours
    assert "Top1_Acc_Stream/eval_phase/test_stream/Task002" in ours
    assert "ExperienceForgetting/eval_phase/test_stream/Task000/Exp000" in ours
    assert strategy.clock.train_exp_counter == 3
    assert strategy.experience is naive.experience is None
    curves = strategy.evaluator.get_all_metrics()
    places, _ = curves["Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp000"]
    assert places == sorted(set(places)), "points of a curve stand beside each other"


@needs_avalanche
def test_without_an_evaluator_metrics_are_avalanches_usual_ones(avalanche, benchmark, capsys):
    strategy = Strategy(new_learner())
    strategy.train(benchmark.train_stream[0])
    found = strategy.eval(benchmark.test_stream[0])
    assert {name.partition("/")[0] for name in found} == {
        *("Top1_Acc_Exp", "Top1_Acc_Stream", "Loss_Exp", "Loss_Stream"),
    }
    said = capsys.readouterr().out
    assert "Starting training on experience 0 (Task 0) from train stream" not in said  # begins with its first epoch
    assert "Eval on experience 0 (Task 0) from test stream ended" in said
    assert "Top1_Acc_Exp/eval_phase/test_stream/Task000/Exp000 = " in said


@needs_avalanche
def test_figures_are_the_learners(avalanche, benchmark):
    strategy = new_strategy(avalanche)
    strategy.train(benchmark.train_stream)
    found, right = strategy.eval(benchmark.test_stream), []
    for task, classes in enumerate(CLASSES):
        (x, y), place = samples(classes, 10 + task), f"test_stream/Task{task:03}/Exp{task:03}"
        right += [strategy.learner.score(x, y, task)] * len(y)
        assert found[f"Top1_Acc_Exp/eval_phase/{place}"] == pytest.approx(right[-1])
        labels = strategy.learner.classes(task)
        numbers = torch.tensor([labels.index(each) for each in y.tolist()])
        loss = F.cross_entropy(strategy.learner.predict(x, task), numbers)
        assert found[f"Loss_Exp/eval_phase/{place}"] == pytest.approx(loss.item())
    assert 0.9 < min(right) < max(right) <= 1, "accuracies that can be told apart"
    assert found["Top1_Acc_Stream/eval_phase/test_stream/Task002"] == pytest.approx(np.mean(right))
    assert found["StreamForgetting/eval_phase/test_stream"] == 0
    confusion = found["ConfusionMatrix_Stream/eval_phase/test_stream"]
    assert confusion.diagonal().sum() == round(sum(right))


@needs_avalanche
def test_an_experience_that_is_not_learnt_yet_is_guessed(avalanche, benchmark):
    strategy = new_strategy(avalanche)
    strategy.train(benchmark.train_stream[0])
    found = strategy.eval(benchmark.test_stream)
    accuracies = [found[f"Top1_Acc_Exp/eval_phase/test_stream/Task{task:03}/Exp{task:03}"] for task in range(3)]
    assert accuracies[1:] == [pytest.approx(1 / 3), 0]  # all are taken for class 0
    strategy.train(benchmark.train_stream[1:])
    found = strategy.eval(benchmark.test_stream[1:2])
    assert found["Top1_Acc_Exp/eval_phase/test_stream/Task001/Exp001"] > 0.9


@needs_avalanche
def test_a_saved_learner_goes_on(avalanche, benchmark, tmp_path):
    first = new_strategy(avalanche)
    first.train(benchmark.train_stream[0])
    first.learner.save(tmp_path / "model")
    second = new_strategy(avalanche, bocl.load(tmp_path / "model"))
    second.train(benchmark.train_stream[2])
    found = second.eval(benchmark.test_stream)
    accuracies = [found[f"Top1_Acc_Exp/eval_phase/test_stream/Task{task:03}/Exp{task:03}"] for task in (0, 2)]
    assert min(accuracies) > 0.9, "task 2 of the stream is the second that is learnt"


@needs_avalanche
@pytest.mark.filterwarnings("ignore:stream generator")
def test_validation_samples_may_be_the_benchmarks(avalanche, benchmark):
    whole = avalanche.benchmarks.benchmark_with_validation_stream(benchmark, validation_size=0.25, shuffle=True, seed=1)
    stream = from_avalanche(whole, validation=whole.valid_stream)
    assert [(len(task.train), len(task.validation)) for task in stream] == [(30, 10), (45, 15), (30, 10)]
    given = {tuple(row) for row in samples(CLASSES[0], 0)[0].tolist()}
    train, held_out = ({tuple(row) for row in part.raw.tolist()} for part in (stream[0].train, stream[0].validation))
    assert train | held_out == given
    assert held_out == {tuple(x.tolist()) for x, *_ in whole.valid_stream[0].dataset}

    strategy = new_strategy(avalanche, validation=whole.valid_stream)
    strategy.train(whole.train_stream[1])
    learner = new_learner()
    learner.learn(stream[1])
    assert torch.equal(strategy.learner.predict(x := samples(CLASSES[1])[0], 0), learner.predict(x, 0))
    with pytest.raises(
        DataError, match=r"^validation has no experience 2; give the whole stream, such as benchmark\.v"
    ):
        new_strategy(avalanche, validation=whole.valid_stream[:2]).train(whole.train_stream[2])
    with pytest.raises(DataError, match=r"^validation has no experience 2"):
        from_avalanche(whole, validation=whole.valid_stream[:2])


@needs_avalanche
def test_bytes_stay_bytes(avalanche):
    of_bytes = (parts(seed, dtype=torch.uint8) for seed in (0, 10))
    benchmark = avalanche.benchmarks.tensors_benchmark(*of_bytes, task_labels=[0, 1, 2])
    stream = from_avalanche(benchmark)
    assert stream[0].train.raw.dtype == stream.test_split(2).raw.dtype == torch.uint8
    assert stream[0].train.mean != (0.0,)
    strategy = new_strategy(avalanche)
    strategy.train(benchmark.train_stream)
    assert strategy.eval(benchmark.test_stream)["Top1_Acc_Stream/eval_phase/test_stream/Task002"] > 0.8


@needs_avalanche
def test_samples_are_those_of_evaluation(avalanche):
    data = [TensorDataset(*samples(classes)) for classes in CLASSES]
    for each in data:
        each.targets = each.tensors[1].tolist()
    benchmark = avalanche.benchmarks.dataset_benchmark(
        [avalanche.benchmarks.utils._make_taskaware_classification_dataset(each, task_labels=task)
         for task, each in enumerate(data)],
        [avalanche.benchmarks.utils._make_taskaware_classification_dataset(each, task_labels=task)
         for task, each in enumerate(data)],
        train_transform=lambda x: x * 0 + 7,
        eval_transform=lambda x: x / 2,
    )  # fmt: skip
    stream = from_avalanche(benchmark, validation=0.5)
    for split in (stream[0].train, stream[0].validation, stream.test_split(0)):
        assert {tuple(row) for row in split.raw.tolist()} <= {tuple(row) for row in (data[0].tensors[0] / 2).tolist()}


@needs_avalanche
def test_draws_of_others_are_left_alone(avalanche, benchmark):
    strategy = new_strategy(avalanche)
    before = torch.get_rng_state()
    from_avalanche(benchmark)
    strategy.train(benchmark.train_stream[0])
    strategy.eval(benchmark.test_stream)
    assert torch.equal(torch.get_rng_state(), before)


@needs_avalanche
@pytest.mark.filterwarnings("default::bocl.errors.DataWarning")
@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([0, 0, 0], "experiences share task label 0, so Avalanche's strategies are not told which one"),
        ([0, 1, 1], "experiences share task label 1"),
        (None, "experiences have no task label"),
        ([2, 0, 1], None),
    ],
)
def test_what_is_not_to_be_compared_is_said(avalanche, labels, said):
    if labels is None:
        data = [avalanche.benchmarks.utils.AvalancheDataset([TensorDataset(*each)]) for each in parts(0)]
        benchmark = avalanche.benchmarks.benchmark_from_datasets(train=data, test=data)
    else:
        benchmark = avalanche.benchmarks.tensors_benchmark(parts(0), parts(10), task_labels=labels)
    for use in (from_avalanche, lambda benchmark: new_strategy(avalanche).train(benchmark.train_stream)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            use(benchmark)
        told = [each for each in caught if each.category is DataWarning]
        assert [str(each.message).startswith(said) for each in told] == [True] * len(told)
        assert bool(told) == (said is not None)
        assert all("not to be compared with class- or domain-incremental ones" in str(each.message) for each in told)
        assert all(each.filename == __file__ for each in told), "it names the line of the user"


def loader(benchmark):
    return DataLoader(benchmark.train_stream[0].dataset)


@needs_avalanche
@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda s, b: s.train(loader(b)), r"train takes an experience or a stream of Avalanche, .* not a DataLoader"),
        (lambda s, b: s.eval(loader(b)), r"eval takes an experience or a stream of Avalanche, .* not a DataLoader"),
        (lambda s, b: s.train(b), r"train takes an experience .* not a ClassificationScenario"),
        (lambda s, b: s.train(b.test_stream[0]), r"this experience 0 is of the stream 'test'; train on those of .*"),
        (lambda s, b: s.train([b.train_stream[0]] * 2), r"experience 0 is learnt already, .*; train on the next"),
    ],
)
def test_what_a_strategy_cannot_use_is_refused_in_one_line(avalanche, benchmark, use, message):
    strategy = new_strategy(avalanche)
    with pytest.raises(InputError, match=rf"^{message}$") as refused:
        use(strategy, benchmark)
    assert "\n" not in str(refused.value)
    assert len(strategy.learner.seen) <= 1
    strategy.train(benchmark.train_stream[1].train())  # as Avalanche gives it to its own strategies
    assert strategy.eval(benchmark.test_stream[1].eval())["Top1_Acc_Exp/eval_phase/test_stream/Task001/Exp001"] > 0.9


@needs_avalanche
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda b: from_avalanche(loader(b)),
            r"a DataLoader is not a benchmark of Avalanche; give what its generators .*",
        ),
        (lambda b: from_avalanche(b, validation=1.5), r"validation is 1\.5; it must be below 1"),
        (lambda b: from_avalanche(b, validation=loader(b)), r"validation takes an experience or a stream .*"),
    ],
)
def test_what_makes_no_stream_is_refused_in_one_line(avalanche, benchmark, make, message):
    with pytest.raises(InputError, match=rf"^{message}$"):
        make(benchmark)


@needs_avalanche
def test_a_benchmark_without_a_test_for_every_task_is_refused(avalanche):
    data = [avalanche.benchmarks.utils.AvalancheDataset([TensorDataset(*each)]) for each in parts(0)]
    make = avalanche.benchmarks.benchmark_from_datasets
    with pytest.raises(
        InputError, match=r"^the benchmark has no stream 'test' \(it has 'train', 'valid'\); give it one"
    ):
        from_avalanche(make(train=data, valid=data))
    with pytest.raises(
        DataError, match=r"^the benchmark has 3 train and 1 test experiences; give every train experience"
    ):
        from_avalanche(make(train=data, test=data[:1]))


@needs_avalanche
@pytest.mark.parametrize(
    ("learner", "options", "message"),
    [
        (nn.Linear(6, 2), {}, r"a Linear is not a learner; give one, such as bocl\.BOCL.*"),
        (new_learner(), {"evaluator": lambda: None}, r"evaluator is a NoneType; give an EvaluationPlugin of Avalanche"),
        (new_learner(), {"evaluator": []}, r"evaluator is a list; give an EvaluationPlugin of Avalanche"),
        (new_learner(), {"validation": 0}, r"validation is 0; it must be above 0"),
        (new_learner(), {"verbose": 2}, r"verbose is 2; it must be true or false"),
    ],
)
def test_what_makes_no_strategy_is_refused_in_one_line(avalanche, learner, options, message):
    with pytest.raises(InputError, match=rf"^{message}$"):
        Strategy(learner, **options)


@needs_avalanche
def test_samples_that_do_not_fit_are_refused_in_one_line(avalanche):
    make = avalanche.benchmarks.tensors_benchmark
    mixed = make([samples((0, 1))], [samples((1, 2), 1)], task_labels=[0])
    strategy = new_strategy(avalanche)
    strategy.train(mixed.train_stream)
    with pytest.raises(
        DataError, match=r"^experience 0 has samples of class 2 to evaluate, which it did not have in tr"
    ):
        strategy.eval(mixed.test_stream)

    pictures = [SimpleNamespace(size=(8, 8))] * 4  # as of Pillow: no array
    both = avalanche.benchmarks.utils.AvalancheDataset([list(zip(pictures, [0, 1, 0, 1], strict=True))])
    benchmark = avalanche.benchmarks.benchmark_from_datasets(train=[both], test=[both])
    with pytest.raises(
        DataError, match=r"^experience 0: its samples make no array \(.*\); give its dataset a transform"
    ):
        new_strategy(avalanche).train(benchmark.train_stream)

    two = [samples((0, 1)), samples((2, 3))]
    data = [
        avalanche.benchmarks.utils._make_taskaware_tensor_classification_dataset(*each, task_labels=label)
        for label, each in enumerate(two)
    ]
    together = [data[0].concat(data[1])]
    benchmark = avalanche.benchmarks.with_task_labels(
        avalanche.benchmarks.benchmark_from_datasets(train=together, test=together)
    )
    with pytest.raises(DataError, match=r"^experience 0 has samples of several task labels, \[0, 1\]; give every"):
        from_avalanche(benchmark)


@needs_avalanche
def test_the_example_shows_three_strategies(avalanche, capsys):
    runpy.run_path(str(ROOT / "examples" / "beside_avalanche.py"))["main"](tasks=2, epochs=2)
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["task", "0", "task", "1", "forgetting", "parameters"]
    assert [row.split()[0] for row in rows] == ["Naive", "EWC", "bocl"]
    assert rows[2].split()[-2] == "0.0%"


@needs_avalanche
def test_the_blocks_of_the_guide_run(avalanche, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    run = [block for block in blocks(GUIDE) if block.language == "python"]
    for block in run:
        exec(compile(block.text, f"<{GUIDE.name}>", "exec"), names)
    assert len(run) > 2


@pytest.mark.parametrize("use", [lambda: Strategy(new_learner()), lambda: from_avalanche(None)])
def test_without_avalanche_it_says_what_to_install(monkeypatch, use):
    monkeypatch.setitem(sys.modules, "avalanche", None)
    for name in [name for name in sys.modules if name.startswith("avalanche.")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        InputError, match=r"^bocl\.avalanche works with Avalanche, which needs the extra 'avalanche'; pip"
    ):
        use()


def test_an_avalanche_that_fails_is_told_in_one_line(monkeypatch, tmp_path):
    """PyPI's torchvision beside PyTorch's CPU build does so."""
    (tmp_path / "avalanche").mkdir()
    (tmp_path / "avalanche" / "__init__.py").write_text(
        "raise RuntimeError('operator torchvision::nms\\ndoes not exist')"
    )
    for name in [name for name in sys.modules if name.partition(".")[0] == "avalanche"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        InputError, match=r"cannot be imported \(RuntimeError: operator torchvision::nms does not exist\); see"
    ):
        from_avalanche(None)
