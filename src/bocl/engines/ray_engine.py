"""Runs on a Ray cluster, or on one that is started on this machine.

Every run is made by an actor on some node, in a folder of that node's own. This process keeps the runs' folders up to
date, record by record (``mirror.py``), and is the only one that writes them. So a node that is lost costs no more than
the round that it was in the middle of: another actor takes the run up after its last record.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from bocl.engines.mirror import Mirror
from bocl.engines.orders import RunOrder
from bocl.engines.ray_workers import About, Ended, PartActor, RunWorker
from bocl.engines.shared_arrays import ArrayStore, Packed
from bocl.errors import BoclError, InputError, WorkError
from bocl.experiment.build import build_stream, module_of
from bocl.experiment.config import Config
from bocl.experiment.provenance import versions
from bocl.extras import needed
from bocl.settings import to_plain
from bocl.wording import counted, one_line

MOST_LOSSES = 3  # of a run's worker, without a record between them
WAIT = 0.5  # seconds after which who waits for a worker sees whether there is still something to wait for
PATIENCE = 5.0  # seconds for a cluster to answer at all
SETTINGS = b"\x04"  # a kind of frame of HTTP/2, which both sides begin with
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + SETTINGS + bytes(5)
LOOK_AGAIN = 10.0  # seconds after which a cluster that gives none is looked at
START_UP = 60.0  # seconds in which an actor comes where there is room for it


class RayCluster:
    """An engine (``orders.py``) on Ray.

    run_worker  the actors that make runs
    part_actor  those that train parts of a single run's rounds

    address  of a cluster, `auto` for the one that this machine belongs to; None: one is started here
    device   auto, cpu or cuda: what every worker computes on
    workers  how many at once; None: one for every GPU, or for every core where there is none
    mixed    whether they may be GPUs of different types
    tell     called with what a person should know meanwhile
    """

    shares_device = 1
    run_worker: type[RunWorker] = RunWorker
    part_actor: type[PartActor] = PartActor

    def __init__(
        self,
        address: str | None,
        device: str,
        workers: int | None,
        *,
        mixed: bool = False,
        tell: Callable[[str], None] = print,
    ) -> None:
        if device not in ("auto", "cpu", "cuda"):
            raise InputError(f"--device {device}: Ray says which GPU a worker has; give cpu, cuda or auto")
        if address is None:
            _close_to_others()
        self._ray = needed("ray", "ray", "--engine ray makes runs on a Ray cluster")
        self._connect(address, workers)
        there = self._ray.cluster_resources()
        self._unit = "CPU" if device == "cpu" or (device == "auto" and not there.get("GPU")) else "GPU"
        most = int(there.get(self._unit, 0))
        if not most or (workers or 0) > most:
            self._ray.shutdown()
            asked = f"--workers {workers}" if most else f"--device {device}"
            raise InputError(f"{asked}: the cluster has {counted(most, self._unit)}; ask for no more than it has")
        self.most_parts = workers or most
        self.workers: int | None = self.most_parts
        self._device = "cpu" if self._unit == "CPU" else "cuda"
        self._mixed, self._tell = mixed, tell
        self._first: About | None = None  # what workers are compared with
        self._stopping = False
        self._actors: list[Any] = []
        self._free: SimpleQueue[tuple[Any, Future[About] | None]] = SimpleQueue()  # workers; of new ones what they are
        self._failures = 0  # of workers to start, one after another
        self._left = 0  # workers that are there, or are expected to come
        self._waits = False  # whether it was told that there is no room for any
        self._arrays = ArrayStore(self._ray.put, self._ray.cloudpickle.CloudPickler)
        self._streams: dict[str, Packed] = {}
        self._one_at_a_time = threading.Lock()

    def _connect(self, address: str | None, workers: int | None) -> None:
        options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cores = os.cpu_count() or 1
            options |= {"num_cpus": min(workers or cores, cores), "include_dashboard": False}
        try:
            if address not in (None, "auto"):
                _knock(address)
            with nullcontext() if address is None else _silent():
                self._ray.init(address=address or "local", **options)
        except (ConnectionError, ValueError, RuntimeError, AssertionError, OSError) as error:
            if "InvalidAuthToken" in str(error.__cause__):
                raise InputError(
                    f"--address {address}: this Ray cluster lets in who has its token; set RAY_AUTH_MODE=token, and "
                    "RAY_AUTH_TOKEN to what `ray get-auth-token` prints where it was started"
                ) from error
            reason = one_line(str(error).strip().partition("\n")[0]).partition(". ")[0]
            raise InputError(
                f"--address {address or '(none)'}: Ray cannot be reached or started: {reason}; start a cluster with "
                "`ray start --head`, with the same versions on every node, or leave out --address"
            ) from error

    def __call__(self, orders: Sequence[RunOrder], ended: Callable[[RunOrder, str], None]) -> None:
        """Make runs; see ``Engine``."""
        try:
            self._left = min(len(orders), self.most_parts)
            for _ in range(self._left):
                self._hire()
            helpers = self._helpers(orders[0].settings()) if len(orders) == 1 else []
            with ThreadPoolExecutor(self.most_parts) as pool:
                running = {pool.submit(self._make, order, helpers): order for order in orders}
                try:
                    for done in as_completed(running):
                        ended(running[done], done.result())
                except BaseException:
                    self._stopping = True
                    pool.shutdown(wait=False, cancel_futures=True)
                    for actor in self._actors:
                        self._ray.kill(actor)
                    raise
        finally:
            self._ray.shutdown()

    def machine(self) -> dict[str, Any]:
        """Describe what its workers run on."""
        return {"device": self._device, "name": self._first.device if self._first else "", "system": "Ray"}

    def _start(self, kind: type, *arguments: Any) -> Any:
        resources = {"num_cpus": 1} if self._unit == "CPU" else {"num_cpus": 0, "num_gpus": 1}
        options = self._ray.remote(kind).options(**resources, scheduling_strategy="SPREAD")
        actor = options.remote(self._device, os.getcwd(), *arguments)
        self._actors.append(actor)
        return actor

    def _hire(self) -> None:
        """Ask for a worker; it is free once the cluster has room for it."""
        actor = self._start(self.run_worker)
        actor.about.remote().future().add_done_callback(lambda said: self._free.put((actor, said)))

    def _helpers(self, config: Config) -> list[Any]:
        """Return actors that train parts of a run's rounds: once its worker is there, those that come before long.

        Who holds places while waiting for more may wait for ever for somebody who does the same.
        """
        wanted = min(config.search.parts, self.most_parts) - 1
        if not wanted:
            return []
        self._free.put((self._wait_for_worker([]), None))
        imports = config.network.build if module_of(config.network) else None
        actors = [self._start(self.part_actor, imports) for _ in range(wanted)]
        coming = {actor.about.remote().future(): actor for actor in actors}
        wait(coming, timeout=START_UP)
        helpers, reasons = [], []
        for said, actor in coming.items():
            try:
                if not said.done():
                    raise WorkError(f"no {self._unit} of the cluster is free")
                self._check(self._told(said))
                helpers.append(actor)
            except BoclError as error:
                self._ray.kill(actor)
                reasons.append(str(error))
        if reasons:
            self._tell(
                f"{len(helpers) + 1} of {wanted + 1} workers train this run: {'; '.join(dict.fromkeys(reasons))}"
            )
        return helpers

    def _told(self, said: Future[About]) -> About:
        try:
            return said.result()
        except self._ray.exceptions.RayError as error:
            lines = [line for line in str(error).strip().splitlines() if line.strip()]
            raise WorkError(
                f"a worker could not start: {one_line(lines[-1])}; see that the cluster is well (`ray status`), then "
                "run the same command again"
            ) from error

    def _has_come(self, actor: Any, said: Future[About]) -> bool:
        """Whether a new worker is there. One that was lost before is replaced, a few times.

        One that is of no use is left out; if no other is left, what is wrong with it is raised.
        """
        with self._one_at_a_time:
            try:
                self._check(self._told(said))
            except BoclError as error:
                self._failures += isinstance(error, WorkError)
                if isinstance(error, WorkError) and self._failures < MOST_LOSSES:
                    self._hire()
                    return False
                self._ray.kill(actor)
                self._left -= 1
                if self._left <= 0:
                    raise
                self._tell(f"{counted(self._left, 'worker')} left: {error}")
                return False
            self._failures = 0
        return True

    def _check(self, found: About) -> None:
        """Refuse a worker whose results could have other bits than those of the others."""
        for name, version in versions().items():
            there = found.versions.get(name)
            if there != version and name != "commit":  # of a checkout; an installed bocl of the same version has none
                raise InputError(
                    f"{found.node} has {name} {there}, and this machine {version}; install the same on all"
                )
        first = self._first = self._first or found
        if first.device != found.device and not self._mixed:
            raise InputError(
                f"{first.node} has {first.device}, and {found.node} {found.device}, on which a run has other bits; "
                "use nodes of one type, or allow it with --mixed-devices"
            )

    def _wait_for_worker(self, helpers: list[Any]) -> Any:
        """Return a worker that is free. What is wrong with the cluster, so that no run can be made, is raised.

        helpers  of its run; as long as no worker comes, one after another gives up its place, see ``_make_room``
        """
        looked = waited = time.monotonic()
        while not self._stopping:
            with suppress(Empty):
                worker, new = self._free.get(timeout=WAIT)
                if new is None or self._has_come(worker, new):
                    return worker
            now = time.monotonic()
            if now - looked > LOOK_AGAIN:
                looked = now
                if not self._ray.cluster_resources().get(self._unit):
                    raise WorkError(f"the cluster has no {self._unit} left; run the same command again to resume")
            if now - waited > START_UP:
                waited = now
                self._make_room(helpers)
        raise WorkError("stopped")

    def _make_room(self, helpers: list[Any]) -> None:
        """Let a helper go: after nodes were lost, helpers may hold all there is. Without any, tell who waits."""
        if helpers:
            self._ray.kill(helpers.pop())
        elif self._first is None and not self._waits:
            self._waits = True
            self._tell(f"waiting for a free {self._unit} of the cluster")

    def _make(self, order: RunOrder, helpers: list[Any]) -> str:
        """Make a run; return why it failed, '' if it did not. What is wrong with the cluster is raised."""
        try:
            stream = self._stream(order)
            mirror = Mirror(Path(order.folder), order.settings())
        except BoclError as error:
            return one_line(str(error))
        losses = 0
        try:
            while True:
                worker, records = self._wait_for_worker(helpers), mirror.records
                try:
                    said = self._follow(worker, order, stream, helpers, mirror)
                except self._ray.exceptions.RayTaskError as raised:  # before the run began
                    said = one_line(str(raised.cause))
                except self._ray.exceptions.RayError as raised:
                    if self._stopping:
                        return "stopped"
                    self._hire()
                    losses = 1 if mirror.records > records else losses + 1
                    if losses == MOST_LOSSES:
                        return f"its worker was lost {losses} times: {one_line(str(raised).strip().splitlines()[0])}"
                    continue
                except BoclError as raised:  # this machine's disk is full, say: the worker goes on for nobody
                    self._ray.kill(worker)
                    self._hire()
                    return one_line(str(raised))
                self._free.put((worker, None))
                return said
        finally:
            mirror.close()

    def _follow(self, worker: Any, order: RunOrder, stream: Packed, helpers: Sequence[Any], mirror: Mirror) -> str:
        """Let a worker make a run, and do in its folder what the worker does; return why it failed."""
        make = worker.make.options(num_returns="streaming")
        for coming in make.remote(order, self._ray.put(mirror.content()), stream, list(helpers)):
            new = self._ray.get(coming)
            if isinstance(new, Ended):
                return new.error
            mirror.take(new)
        raise WorkError(f"{order.title}: its worker said nothing of how it ended; run the same command again to resume")

    def _stream(self, order: RunOrder) -> Packed:
        """Return the tasks of a run. The cluster keeps their samples, once for all runs that have the same."""
        config = order.settings()
        key = json.dumps([to_plain(config.stream), config.seed, config.network.weights, order.data])
        with self._one_at_a_time:
            if key not in self._streams:
                self._streams[key] = self._arrays.pack(build_stream(config, order.data))
            return self._streams[key]


def _close_to_others() -> None:
    """Let nobody else use a cluster that this process starts, which listens to the whole network.

    Ray, from 2.52 on, reads this when it is imported; where it was imported before, it stays as the caller wants it.
    """
    if "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ:
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


@contextmanager
def _silent() -> Iterator[None]:
    """Keep from the terminal what Ray's compiled code prints; what it raises says the same."""
    sys.stderr.flush()
    terminal = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)


def _knock(address: str) -> None:
    """See that HOST:PORT speaks HTTP/2, as a cluster's port does and that of its dashboard does not.

    Ray itself would try for minutes.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in address:
        raise ValueError("it is not HOST:PORT, as `ray start --head` prints it")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as line:
        line.sendall(HELLO)
        if line.recv(4)[3:] != SETTINGS:
            raise ValueError("what answers there is not a Ray cluster")
