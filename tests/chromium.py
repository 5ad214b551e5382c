"""A page in a real browser: what is found in it, in narrow and wide windows, in light and dark; and what it does."""

from __future__ import annotations

import fcntl
import html
import json
import os
import re
import select
import shutil
import signal
import subprocess
import time

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


def _chromium(folder):
    return [
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", *(f"--disable-{part}" for part in QUIET), f"--user-data-dir={folder / 'profile'}"),
    ]


def look(text, folder, *widths, dark=False):
    """Return what Chromium finds in frames of these widths; fail on anything it logs to the console."""
    frames = "".join(
        f'<iframe style="width:{w}px;height:900px;border:0" srcdoc="{html.escape(text)}"></iframe>' for w in widths
    )
    (folder / "frames.html").write_text(MEASURE.format(frames=frames))
    command = [
        *_chromium(folder),
        *("--enable-logging=stderr", "--window-size=1500,1000"),
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


class Tab:
    """A tab that is driven over the DevTools protocol: messages in JSON, each with a NUL at its end, over two pipes.

    complaints  what the page or its policy wrote to the console
    """

    def __init__(self, folder):
        self._folder = folder
        self.complaints = []
        self._count, self._rest = 0, b""

    def __enter__(self):
        (theirs, self._write), (self._read, answers) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (theirs, answers)]  # so that none is 3 or 4
        quiet = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
        ends = [(os.POSIX_SPAWN_DUP2, end, number) for end, number in zip(high, (3, 4), strict=True)]
        command = [*_chromium(self._folder), "--remote-debugging-pipe", "about:blank"]
        self._process = os.posix_spawn(command[0], command, os.environ, file_actions=[*quiet, *ends])
        for end in (theirs, answers, *high):
            os.close(end)
        try:
            self._session = None
            self._session = self.send("Target.attachToTarget", targetId=self._page(), flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Log", "DOM"):
                self.send(f"{domain}.enable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._read)
        os.close(self._write)

    def _page(self):
        for _ in range(100):
            found = [each for each in self.send("Target.getTargets")["targetInfos"] if each["type"] == "page"]
            if found:
                return found[0]["targetId"]
            time.sleep(0.1)
        raise AssertionError("the browser opened no page")

    def send(self, method, **parameters):
        """Call a method of the protocol and return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            if answer.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
                self.complaints.append(answer["params"])

    def _next(self):
        while b"\0" not in self._rest:
            assert select.select([self._read], [], [], 30)[0], "the browser says nothing"
            part = os.read(self._read, 65536)
            assert part, "the browser has gone"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def run(self, script):
        """Return what a script gives, waiting for a promise."""
        found = self.send("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_for(self, script):
        """Wait until a script gives something true, and return it."""
        end = time.monotonic() + 20
        while time.monotonic() < end:
            if found := self.run(script):
                return found
            time.sleep(0.05)
        raise AssertionError(f"{script} stays {found!r}; the page shows {self.run('document.body.innerText')}")

    def choose_file(self, selector, path):
        """Give a file to a field of the page."""
        root = self.send("DOM.getDocument")["root"]["nodeId"]
        field = self.send("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.send("DOM.setFileInputFiles", nodeId=field, files=[str(path)])
