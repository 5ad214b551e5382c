"""``bocl serve``: answers over HTTP for every task of a run."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Device, Trust

_MIB = 1024 * 1024


def serve_command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of a saved model.")],
    host: Annotated[str, typer.Option(help="Address to listen on; anyone who reaches it may ask.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes any that is free.")] = 8000,
    max_bytes: Annotated[
        int, typer.Option(min=1024, max=1024 * _MIB, help="Most bytes of a request; JSON may have a quarter.")
    ] = 16 * _MIB,
    max_samples: Annotated[int, typer.Option(min=1, help="Most samples of a request.")] = 1000,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds a client has to send a request or to take its answer.")
    ] = 20.0,
    batch: Annotated[
        int, typer.Option(min=1, help="Most samples of several requests in one pass; over 1, last bits may change.")
    ] = 1,
    access_log: Annotated[bool, typer.Option("--access-log", help="Print a line for every request.")] = False,
    device: Device = "auto",
    trust: Trust = False,
) -> None:
    """Answer over HTTP for every task of a run, those it learns meanwhile too; there is a page at /."""
    from bocl.cli.printing import say
    from bocl.serving.limits import Limits
    from bocl.serving.served import Served
    from bocl.serving.server import serve
    from bocl.wording import counted

    def ready(address: str, served: Served) -> None:
        tasks = counted(len(served.learner.seen), "task")
        batches = f", in batches of up to {batch} samples" if batch > 1 else ""
        say(f"bocl serve: {address}  {tasks} of {run}, on {served.learner.device}{batches}; Ctrl-C stops it")

    limits = Limits(body=max_bytes, samples=max_samples, seconds=timeout, batch=batch)
    serve(run, (host, port), limits, device=device, trust=trust, access_log=access_log, ready=ready)
