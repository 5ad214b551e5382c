"""Simulate a study on many workers: who waits for whom, and how long all takes.

Every run goes to the first free worker, in order. A worker starts the run, works until its next record, hands the
record over and goes on. One process, the driver, writes the records of all runs, one after another. A worker is free
again when the driver has written the last record of its run. Nothing is drawn at random.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

Steps = Sequence[tuple[float, int]]  # of a run: seconds of work until each record, and its bytes


@dataclass(frozen=True)
class Costs:
    """What an engine costs, in seconds.

    engine  until workers can be asked for
    worker  until a worker that was asked for is there
    run     from when a worker is given a run until it begins with the work
    record  of the driver, for every record
    byte    of the driver, for every byte of it
    """

    engine: float = 0.0
    worker: float = 0.0
    run: float = 0.0
    record: float = 0.0
    byte: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What a simulated study came to.

    seconds  until the last record is written
    work     seconds that workers worked, all together
    workers  how many there were
    driver   seconds that the driver was busy
    late     most seconds that a record waited for the driver and was written
    waiting  most bytes that waited for the driver at once
    bytes    of all records
    """

    seconds: float
    work: float
    workers: int
    driver: float
    late: float
    waiting: int
    bytes: int

    @property
    def efficiency(self) -> float:
        """The share of the workers' time that was work."""
        return self.work / (self.workers * self.seconds)

    @property
    def driver_share(self) -> float:
        """The share of the time that the driver was busy."""
        return self.driver / self.seconds


def simulate(runs: Sequence[Steps], workers: int, costs: Costs) -> Outcome:
    """Return what a study of these runs comes to."""
    work: list[tuple[float, int]] = []  # when it ends, and whose it is
    queue = deque[tuple[int, float, int, bool]]()  # (who, since when, bytes, last) to be written
    coming = iter(runs)
    steps: list[Steps] = [()] * workers  # of the run of every worker
    place = [0] * workers
    now, driver_ends, busy, worked, late, total = costs.engine, float("inf"), 0.0, 0.0, 0.0, 0
    waiting = most_waiting = 0

    def begin(who: int, seconds: float) -> None:
        heapq.heappush(work, (now + seconds, who))

    def give_run(who: int) -> None:
        steps[who], place[who] = next(coming, ()), -1
        if steps[who]:
            begin(who, costs.run)

    def go_on(who: int) -> None:
        place[who] += 1
        if place[who] < len(steps[who]):
            begin(who, steps[who][place[who]][0])

    for who in range(workers):
        begin(who, costs.worker)
    while work or driver_ends < float("inf"):
        if work and work[0][0] <= driver_ends:
            now, who = heapq.heappop(work)
            if not steps[who]:
                give_run(who)
                continue
            if place[who] >= 0:
                seconds, size = steps[who][place[who]]
                worked, total, waiting = worked + seconds, total + size, waiting + size
                most_waiting = max(most_waiting, waiting)
                queue.append((who, now, size, place[who] + 1 == len(steps[who])))
            go_on(who)
        else:
            now, driver_ends = driver_ends, float("inf")
            who, since, size, last = queue.popleft()
            late, waiting = max(late, now - since), waiting - size
            if last:
                give_run(who)
        if queue and driver_ends == float("inf"):
            seconds = costs.record + costs.byte * queue[0][2]
            busy, driver_ends = busy + seconds, now + seconds
    return Outcome(now, worked, workers, busy, late, most_waiting, total)
