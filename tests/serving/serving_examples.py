"""A small run of images in bytes, and requests to an app without a server."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path

import numpy as np

import bocl

SHAPE = (1, 4, 4)
NAMES = ("left/right", "top")  # one that must be encoded in an address


def images(seed, samples=60):
    return np.random.default_rng(seed).integers(256, size=(samples, *SHAPE), dtype=np.uint8)


def write_task(folder: Path, name: str, seed: int) -> Path:
    """Write a task as `bocl learn` takes it."""
    place = folder / f"task-{seed}.npz"
    x = images(seed)
    y = np.where(x.reshape(len(x), -1)[:, seed] > 127, "bright", "dark")
    np.savez(place, x=x, y=y)
    return place


def make_run(folder: Path, hidden=8, **settings) -> bocl.OpenRun:
    """Begin a run of two tasks."""
    recipe = bocl.Recipe(epochs=2, batch_size=16)
    run = bocl.open(folder / "run", bocl.mlp(16, [hidden]), method="fixed", recipe=recipe, **settings)
    for seed, name in enumerate(NAMES):
        run.learn_file(write_task(folder, name, seed), name)
    return run


def as_npy(array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=array.dtype.hasobject)
    return stream.getvalue()


def as_json(array) -> bytes:
    return json.dumps({"samples": array.tolist()}).encode()


def ask(app, method, path, *parts, query="", headers=(), pause=0.0):
    """Return status, headers and body that an ASGI app answers to one request, whose body comes in parts."""
    return asyncio.run(asked(app, method, path, *parts, query=query, headers=headers, pause=pause))


async def asked(app, method, path, *parts, query="", headers=(), pause=0.0):
    """Ask as ``ask`` does, beside others."""
    coming = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    coming.append({"type": "http.request", "body": b"", "more_body": False})
    sent = []

    async def receive():
        if pause:
            await asyncio.sleep(pause)
        return coming.pop(0)

    async def send(message):
        sent.append(message)

    named = [(name.lower().encode(), value.encode()) for name, value in headers]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": named}
    await app(scope, receive, send)
    start, end = sent
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}, end["body"]
