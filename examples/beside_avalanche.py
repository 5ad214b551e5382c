"""A script for Avalanche, in which bocl stands next to Avalanche's own Naive and EWC.

pip install 'bocl[avalanche]'
python examples/beside_avalanche.py
"""

import io
from typing import Any

import torch
from avalanche.benchmarks import tensors_benchmark
from avalanche.evaluation.metrics import accuracy_metrics, forgetting_metrics
from avalanche.logging import TextLogger
from avalanche.models import as_multitask
from avalanche.training import EWC, Naive
from avalanche.training.plugins import EvaluationPlugin
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import bocl
from bocl.avalanche import Strategy

ACCURACY = "Top1_Acc_Exp/eval_phase/test_stream/Task{0:03}/Exp{0:03}"
FORGETTING = "StreamForgetting/eval_phase/test_stream"


def permuted_digits(tasks: int) -> Any:
    """Make a benchmark of Avalanche: the digits, with their pixels in another order for every task label."""
    images, digits = (torch.as_tensor(array) for array in load_digits(return_X_y=True))
    orders = [torch.randperm(64, generator=torch.Generator().manual_seed(task)) for task in range(tasks)]

    def part(rows: list[int]) -> list[tuple[Tensor, Tensor]]:
        return [(images[rows][:, order].float() / 16, digits[rows]) for order in orders]

    train, test = train_test_split(range(len(digits)), test_size=0.2, stratify=digits, random_state=0)
    return tensors_benchmark(part(train), part(test), task_labels=range(tasks))


def evaluator() -> EvaluationPlugin:
    """Make what measures a strategy; with InteractiveLogger() for a person to read along."""
    return EvaluationPlugin(
        accuracy_metrics(experience=True), forgetting_metrics(stream=True), loggers=TextLogger(io.StringIO())
    )


def avalanches(kind: Any, epochs: int, **options: Any) -> Any:
    """Make a strategy of Avalanche, with a head for every task label, as bocl has one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU(), nn.Linear(24, 10))
    model = as_multitask(model, "4")
    steps = {"optimizer": torch.optim.Adam(model.parameters(), lr=0.003), "criterion": nn.CrossEntropyLoss()}
    sizes = {"train_mb_size": 32, "train_epochs": epochs, "eval_mb_size": 500}
    return kind(model=model, **steps, **sizes, evaluator=evaluator, **options)


def stored(strategy: Any) -> int:
    """Count the parameters that a strategy predicts with."""
    if isinstance(strategy, Strategy):
        return sum(strategy.learner.parameters().values())
    return sum(parameter.numel() for parameter in strategy.model.parameters())


def main(tasks: int = 5, epochs: int = 15) -> None:
    """Train three strategies in the same loop, and print what Avalanche measures of each."""
    benchmark = permuted_digits(tasks)
    recipe = bocl.Recipe("adam", learning_rate=0.003, batch_size=32, epochs=epochs)
    strategies = {
        "Naive": avalanches(Naive, epochs),
        "EWC": avalanches(EWC, epochs, ewc_lambda=3000),
        "bocl": Strategy(bocl.BOCL(bocl.mlp(64, [48, 24]), recipe=recipe, tasks=tasks), evaluator=evaluator),
    }
    print("       ", *(f" task {task}" for task in range(tasks)), " forgetting  parameters")
    for name, strategy in strategies.items():
        for experience in benchmark.train_stream:
            strategy.train(experience)
            results = strategy.eval(benchmark.test_stream)
        accuracies = (f"{results[ACCURACY.format(task)]:7.1%}" for task in range(tasks))
        print(f"{name:7}", *accuracies, f"{results[FORGETTING]:11.1%} {stored(strategy):11,}")


if __name__ == "__main__":
    main()
