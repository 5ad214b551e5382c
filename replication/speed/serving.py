"""What `bocl serve` costs beside a bare module behind the same server, and what batches save: requests a second.

python -m replication.speed.serving [--batches] [--rounds 10] [--json]

Two servers are asked in turns, in one run. The bare app is the smallest that answers the same: uvicorn, a body read to
its end, the module of one task, labels and probabilities, or logits as .npy. It checks nothing, and computes where it
reads. With --batches, `bocl serve --batch 1` takes its place, and `--batch 64` that of ours. Clients are threads with a
connection each, which wait for an answer before they ask again; they have the machine's other core.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch import Tensor, nn

import bocl
from bocl.benchmarks.prediction import CLASSES, HIDDEN, INPUTS
from bocl.experiment.provenance import versions
from bocl.extras import needed
from replication.speed.batches import NETWORKS

CASES = [(form, samples, clients) for form in ("json", "npy") for samples in (1, 64) for clients in (1, 16)]
BATCH, MANY_CLIENTS = 64, 200
TASK = "measured"
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Served:
    """One case: medians over rounds.

    samples   of a request
    clients   that ask at once
    per_second, bare_per_second            requests answered
    cpu_microseconds, bare_cpu_microseconds  that the server's process took for one
    share     of the bare app's requests a second, the two measured one after the other
    least     such share of any round
    """

    form: str
    samples: int
    clients: int
    per_second: float
    bare_per_second: float
    cpu_microseconds: float
    bare_cpu_microseconds: float
    share: float
    least: float

    def describe(self) -> str:
        """Say it in one line."""
        return (
            f"{self.form:4} {self.samples:3} samples {self.clients:3} clients  bare {self.bare_per_second:6.0f}/s "
            f"{self.bare_cpu_microseconds:5.0f} µs CPU  bocl serve {self.per_second:6.0f}/s "
            f"{self.cpu_microseconds:5.0f} µs CPU  share {self.share:.2f} (least {self.least:.2f})"
        )


@dataclass(frozen=True)
class Batched:
    """Requests of one sample as .npy, computed alone and in batches: medians over rounds.

    per_second, alone_per_second           requests answered, with `--batch 64` and with `--batch 1`
    cpu_microseconds, alone_cpu_microseconds  that the server's process took for one
    times     the requests a second of `--batch 1`, the two measured one after the other
    least     such times of any round
    """

    network: str
    clients: int
    per_second: float
    alone_per_second: float
    cpu_microseconds: float
    alone_cpu_microseconds: float
    times: float
    least: float

    def describe(self) -> str:
        """Say it in one line."""
        return (
            f"{self.network:26} {self.clients:3} clients  alone {self.alone_per_second:5.0f}/s "
            f"{self.alone_cpu_microseconds:5.0f} µs CPU  in batches {self.per_second:5.0f}/s "
            f"{self.cpu_microseconds:5.0f} µs CPU  times {self.times:.2f} (least {self.least:.2f})"
        )


def bare_module(folder: str) -> Callable[[Tensor], Tensor]:
    """Return one task as a module that records no gradients."""
    module: Callable[[Tensor], Tensor] = bocl.load(folder, device="cpu").module(0).requires_grad_(False)
    return module


def serve_bare(folder: str) -> None:
    """Answer with a bare module."""
    uvicorn: Any = needed("uvicorn", "serve", "this is about bocl serve")
    module = bare_module(folder)

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        if body.startswith(b"\x93NUMPY"):
            answer = io.BytesIO()
            np.save(answer, module(torch.from_numpy(np.load(io.BytesIO(body)))).numpy())
            reply = answer.getvalue()
        else:
            logits = module(torch.tensor(json.loads(body)["samples"]))
            found = {"labels": logits.argmax(1).tolist(), "probabilities": logits.softmax(1).tolist()}
            reply = json.dumps(found).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(reply)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": reply})

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            print(f"http://127.0.0.1:{self.servers[0].sockets[0].getsockname()[1]} ", flush=True)

    Server(uvicorn.Config(app, port=0, http="h11", lifespan="off", log_config=None, access_log=False)).run()


@contextmanager
def running(*command: str) -> Iterator[tuple[int, int]]:
    """Start a server and give its process and port."""
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, env=surroundings
    ) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
        finally:
            process.terminate()


def ask(port: int, request: bytes, clients: int, each: int) -> float:
    """Return how many requests are answered a second."""

    def client() -> None:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            length = 0
            for number in range(each + 1):
                connection.sendall(request)
                answer = b""
                while not answer or len(answer) < length:
                    answer += connection.recv(1 << 20)
                if number == 0:  # all answers are as long as the first
                    head = answer.partition(b"\r\n\r\n")[0]
                    length = len(head) + 4 + int(head.lower().split(b"content-length: ")[1].split()[0])
                    while len(answer) < length:
                        answer += connection.recv(1 << 20)
                    begin.wait()
                assert (answer[:12], len(answer)) == (b"HTTP/1.1 200", length), answer[:500]

    begin = threading.Barrier(clients + 1)
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    begin.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return clients * each / (time.perf_counter() - began)


def cpu_seconds(process: int) -> float:
    """Return the seconds of CPU that a process has taken."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def request_of(form: str, samples: int, shape: tuple[int, ...] = (INPUTS,)) -> bytes:
    """Return a request as it goes over the wire."""
    x = np.random.default_rng(0).normal(size=(samples, *shape)).astype(np.float32)
    stream = io.BytesIO()
    np.save(stream, x)
    body = stream.getvalue() if form == "npy" else json.dumps({"samples": x.tolist()}).encode()
    accept = "Accept: application/x-npy\r\n" if form == "npy" else ""
    head = f"POST /tasks/{TASK}/predict HTTP/1.1\r\nHost: a\r\n{accept}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def make_run(folder: Path, network: nn.Module, shape: tuple[int, ...] = (INPUTS,)) -> Path:
    """Begin a run of two tasks."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(200, *shape)).astype(np.float32), np.arange(200) % CLASSES
    opened = bocl.open(folder / "run", network, method="fixed", recipe=bocl.Recipe(epochs=1, batch_size=50))
    opened.learn(bocl.from_arrays([(x, y), (-x, y)], names=[TASK, "another"]))
    return folder / "run"


def compared(
    servers: tuple[tuple[int, int], tuple[int, int]], request: bytes, clients: int, rounds: int, requests: int
) -> tuple[float, float, float, float, float, float]:
    """Ask two servers in turns; return medians of the second and of the first: requests a second, then CPU for one.

    After them come the median and the least of the second's share of the first's requests a second.
    """
    each = max(requests // clients, 1)
    speeds: list[list[float]] = [[], []]
    cpu: list[list[float]] = [[], []]
    for _ in range(rounds):
        for place, (process, port) in enumerate(servers):
            before = cpu_seconds(process)
            speeds[place].append(ask(port, request, clients, each))
            cpu[place].append(1e6 * (cpu_seconds(process) - before) / (clients * (each + 1)))
    shares = [mine / theirs for theirs, mine in zip(*speeds, strict=True)]
    return median(speeds[1]), median(speeds[0]), median(cpu[1]), median(cpu[0]), median(shares), min(shares)


def bocl_serve(run: str, *options: str) -> AbstractContextManager[tuple[int, int]]:
    """Start `bocl serve`."""
    return running("bocl", "serve", run, "--port", "0", "--device", "cpu", *options)


def measure_serving(rounds: int, requests: int, tell: Callable[[Served], None]) -> list[Served]:
    """Measure every case; ``tell`` is called with each as it is done."""
    results = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        run = str(make_run(folder, bocl.mlp(INPUTS, HIDDEN)))
        bare = stack.enter_context(running("replication.speed.serving", "--bare", run))
        servers = bare, stack.enter_context(bocl_serve(run))
        for form, samples, clients in CASES:
            figures = compared(servers, request_of(form, samples), clients, rounds, requests)
            results.append(Served(form, samples, clients, *figures))
            tell(results[-1])
    return results


def measure_batches(rounds: int, requests: int, tell: Callable[[Batched], None]) -> list[Batched]:
    """Measure every network, with a lone client and with many."""
    results = []
    for name, (network, shape) in NETWORKS.items():
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            run = str(make_run(folder, network(), shape))
            servers = stack.enter_context(bocl_serve(run)), stack.enter_context(bocl_serve(run, "--batch", str(BATCH)))
            for clients in (1, MANY_CLIENTS):
                figures = compared(servers, request_of("npy", 1, shape), clients, rounds, requests)
                results.append(Batched(name, clients, *figures))
                tell(results[-1])
    return results


def made_with() -> str:
    """Say what was measured, and how many processes wanted to run beside it."""
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in ("torch", "uvicorn", "h11"))
    load = f"{os.getloadavg()[0]:.0f} processes wanted to run on {os.cpu_count()} cores as it began"
    return f"commit {versions()['commit']}, {libraries}, one thread; {load}"


app = typer.Typer(name="python -m replication.speed.serving", add_completion=False, rich_markup_mode=None)


@app.command()
def serving_command(
    rounds: Annotated[int, typer.Option(min=1, help="Turns of both servers in every case.")] = 10,
    requests: Annotated[int, typer.Option(min=1, help="Requests of a turn.")] = 1600,
    batches: Annotated[bool, typer.Option("--batches", help="Measure `--batch 64` beside `--batch 1`.")] = False,
    bare: Annotated[str | None, typer.Option(help="Only serve this run with a bare module.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the cases as JSON.")] = False,
) -> None:
    """Measure `bocl serve` and a bare module behind the same server, or batches of it."""
    if bare is not None:
        serve_bare(bare)
        return
    if not as_json:
        typer.echo(made_with())

    def tell(case: Served | Batched) -> None:
        if not as_json:
            typer.echo(case.describe())

    measure = measure_batches if batches else measure_serving
    cases = measure(rounds, requests, tell)
    if as_json:
        typer.echo(json.dumps([asdict(case) for case in cases], indent=1))


if __name__ == "__main__":
    app()
