"""The page of a real server, used in a real browser."""

from __future__ import annotations

import json
import struct
import zlib

import numpy as np
import pytest
from server_process import server
from serving_examples import NAMES, images, make_run, write_task

import bocl
from bocl.report.style import colours
from chromium import Tab, needs_chromium

pytestmark = [pytest.mark.extras("uvicorn"), needs_chromium]

SHOWN = "[...document.querySelectorAll('#answers h3')].map(each => each.textContent)"
BARS = "[...document.querySelectorAll('#answers .bar')].map(each => [...each.children].map(part => part.textContent))"


def png(pixels):
    """Return a grey image (height, width) as a .png file holds it."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    height, width = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def rgb(colour):
    """Return #rrggbb as a browser writes it."""
    return f"rgb({', '.join(str(int(colour[at : at + 2], 16)) for at in (1, 3, 5))})"


def bars(learner, x, task):
    """Return what the page must show for one sample: class and share, the largest first."""
    shares = learner.predict_proba(x, task)[0].tolist()
    named = sorted(zip(learner.classes(task), shares, strict=True), key=lambda pair: -pair[1])
    return [[label, "", f"{100 * share:.2f} %"] for label, share in named]


def test_tasks_are_listed_and_tried(tmp_path):
    run = make_run(tmp_path)
    learner, x = run.learner, images(9)[:2]
    with server(run.folder) as running, Tab(tmp_path) as tab:
        tab.send("Page.navigate", url=f"http://127.0.0.1:{running.port}/")
        tab.wait_for("document.querySelectorAll('#tasks button').length === 2")
        listed = tab.run("document.querySelector('#tasks button').innerText")
        assert listed.split("\n")[0] == NAMES[0]
        assert f"test {100 * run.records[-1].row[0]:.2f} %" in listed
        assert "2 classes: bright, dark" in listed
        assert "a sample is 1 × 4 × 4 whole numbers from 0 to 255" in listed

        lines = "\n".join(",".join(map(str, sample.ravel())) for sample in x)
        ask = f"document.querySelector('#samples').value = {json.dumps(lines)}; document.querySelector('#ask').click()"
        tab.run(ask)
        labels = learner.predict_labels(x, NAMES[0])
        assert tab.wait_for(f"{SHOWN}.length === 2 && {SHOWN}") == [
            f"Sample {number}: {label}" for number, label in enumerate(labels, start=1)
        ]
        assert tab.run(BARS)[:2] == bars(learner, x[:1], NAMES[0])
        tab.run("document.querySelector('#answers .bar span:last-child').textContent = '100.00 %'")
        heights = tab.run("[...document.querySelectorAll('#answers .bar')].map(bar => bar.offsetHeight)")
        assert len({*heights}) == 1, "a share takes one line"

        tab.run("document.querySelectorAll('#tasks button')[1].click()")
        (tmp_path / "sample.png").write_bytes(png(x[0, 0]))
        np.save(tmp_path / "sample.npy", x[1:])
        for name, sample in (("sample.png", x[:1]), ("sample.npy", x[1:])):
            tab.choose_file("#file", tmp_path / name)
            tab.run("document.querySelector('#answers').replaceChildren(); document.querySelector('#ask').click()")
            assert tab.wait_for(f"{BARS}.length === 2 && {BARS}") == bars(learner, sample, NAMES[1])

        for wrong, said in (
            ("1,2", "Line 1 holds 2 numbers; a sample has 16."),
            ("[[300]]", "give whole numbers from 0 to 255"),
        ):
            tab.run(
                "document.querySelector('#file').value = ''; document.querySelector('#wrong').textContent = ''; "
                f"document.querySelector('#samples').value = '{wrong}'; document.querySelector('#ask').click()"
            )
            assert said in tab.wait_for("document.querySelector('#wrong').textContent")
        complaints = [each for each in tab.complaints if each.get("entry", {}).get("source") != "network"]  # the 400
        assert complaints == []

        run.learn_file(write_task(tmp_path, "new", 3), "<b>new</b>")
        tab.wait_for("document.querySelectorAll('#tasks button').length === 3")
        assert tab.run("document.querySelectorAll('#tasks button')[2].innerText").startswith("<b>new</b>")
        assert bocl.load(run.folder).seen[2].name == "<b>new</b>"

        for width in (400, 1200):
            tab.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
            assert tab.run("innerWidth") == width
            beyond = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert tab.run(beyond) == 0, "the page scrolls sideways"
        for scheme, side in (("light", 0), ("dark", 1)):
            scheme = {"name": "prefers-color-scheme", "value": scheme}
            tab.send("Emulation.setEmulatedMedia", features=[scheme])
            paper = tab.run("getComputedStyle(document.documentElement).getPropertyValue('--paper')")
            assert paper.strip() == colours()["paper"][side]
            button = tab.run(
                "(style => [style.color, style.backgroundColor])"
                "(getComputedStyle(document.querySelector('#file'), '::file-selector-button'))"
            )
            assert button == [rgb(colours()[role][side]) for role in ("ink", "panel")], "it can be read"

        running.process.kill()
        running.process.wait()
        tab.run(f"document.querySelector('#wrong').textContent = ''; {ask}")
        told = tab.wait_for("document.querySelector('#wrong').textContent")
        assert told == "The server does not answer."
        tab.wait_for(f"document.querySelector('#facts').textContent === {json.dumps(told)}")
