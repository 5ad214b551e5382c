"""Your own data and your own network: a list of (X, y), one per task, and any module of ordinary layers.

python examples/own_data.py
"""

import tempfile

import numpy as np
from torch import Tensor, nn

import bocl


class SmallNet(nn.Module):
    """A convolution, a residual block with batch norm, and a head: nothing here knows about bocl."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(6, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.head = nn.Linear(6 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, 1, 8, 8) to (n, 3)."""
        x = self.stem(x).relu()
        x = x + self.block(x)
        logits: Tensor = self.head(self.pool(x).flatten(1))
        return logits


def bright_quadrants(classes: list[int], samples: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Make 8 x 8 images with one bright quadrant; the label says which of ``classes`` it is."""
    rng = np.random.default_rng(sum(classes))
    labels = rng.integers(len(classes), size=samples)
    images = rng.normal(scale=0.3, size=(samples, 1, 8, 8)).astype(np.float32)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(classes[label], 2)
        image[0, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1
    return images, labels


def main() -> None:
    """Learn three tasks of two or three classes, save the learner, load it and ask it about the first task."""
    data = [bright_quadrants([0, 1]), bright_quadrants([1, 2, 3]), bright_quadrants([3, 0])]
    stream = bocl.from_arrays(data, names=["top half", "three corners", "diagonal"])
    learner = bocl.BOCL(
        SmallNet(),
        recipe=bocl.Recipe(learning_rate=1e-2, epochs=5),
        search=bocl.SearchSettings(trials=3, bounds=4),
    )
    for task in stream:
        learned = learner.learn(task)
        print(f"{learned.name}: added {learned.widths}, validation {learned.validation_accuracy:.1%}")
    with tempfile.TemporaryDirectory() as folder:
        learner.save(f"{folder}/model")
        again = bocl.load(f"{folder}/model")
    images, labels = data[0]
    right = (again.predict(images, task=0).argmax(1).numpy() == labels).mean()
    print(
        f"loaded from its folder: {right:.1%} of the first task's samples, "
        f"{sum(again.parameters().values()):,} parameters"
    )


if __name__ == "__main__":
    main()
