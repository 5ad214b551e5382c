"""The page in a real browser: it renders, without a complaint, in narrow and wide windows, in light and dark."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess

import pytest
from report_examples import a_run, an_evaluation

from bocl.report.page import page
from bocl.report.style import COLOURS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

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
        *("--enable-logging=stderr", f"--user-data-dir={folder / 'profile'}", "--window-size=1500,1000"),
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        *("--virtual-time-budget=10000", "--dump-dom", (folder / "frames.html").as_uri()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', done.stdout, re.DOTALL)[1]))


def rgb(colour):
    return "rgb({}, {}, {})".format(*(int(colour[at : at + 2], 16) for at in (1, 3, 5)))


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
@pytest.mark.parametrize("dark", [False, True])
def test_it_renders_in_narrow_and_wide_windows(tmp_path, dark):
    runs = [run for run in an_evaluation(seeds=1) if run.config["stream"]["name"] == "split-cifar100"]
    odd = a_run(name="a-name-without-a-break" * 9, folder="runs/" + "x" * 300, stream="other")
    text = page([*runs, odd])
    narrow, wide = look(text, tmp_path, 400, 1400, dark=dark)
    for found, width in ((narrow, 400), (wide, 1400)):
        assert found["width"] == width
        assert found["beyond"] == 0, "the page scrolls sideways"
        assert {"figure-2", "figure-3", "figure-4", "figure-5", "table-1", "attention", "inside"} <= set(found["ids"])
        assert found["figures"] > 50
        assert found["empty"] == 0
        assert found["paper"] == rgb(COLOURS["paper"][dark])
        assert found["text"] == rgb(COLOURS["ink"][dark])


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_a_page_that_is_too_wide_or_complains_would_be_found(tmp_path):
    wide = "<body><section id=x></section><main><svg width=900 height=9><text>a</text></svg></main>"
    assert look(wide, tmp_path, 400)[0]["beyond"] > 400
    with pytest.raises(AssertionError, match="wrong"):
        look(wide + "<script>console.error('wrong')</script>", tmp_path, 400)
