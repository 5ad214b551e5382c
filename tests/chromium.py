"""A page in a real browser: what is found in it, in narrow and wide windows, in light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest

from bocl.report.style import colours

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = ("quic", "background-networking", "component-update", "sync")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")

# The page in frames of given widths, each a window of its own to its media queries, and what is found in them.
MEASURE = """
<!doctype html><meta charset=utf-8>{frames}<script>
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(frame => {{
    const inside = frame.contentDocument, root = inside.documentElement;
    const drawn = [...inside.querySelectorAll("main svg")].map(svg => svg.getBoundingClientRect());
    return {{
      width: frame.contentWindow.innerWidth, beyond: root.scrollWidth - root.clientWidth,
      ids: [...inside.querySelectorAll("section")].map(s => s.id),
      figures: drawn.length, empty: drawn.filter(box => box.width < 15 || box.height < 8).length,
      paper: getComputedStyle(inside.body).backgroundColor,
      text: getComputedStyle(inside.querySelector("svg text")).fill,
    }};
  }});
  const result = document.createElement("pre");
  result.id = "found"; result.textContent = JSON.stringify(found); document.body.append(result);
}});
</script>
"""


def look(text, folder, *widths, dark=False):
    """Return what Chromium finds in frames of these widths; fail on anything it logs to the console."""
    frames = "".join(
        f'<iframe style="width:{w}px;height:900px;border:0" srcdoc="{html.escape(text)}"></iframe>' for w in widths
    )
    (folder / "frames.html").write_text(MEASURE.format(frames=frames))
    command = [
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", *(f"--disable-{part}" for part in QUIET)),
        *("--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", "--window-size=1500,1000"),
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        *("--virtual-time-budget=10000", "--dump-dom", (folder / "frames.html").as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)[1]))


def check_rendering(text, folder, keys, *, dark):
    """Fail unless a page has these sections, whole figures and its colours in a narrow and in a wide window."""
    for found, width in zip(look(text, folder, 400, 1400, dark=dark), (400, 1400), strict=True):
        assert found["width"] == width
        assert found["beyond"] == 0, "the page scrolls sideways"
        assert set(keys) <= set(found["ids"])
        assert found["figures"] > 50
        assert found["empty"] == 0
        assert found["paper"] == _rgb(colours()["paper"][dark])
        assert found["text"] == _rgb(colours()["ink"][dark])


def _rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[at : at + 2], 16) for at in (1, 3, 5)))
