"""A first run: five tasks in a row, nothing forgotten. Takes about half a minute.

python examples/first_run.py
"""

import bocl


def main(tasks: int = 5, trials: int = 6) -> None:
    """Learn permuted digits and show that the first task is as good at the end as on its first day."""
    stream = bocl.permuted_digits(tasks=tasks, seed=0)
    learner = bocl.BOCL(
        bocl.mlp(64, [48, 24]),
        recipe=bocl.Recipe(learning_rate=3e-3, epochs=15),
        search=bocl.SearchSettings(trials=trials, bounds=16),
    )
    test = stream.test_split(0)
    first = None
    for task in stream:
        learned = learner.learn(task)
        logits = learner.predict(test.inputs(), task=0)
        first = logits if first is None else first
        print(
            f"{learned.name}: added {learned.widths}, {learned.added_parameters:,} parameters, "
            f"validation {learned.validation_accuracy:.1%}; "
            f"task 1 now {(logits.argmax(1) == test.labels).double().mean():.1%}, "
            f"same bits as on its first day: {bool((logits == first).all())}"
        )


if __name__ == "__main__":
    main()
