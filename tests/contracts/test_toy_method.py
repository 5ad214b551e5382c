"""A method is one file and one entry: with these, and nothing else, it does all that any method does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENTRY = """
from bocl.method_table import METHODS, MethodEntry
METHODS["toy"] = MethodEntry("toy", "toy_method", "Toy", ("#123456", "#abcdef"), "star", settings="ToySettings")
from bocl.cli.main import main
import sys
sys.exit(main())
"""
SMALL = ("digits", "--set", "stream.tasks=3", "--set", "recipe.epochs=2", "--device", "cpu")


def bocl(*words: object, folder: Path, code: int = 0) -> str:
    """Run a command with the entry in the table."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ENTRY, *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr or done.stdout
    return done.stdout + done.stderr


def in_python(code: str, folder: Path) -> str:
    """Run some lines with the entry in the table."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY.partition("from bocl.cli")[0] + code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


RESUME = """
from bocl.experiment.config import load_config
from bocl.experiment.run import run
from bocl.records.events import TaskStarted
config = load_config("digits", ["method=toy", "stream.tasks=3", "toy.sharpness=0.5"])

def stop(event):
    if isinstance(event, TaskStarted) and event.index == 2:
        raise KeyboardInterrupt

run(config, "whole", device="cpu")
try:
    run(config, "stopped", device="cpu", callback=stop)
except KeyboardInterrupt:
    pass
assert len(run(config, "stopped", device="cpu")) == 3

import bocl, torch
whole, stopped = (bocl.load(name, device="cpu") for name in ("whole", "stopped"))
assert isinstance(whole, bocl.Toy) and whole.settings == bocl.ToySettings(0.5)
assert all(torch.equal(a, b) for a, b in zip(whole.network.tasks, stopped.network.tasks, strict=True))
whole.save("model")
again = bocl.load("model", device="cpu")
x = torch.rand(5, 1, 8, 8)
assert torch.equal(again.predict(x, 1), whole.predict(x, 1))
print("same bits")
"""


def test_one_file_and_one_entry_make_a_method(tmp_path):
    assert "toy" in bocl("list", folder=tmp_path)
    wrong = bocl("run", *SMALL, "--set", "toy.sharpnes=2", folder=tmp_path, code=2)
    assert "toy.sharpnes: unknown key (did you mean 'sharpness'?)" in wrong
    table = bocl("run", *SMALL, "--methods", "toy,sn", "--set", "toy.sharpness=0.5", folder=tmp_path)
    assert "toy" in table.split("method  seeds")[1]
    resumed = bocl("run", *SMALL, "--methods", "toy,sn", "--set", "toy.sharpness=0.5", folder=tmp_path)
    assert "toy" in resumed
    refused = bocl("run", *SMALL, "--methods", "toy", "--set", "toy.sharpness=2", folder=tmp_path, code=2)
    assert "toy.sharpness: 0.5 there, 2.0 here" in refused
    assert "as recorded" in bocl("audit", "runs/digits/toy-seed0", folder=tmp_path)
    assert json.loads(bocl("show", "runs/digits/toy-seed0", "--json", folder=tmp_path))[0]["method"] == "toy"
    bocl("report", "runs/digits", "-o", "report.html", folder=tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert ">toy<" in page
    assert "#123456" in page


def test_it_resumes_saves_and_loads_to_the_same_bits(tmp_path):
    assert in_python(RESUME, tmp_path) == "same bits\n"
