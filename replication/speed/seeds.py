"""Seeds of one run, trained in processes side by side, and what a single stack of all their children would give.

python -m replication.speed.seeds [--networks mlp,lenet,resnet] [--seeds 1,2,4,8] [--children 8] [--seconds 4]

Each process trains rounds of so many children of its own known network, over and over, for the same seconds. A stack of
several seeds would have a known network and a batch for each of them. Here it is one stack of as many children that
share both, which is less work: more than a stack of seeds could reach. On a GPU, start NVIDIA's multi-process service
first; without it, processes take turns.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

from bocl.benchmarks.speed import cases, known_network, train_together, wait
from bocl.training.device import resolve_device
from bocl.training.steps import StepCache


@dataclass(frozen=True)
class Throughput:
    """Epochs of children per second, of all seeds together.

    apart     in one process for each seed, side by side
    together  in one process, as one stack
    """

    network: str
    seeds: int
    children: int
    apart: float
    together: float


def trained_for(network: str, children: int, seconds: float, device: str) -> float:
    """Return epochs of children per second. Training begins at a line of standard input, after a round to warm up."""
    place = resolve_device(device)
    case = next(case for case in cases(place, quick=False) if case.network == network)
    known, task = known_network(case, place)
    cache = StepCache()
    train_together(case, known, task, children, cache)
    wait(place)
    print("ready", flush=True)
    sys.stdin.readline()
    began, rounds = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        train_together(case, known, task, children, cache)
        rounds += 1
        wait(place)
    epochs = case.recipe.epochs_of(case.recipe.steps(case.samples))
    return rounds * children * epochs / (time.perf_counter() - began)


def side_by_side(network: str, processes: int, children: int, seconds: float, device: str) -> float:
    """Return what so many processes reach that begin together."""
    words = [sys.executable, "-m", "replication.speed.seeds", "--one", network, "--children", str(children)]
    words += ["--seconds", str(seconds), "--device", device]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(words, **pipes) for _ in range(processes)]  # type: ignore[call-overload]
    for one in running:
        one.stdout.readline()
    for one in running:
        one.stdin.write("\n")
        one.stdin.flush()
    return sum(float(one.communicate()[0]) for one in running)


def main() -> None:
    """Print a line for every network and number of seeds."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--networks", default="mlp,lenet,resnet")
    asked.add_argument("--seeds", default="1,2,4,8")
    asked.add_argument("--children", type=int, default=8)
    asked.add_argument("--seconds", type=float, default=4.0)
    asked.add_argument("--device", default="auto")
    asked.add_argument("--one", help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.one:
        print(trained_for(given.one, given.children, given.seconds, given.device))
        return
    for network in given.networks.split(","):
        for seeds in map(int, given.seeds.split(",")):
            apart = side_by_side(network, seeds, given.children, given.seconds, given.device)
            together = side_by_side(network, 1, seeds * given.children, given.seconds, given.device)
            print(json.dumps(asdict(Throughput(network, seeds, given.children, round(apart, 1), round(together, 1)))))


if __name__ == "__main__":
    main()
