"""What the guide shows is what happens."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import subprocess

import numpy as np
import pytest
from server_process import server

from test_docs import ROOT, blocks, call

pytestmark = [
    pytest.mark.extras("uvicorn"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl"),
]


def test_every_transcript_of_the_guide(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("samples.npy", np.float32([[5.1, 3.5, 1.4, 0.2]]))
    asked = 0
    with contextlib.ExitStack() as stack:
        running = None
        for block in blocks(ROOT / "docs" / "guides" / "serve.md"):
            if block.language == "python":
                exec(compile(block.text, "<guide>", "exec"), {})
            for command, shown in block.commands if block.language != "python" else ():
                if command.startswith("bocl serve"):
                    running = stack.enter_context(server("runs/flowers"))
                    printed = running.line
                elif command.startswith("bocl"):
                    printed = call(command)
                else:
                    words = shlex.split(command.replace("127.0.0.1:8000", f"127.0.0.1:{running.port}"))
                    printed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
                    asked += 1
                if running:
                    shown = shown.replace("8000", str(running.port))
                pattern = ".*".join(map(re.escape, shown.strip().split("…")))
                assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"{command} prints:\n{printed}"
    assert asked > 8
    assert np.load("logits.npy").shape == (1, 2)
