"""Command lines that are wrong in every way, of every command."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import pytest
from fuzzing import call, cases, contents, judge
from hypothesis import example, given
from hypothesis import strategies as st

RUN = Path(__file__).parents[1] / "fixtures" / "run-format-2"

# Networks of one's own, wrong in every way; the module lies in the folder the command is run from.
MODULE = """
import torch
from torch import nn

def raises(): raise RuntimeError("first line\\nsecond line")
def raises_nothing_said(): raise KeyError
def asserts(): assert False
def exits(): raise SystemExit(0)
def exits_with_words(): raise SystemExit("some\\nwords")
def recurses(): return recurses()
def fills_memory(): raise MemoryError
def returns_none(): return None
def returns_a_class(): return nn.Linear
def returns_a_tensor(): return torch.zeros(3)
def no_layers(): return nn.Sequential()
def only_a_head(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
def wants_more(size, other): return nn.Linear(size, other)
def lstm(): return nn.Sequential(nn.LSTM(3, 3))
def good(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 10))
class Odd(nn.Module):
    def __repr__(self): raise ValueError("no name")
class Branches(nn.Module):
    def forward(self, x): return x if x.sum() > 0 else -x
class TwoInputs(nn.Module):
    def forward(self, x, y): return x + y
class NoInputs(nn.Module):
    def forward(self): return 0
class Raises(nn.Module):
    def forward(self, x): raise Exception("a\\nb")
class Says:
    def __call__(self): return 1
    def __repr__(self): raise RuntimeError
says = Says()
number = 3
"""
FUNCTIONS = [line.split()[1].split("(")[0].rstrip(":") for line in MODULE.splitlines() if line[:3] in ("def", "cla")]

ODD_NAMES = (
    "", " ", "a b", "ünï", "é\u0301", "line\nbreak", "tab\t", "-", "--", "-x", "--nothing", "~", "~nobody", "*", "a;b",
    "$HOME", ".", "..", "/dev/null", "/dev/null/x", "/proc/nowhere", "nowhere", "nowhere/deep", "x" * 300, "d/" * 3000,
    "file", "file/x", "empty", "loop", "dangling", "run", "run/journal.jsonl", "broken", "full", "grid", "mine.toml",
    "bad.toml", "folder.toml", "digits", "digit", "\udcff", "\x1b[31mred", "=", "%s", "{}", "\u202e", "own",
    "a" * 254 + ".toml", "kept.tar.xz", "kept.tar.xz/a.jsonl", "kept.tar.xz/b.jsonl", "kept.tar.xz/a.jsonl/x",
    "broken.tar.xz", "broken.tar.xz/a.jsonl", "a" * 254 + ".tar.xz/a.jsonl",
)  # fmt: skip
NAMES = st.one_of(
    st.sampled_from(ODD_NAMES),
    st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), max_size=20),
)
NUMBERS = st.one_of(
    st.sampled_from(["", " ", "0", "1", "-1", "1.5", "x", "1e3", "nan", "9" * 19, "9" * 5000, "٣", "0x1", "+1", "1_0"]),
    st.integers().map(str),
)
LISTED = st.lists(st.one_of(NUMBERS, st.sampled_from(["all", "bocl", "sn", "Bocl", "gem", "é", "\n"])), max_size=4)
LISTS = LISTED.map(",".join)
DEVICES = st.sampled_from(
    [
        "auto",
        "cpu",
        "cuda",
        "cuda:0",
        "cuda:x",
        "cuda:-1",
        "cpu:0",
        "cpu:1",
        "cuda:" + "9" * 5000,
        "meta",
        "mps",
        "",
        "cuda:٣",
    ]
)
NETWORKS = st.one_of(
    st.sampled_from([f"network=own:{name}" for name in (*FUNCTIONS, "says", "number", "none")]),
    st.sampled_from(
        ["network=broken_module:x", "network=exiting_module:x", "network=own", "network=:", "network=own:good:x"]
    ),
    st.just("network=os.path:join"),
)
SETS = st.one_of(
    NETWORKS, st.sampled_from(["", "=", "a", "a=", "=a", ".=1", "a..b=1", "seed=x", "stream.tasks=0"]), NAMES
)
FLAGS = st.sampled_from(
    ["--json", "--no-json", "--audit", "--no-audit", "--no-accuracy", "--version", "--quick", "-h", "-"]
)


def option(name: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[list[str]]:
    return st.one_of(
        values.map(lambda value: [name, value]), values.map(lambda value: [f"{name}={value}"]), st.just([name])
    )


OPTIONS = st.one_of(
    option("--set", SETS),
    option("--methods", LISTS),
    option("--seeds", LISTS),
    option("--out", NAMES),
    option("--device", DEVICES),
    option("--at-once", NUMBERS),
    option("--data", NAMES),
    option("--task", NUMBERS),
    option("--run", NAMES),
    FLAGS.map(lambda word: [word]),
    NAMES.map(lambda word: [word]),
)


def fill(folder: Path) -> None:
    """Fill a folder with what a command may stumble upon, and must not change."""
    (folder / "file").write_text("mine")
    (folder / "empty").mkdir()
    (folder / "mine.toml").write_text('network = "own:good"\n')
    (folder / "bad.toml").write_text("seed = [\n")
    (folder / "folder.toml").mkdir()
    (folder / "own.py").write_text(MODULE)
    (folder / "broken_module.py").write_text("def x(:\n")
    (folder / "exiting_module.py").write_text("raise SystemExit(0)\n")
    (folder / "dangling").symlink_to("nowhere-at-all")
    (folder / "loop").symlink_to("loop")
    (folder / "broken" / "bocl-seed0").mkdir(parents=True)
    (folder / "broken" / "bocl-seed0" / "journal.jsonl").write_bytes(b"\x00\xff{\n")
    (folder / "broken" / "bocl-seed0" / "journal.jsonl.lock").touch()
    shutil.copytree(RUN, folder / "run")
    with tarfile.open(folder / "kept.tar.xz", "w:xz") as archive:
        archive.add(RUN / "journal.jsonl", "a.jsonl")
    (folder / "broken.tar.xz").write_bytes((folder / "kept.tar.xz").read_bytes()[:-9])
    (folder / "full" / "bocl-seed0").mkdir(parents=True)
    (folder / "full" / "bocl-seed0" / "notes").write_text("something that is not a run")
    (folder / "grid").mkdir()
    (folder / "grid" / "bocl-seed0").write_text("a file where a run would be")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files, folders, links and runs in it."""
    folder = tmp_path_factory.mktemp("command-lines") / "here"
    folder.mkdir()
    fill(folder)
    return folder


def check(kind: str, here: Path, words: list[str]) -> None:
    """Call the command line, and see that all that was there is there still, and nothing else unless accepted."""
    before = contents(here.parent)
    accepted = judge(kind, call(*words))
    after = contents(here.parent)
    assert {path: after.get(path) for path in before} == before
    made = sorted(set(after) - set(before), reverse=True)
    assert accepted or not made, f"left behind: {made}"
    for path in made:  # what a run that begins makes: its folder, an empty journal and its lock
        place = here.parent / path
        place.rmdir() if place.is_dir() else place.unlink()


@pytest.fixture
def inside(here: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in the folder, with no data and a home that are nobody's."""
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path_factory.getbasetemp()))
    monkeypatch.delenv("BOCL_DATA", raising=False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    return here


@pytest.mark.parametrize("command", ["run", "validate", "show", "status", "audit", "report"])
@cases(40)
@given(options=st.lists(OPTIONS, max_size=4))
def test_a_command_is_valid_or_refused_in_one_line(inside, command, options):
    check(command, inside, [command, *(word for option in options for word in option)])


@cases(40)
@given(st.lists(OPTIONS, min_size=1, max_size=3))
def test_bench_is_refused_in_one_line(inside, options):
    words = [word for option in options for word in option]
    check("bench", inside, ["bench", *words, "--device", "cuda:99"])


@cases(30)
@given(st.lists(OPTIONS, max_size=3), NAMES)
def test_list_and_unknown_commands_are_valid_or_refused_in_one_line(inside, options, command):
    words = [word for option in options for word in option]
    check("list", inside, ["list", *words])
    if command not in ("run", "bench", "--"):  # the last alone is a bare call, which prints the help
        check("unknown command", inside, [command, *words])


@cases(30)
@given(NAMES, st.sampled_from(["run", "show", "status", "audit", "report", "page", "validate", "data", "both"]))
@example("full", "run")
@example("x" * 300, "show")
@example("full", "status")
@example("line\nbreak", "validate")
def test_a_folder_of_any_name_is_used_or_refused_in_one_line(inside, name, command):
    words = {
        "run": ["run", f"--out={name}"],
        "page": ["report", "run", f"--out={name}"],
        "data": ["run", f"--data={name}", "--out=new"],
        "both": ["run", f"--data={name}", f"--out={name}"],
    }
    check(f"name for {command}", inside, words.get(command, [command, "--", name]))


@cases(30)
@given(NETWORKS)
def test_a_network_of_ones_own_is_valid_or_refused_in_one_line(inside, network):
    check("own network", inside, ["validate", "digits", "--set", network, "--set", "network.arguments={}"])
