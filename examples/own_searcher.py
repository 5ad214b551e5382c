"""Your own searcher: ask, tell, best. It sees integers and accuracies, nothing of networks or data.

python examples/own_searcher.py
"""

from collections.abc import Sequence

import bocl


class Halving:
    """Start at the bounds and halve every width while the reward rises."""

    def __init__(self, problem: bocl.Problem, settings: bocl.SearchSettings) -> None:
        self.trials = list(problem.trained)
        self.next: tuple[int, ...] | None = problem.bounds

    def ask(self, count: int) -> list[tuple[int, ...]]:
        """Return the next widths, or [] when the search is over."""
        return [self.next] if self.next is not None else []

    def tell(self, trials: Sequence[bocl.Trial]) -> None:
        """Halve again if the last halving paid. The child that adds nothing is told too, though nobody asked for it."""
        self.trials += trials
        if self.next in [trial.widths for trial in trials]:
            half = tuple(width // 2 for width in self.next)
            self.next = half if self.best() == self.next and any(half) else None

    def best(self) -> tuple[int, ...]:
        """Return the widths with the highest reward."""
        return max(self.trials, key=lambda trial: trial.reward).widths


def main() -> None:
    """Learn three tasks, the growth of each chosen by halving."""
    learner = bocl.BOCL(
        bocl.mlp(64, [48, 24]),
        recipe=bocl.Recipe(learning_rate=3e-3, epochs=10),
        search=bocl.SearchSettings(bounds=16),
        searcher=Halving,
    )
    for task in bocl.permuted_digits(tasks=3):
        learned = learner.learn(task)
        tried = " ".join(str(trial.widths) for trial in learned.trials) or "nothing"
        print(f"{learned.name}: added {learned.widths}, tried {tried}")


if __name__ == "__main__":
    main()
