"""Points for TensorBoard: files of events in a folder per run. What is in these files already is not written again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bocl.extras import needed
from bocl.tracking.points import TrackedRun


def feed_tensorboard(logs: Path, name: str, run: TrackedRun) -> int:
    """Write the points of a run that its folder under ``logs`` lacks, and return how many there were."""
    loader = _module("backend.event_processing.event_file_loader")
    writer = _module("summary.writer.event_file_writer")
    events, summaries = _module("compat.proto.event_pb2"), _module("compat.proto.summary_pb2")
    known = sorted(logs.glob(f"*-{run.identity[:8]}"))
    folder = known[0] if known else logs / f"{name.replace('/', '-')}-{run.identity[:8]}"
    written = {
        (value.tag, event.step)
        for file in folder.glob("events.out.tfevents.*")
        for event in loader.LegacyEventFileLoader(str(file)).Load()
        for value in event.summary.value
    }
    new = [point for point in run.points if (point.name, point.step) not in written]
    if new:
        out = writer.EventFileWriter(str(folder))
        for point in new:
            value = summaries.Summary.Value(tag=point.name, simple_value=point.value)
            summary = summaries.Summary(value=[value])
            out.add_event(events.Event(wall_time=time.time(), step=point.step, summary=summary))
        out.close()
    return len(new)


def _module(name: str) -> Any:
    return needed(f"tensorboard.{name}", "tensorboard", "this is for TensorBoard")
