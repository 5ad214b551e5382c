"""A run small enough for a test: two tasks of digits, a search of two trials, one epoch."""

SMALL = (
    "stream.tasks=2",
    "network.arguments={inputs=64, hidden=[6, 5]}",
    "recipe.epochs=1",
    "search.trials=2",
    "search.patience=2",
    "search.warm_points=2",
    "search.bounds=3",
)
