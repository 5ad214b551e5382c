"""A model's folder holds the old model or the new one, and says what is wrong with it."""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import shutil
import signal
import threading
from itertools import count

import pytest
import torch
from method_examples import RECIPE, hard_stream, make_bocl, paper_bocl, small_cnn, small_mlp
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from bocl.errors import DeviceError, FolderError, InputError, WorkError
from bocl.methods import saving
from bocl.methods.cab import CAB
from bocl.methods.den import DEN
from bocl.methods.ewc import EWC
from bocl.methods.fearnet import FearNet
from bocl.methods.fixed import Fixed, FixedSettings
from bocl.methods.gem import GEM
from bocl.methods.hat import HAT
from bocl.methods.imm import IMM
from bocl.methods.independent import Independent
from bocl.methods.joint import Joint
from bocl.methods.pc import PC
from bocl.methods.pgn import PGN
from bocl.methods.saving import load, read_state, save
from bocl.methods.sn import SN
from bocl.methods.tensor_files import pack

SAVED = [
    "bocl",
    "fixed",
    "sn",
    "ewc",
    "gem",
    "joint",
    "independent",
    "pgn",
    "den",
    "hat",
    "imm",
    "pc",
    "cab",
    "fearnet",
]


@pytest.fixture
def folder(tmp_path):
    """Return the folder of a model that has learnt one task."""
    learner = SN(small_cnn(), recipe=RECIPE, seed=3, device="cpu")
    learner.learn(hard_stream()[0])
    save(learner, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return {method: folder} of models that have learnt two tasks; copy one before changing it."""
    root = tmp_path_factory.mktemp("saved")
    learners = {
        "bocl": make_bocl(small_cnn()),
        "fixed": Fixed(small_cnn(), settings=FixedSettings(2), recipe=RECIPE, device="cpu"),
        "sn": SN(small_cnn(), recipe=RECIPE, device="cpu"),
        "ewc": EWC(small_cnn(), recipe=RECIPE, device="cpu"),
        "gem": GEM(small_cnn(), recipe=RECIPE, device="cpu"),
        "joint": Joint(small_cnn(), recipe=RECIPE, device="cpu"),
        "independent": Independent(small_cnn(), recipe=RECIPE, device="cpu"),
        "pgn": PGN(small_cnn(), recipe=RECIPE, device="cpu"),
        "den": DEN(small_cnn(), recipe=RECIPE, device="cpu"),
        "hat": HAT(small_cnn(), recipe=RECIPE, device="cpu"),
        "imm": IMM(small_cnn(), recipe=RECIPE, device="cpu"),
        "pc": PC(small_cnn(), recipe=RECIPE, device="cpu"),
        "cab": CAB(small_cnn(), recipe=RECIPE, device="cpu"),
        "fearnet": FearNet(small_cnn(), recipe=RECIPE, device="cpu"),
    }
    for name, learner in learners.items():
        for task in (0, 1):
            learner.learn(hard_stream()[task])
        save(learner, root / name)
    return {name: root / name for name in learners}


@pytest.fixture
def copy(saved, tmp_path):
    """Return a function that gives a folder of its own with a method's saved model."""
    return lambda name: shutil.copytree(saved[name], tmp_path / name)


def edit(folder, change) -> None:
    """Change a model.json as a person would, its sha256 left as it was."""
    model = json.loads((folder / "model.json").read_text())
    change(model)
    (folder / "model.json").write_text(json.dumps(model))


def forge(folder, change) -> None:
    """Change a model.json and make its sha256 fit, so that only what it says can be found wrong."""

    def and_seal(model):
        change(model)
        content = {name: value for name, value in model.items() if name != "sha256"}
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        if "sha256" in model:
            model["sha256"] = hashlib.sha256(text.encode()).hexdigest()

    edit(folder, and_seal)


def forge_tensors(folder, change) -> None:
    """Change the tensors of a model, with every hash made to fit."""
    (old,) = folder.glob("*.safetensors")
    tensors = load_tensors(old.read_bytes())
    change(tensors)
    data = save_tensors(tensors)
    old.unlink()
    digest = hashlib.sha256(data).hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    (folder / name).write_bytes(data)
    forge(folder, lambda model: model.update(weights={"file": name, "sha256": digest}))


def refusal(folder) -> str:
    """Return what load says about a folder: a FolderError of one line that names the folder."""
    with pytest.raises(FolderError) as caught:
        load(folder, device="cpu")
    message = str(caught.value)
    assert "\n" not in message
    assert str(folder) in message
    return message


def contents(folder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_newer_save_replaces_the_older(folder):
    learner = load(folder, device="cpu")
    learner.learn(hard_stream()[1])
    save(learner, folder)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]
    assert len(load(folder, device="cpu").seen) == 2


def test_settings_come_back(tmp_path):
    learner = Fixed(small_cnn(), settings=FixedSettings((1, 2)), recipe=RECIPE, seed=7, device="cpu")
    learner.learn(hard_stream()[0])
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    assert (loaded.settings.widths, loaded.recipe, loaded.seed) == ((1, 2), RECIPE, 7)
    assert loaded.learn(hard_stream()[1]).widths == (1, 2)


def test_a_learner_that_has_learnt_nothing_can_be_saved(tmp_path):
    make_bocl(small_cnn()).save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    fresh = make_bocl(small_cnn())
    assert repr(loaded.learn(hard_stream()[0])) == repr(fresh.learn(hard_stream()[0]))
    assert all(torch.equal(tensor, loaded.state().tensors[name]) for name, tensor in fresh.state().tensors.items())


def test_damaged_weights_are_refused(folder):
    (weights,) = folder.glob("*.safetensors")
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(FolderError, match="damaged"):
        load(folder)


def test_missing_weights_are_refused(folder):
    (weights,) = folder.glob("*.safetensors")
    weights.unlink()
    with pytest.raises(FolderError, match="cannot be read"):
        load(folder)


def steps(model):
    return model["graph"]["steps"]


def step(model, kind, number=0):
    return [entry for entry in steps(model) if entry["step"] == kind][number]


# What a person or a disk may do to any model.json.
EDITS = {
    "stride": lambda model: step(model, "layer").update(stride=[2, 2]),
    "activation": lambda model: step(model, "function").update(function="tanh"),
    "seed": lambda model: model["settings"].update(seed=99),
    "seen": lambda model: model["facts"]["seen"].pop(),
    "class count": lambda model: model["facts"]["seen"][0].update(classes=9),
    "method": lambda model: model.update(method="joint"),
    "sha256": lambda model: model.update(sha256="0" * 64),
    "nan": lambda model: model["settings"].update(seed=float("nan")),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_model_is_refused(copy, name):
    folder = copy("sn")
    edit(folder, EDITS[name])
    message = refusal(folder)
    assert str(folder / "model.json") in message
    assert "edited or damaged" in message or "JSON compliant" in message


# Content that makes no sense although its sha256 fits, for every method; what the message must say.
FORGERIES = {
    "format of another version": (lambda model: model.update(format=99), "has format 99; .* reads formats 1 to 3"),
    "format of another kind": (lambda model: model.update(format="1"), "has format '1'; .* formats 1 to 3, a number"),
    "format true": (lambda model: model.update(format=True), "has format True;"),
    "format list": (lambda model: model.update(format=[1]), "has format"),
    "no format": (lambda model: model.pop("format"), "format"),
    "unknown method": (lambda model: model.update(method="snn"), "unknown method 'snn'.*did you mean 'sn'"),
    "method number": (lambda model: model.update(method=5), "method: expected a string"),
    "method list": (lambda model: model.update(method=[]), "method: expected a string"),
    "no graph": (lambda model: model.pop("graph"), "lacks graph"),
    "no sha256": (lambda model: model.pop("sha256"), "lacks sha256"),
    "setting of another kind": (lambda model: model["settings"].update(seed="x"), "settings.seed: expected an int"),
    "unknown setting": (lambda model: model["settings"].update(sed=1), "unknown setting 'sed'.*did you mean 'seed'"),
    "settings list": (lambda model: model.update(settings=[]), "settings: expected a table"),
    "unknown step": (lambda model: steps(model)[0].update(step="spell"), "unknown kind 'spell'"),
    "step list": (lambda model: steps(model)[0].update(step=[]), "expected a string"),
    "step number": (lambda model: steps(model).insert(0, 5), r"graph.steps\[0\]"),
    "no steps": (lambda model: model["graph"].update(steps=[]), "no steps"),
    "steps missing": (lambda model: model["graph"].pop("steps"), "lacks 'steps'"),
    "graph list": (lambda model: model.update(graph=[]), "graph: expected a table"),
    "no groups": (lambda model: model["graph"].update(groups=[]), "no groups"),
    "group width 0": (
        lambda model: model["graph"]["groups"][0].update(width=0),
        r"graph.groups\[0\].width is 0; it must be at least 1",
    ),
    "group renamed": (lambda model: model["graph"]["groups"][0].update(name="x"), "opened by no layer"),
    "group out of range": (lambda model: step(model, "layer").update(group=7), "opens group 7"),
    "group negative": (lambda model: step(model, "layer").update(group=-1), "opens group -1"),
    "source out of range": (lambda model: step(model, "layer", 1)["source"].update(group=9), "reads group 9"),
    "source width": (lambda model: step(model, "layer", 1)["source"].update(width=3), "reads 3 channels"),
    "spread": (lambda model: step(model, "layer", 1)["source"].update(spread=2), "cannot take"),
    "unknown function": (lambda model: step(model, "function").update(function="softmax"), "function 'softmax'"),
    "hidden function": (lambda model: step(model, "function").update(function="__name__"), "unknown function"),
    "unknown argument": (lambda model: step(model, "function")["arguments"].update(x=1), "unknown argument 'x'"),
    "argument kind": (lambda model: step(model, "function", 1)["arguments"].update(kernel_size="x"), "cannot take"),
    "huge argument": (lambda model: step(model, "function", 1)["arguments"].update(kernel_size=10**30), "cannot take"),
    "reads nothing there": (lambda model: steps(model)[1].update(reads=[99]), r"reads \[99\]"),
    "reads forwards": (lambda model: steps(model)[1].update(reads=[2]), r"reads \[2\]"),
    "reads negative": (lambda model: steps(model)[1].update(reads=[-1]), r"reads \[-1\]"),
    "reads two": (lambda model: steps(model)[1].update(reads=[0, 1]), r"reads \[0, 1\]"),
    "reads text": (lambda model: steps(model)[1].update(reads="1"), "reads: expected a list"),
    "no head": (lambda model: steps(model).pop(), "is not the head"),
    "layer renamed": (lambda model: step(model, "layer").update(name="x"), "opened by no layer"),
    "norm renamed": (lambda model: step(model, "norm").update(name="x"), "tensor '.*' is missing"),
    "kernel": (lambda model: step(model, "layer").update(kernel=[5, 5]), "cannot take|shape"),
    "kernel length": (lambda model: step(model, "layer").update(kernel=[3]), "lengths"),
    "kernel of four": (
        lambda model: step(model, "layer").update({name: [1] * 4 for name in ("kernel", "stride", "dilation")}),
        "lengths",
    ),
    "stride 0": (lambda model: step(model, "layer").update(stride=[0, 0]), r"stride\[0\] is 0; it must be at least 1"),
    "dilation length": (lambda model: step(model, "layer").update(dilation=[1]), "lengths"),
    "padding word": (
        lambda model: step(model, "layer").update(padding="sme"),
        "padding: expected a list or 'same' or 'valid'",
    ),
    "norm kind": (lambda model: step(model, "norm").update(kind="layers"), "kind: unknown value 'layers'"),
    "norm eps": (lambda model: step(model, "norm").update(eps=-1.0), "eps"),
    "facts empty": (lambda model: model.update(facts={}), "lacks 'seen'"),
    "facts list": (lambda model: model.update(facts=[]), "facts: expected a table"),
    "seen short": (
        lambda model: model["facts"]["seen"].pop(),
        "belongs to nothing|of the 1 tasks|history",
    ),
    "seen null": (lambda model: model["facts"].update(seen=None), "facts.seen: expected a list"),
    "seen classes": (
        lambda model: model["facts"]["seen"][1].update(classes=9, labels=[]),
        "shape|of the 2 tasks|is missing",
    ),
    "seen labels": (lambda model: model["facts"]["seen"][1].update(classes=9), "other labels than one for each"),
    "seen a label twice": (lambda model: model["facts"]["seen"][1].update(labels=["a"] * 3), "other labels than one"),
    "seen no label": (lambda model: model["facts"]["seen"][1].update(labels=[None, 1, 2]), "None is not a label"),
    "seen classes 0": (lambda model: model["facts"]["seen"][1].update(classes=0), "cannot be"),
    "seen shape": (lambda model: model["facts"]["seen"][0].update(shape=[]), "cannot be"),
    "seen shapes": (lambda model: [seen.update(shape=[2, 9, 9]) for seen in model["facts"]["seen"]], "cannot take"),
    "seen mean": (lambda model: model["facts"]["seen"][0].update(mean=[0.0] * 7), "cannot be"),
    "seen mean null": (lambda model: model["facts"]["seen"][0].update(mean=[None]), "mean.*: expected a finite number"),
    "weights text": (lambda model: model.update(weights="x"), "weights: expected a table"),
    "weights file number": (lambda model: model["weights"].update(file=5), "weights.file: expected a string"),
    "weights elsewhere": (lambda model: model["weights"].update(file="../x"), "weights.file is '../x'"),
    "weights no sha256": (lambda model: model["weights"].pop("sha256"), "lacks 'sha256'"),
    "weights no file": (lambda model: model["weights"].pop("file"), "lacks 'file'"),
}


@pytest.mark.parametrize("method", SAVED)
def test_a_model_that_makes_no_sense_is_refused(saved, tmp_path, method):
    for number, (name, (change, reason)) in enumerate(FORGERIES.items()):
        folder = shutil.copytree(saved[method], tmp_path / str(number))
        forge(folder, change)
        with pytest.raises(FolderError, match=reason) as caught:
            load(folder, device="cpu")
        assert "\n" not in str(caught.value), name
        assert str(folder / "model.json") in str(caught.value), name


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["growths"].pop(),
        lambda facts: facts["growths"].append(facts["growths"][0]),
        lambda facts: facts.pop("growths"),
        lambda facts: facts.update(growths=None),
        lambda facts: facts["growths"][0].update(widths=[4, 4]),
        lambda facts: facts["growths"][1].update(widths=[1]),
        lambda facts: facts["growths"][1].update(widths=[-1, 9]),
        lambda facts: facts["growths"][1].update(widths=[10**30, 1]),
        lambda facts: facts["growths"][1].update(widths=[29, 29]),
        lambda facts: facts.update(history=None),
        lambda facts: facts.pop("history"),
        lambda facts: facts["history"].pop(),
        lambda facts: facts["history"][0].update(best=[1]),
        lambda facts: facts["history"][0].update(trials=[5]),
        lambda facts: facts["history"][0].pop("difficulty"),
        lambda facts: facts["history"][0]["trials"][0].update(accuracy=7.0),
        lambda facts: facts.update(prior_trials=[5]),
        lambda facts: facts.update(prior_trials=[{**facts["history"][0], "best": [1]}]),
    ],
)
def test_facts_of_a_growing_network_that_make_no_sense_are_refused(copy, change):
    folder = copy("bocl")
    forge(folder, lambda model: change(model["facts"]))
    assert str(folder / "model.json") in refusal(folder)


@pytest.mark.parametrize("method", SAVED)
def test_tensors_that_are_not_the_networks_are_refused(saved, tmp_path, method):
    changes = {
        "is missing": lambda tensors: tensors.pop(sorted(tensors)[0]),
        "belongs to nothing": lambda tensors: tensors.update(x=torch.zeros(1)),
        "has shape": lambda tensors: tensors.update({sorted(tensors)[0]: torch.zeros(1, 1)}),
        "not torch.float32": lambda tensors: tensors.update(
            {name: tensor.double() for name, tensor in tensors.items()}
        ),
    }
    for number, (reason, change) in enumerate(changes.items()):
        folder = shutil.copytree(saved[method], tmp_path / str(number))
        forge_tensors(folder, change)
        assert reason in refusal(folder)


@pytest.mark.parametrize(
    "text", ["[]", "5", "null", '"x"', "", "{", "[" * 100_000, '{"format": 1, "a": ' * 5000, "\xff"]
)
def test_what_is_no_table_is_refused(folder, text):
    (folder / "model.json").write_bytes(text.encode("latin-1"))
    assert str(folder / "model.json") in refusal(folder)


def test_deep_nesting_inside_a_table_is_refused(copy):
    folder = copy("sn")
    nested = 1
    for _ in range(400):
        nested = [nested]
    forge(folder, lambda model: step(model, "function", 1)["arguments"].update(kernel_size=nested))
    refusal(folder)


def test_a_huge_model_json_is_not_read(folder):
    with (folder / "model.json").open("r+b") as file:
        file.truncate(1 << 40)  # a hole: it takes no room on the disk
    with pytest.raises(FolderError, match=r"model\.json cannot be a model: it has more than"):
        load(folder)


def test_weights_that_are_no_tensors_are_refused(folder):
    (old,) = folder.glob("*.safetensors")
    old.unlink()
    digest = hashlib.sha256(b"mine").hexdigest()
    name = f"weights-{digest[:16]}.safetensors"
    (folder / name).write_bytes(b"mine")
    forge(folder, lambda model: model.update(weights={"file": name, "sha256": digest}))
    assert name in refusal(folder)


def test_what_the_caller_gives_wrong_is_not_blamed_on_the_folder(copy):
    folder = copy("bocl")
    for device in ("tpu", "cuda:99", 5):
        with pytest.raises(DeviceError) as caught:
            load(folder, device=device)
        assert "model.json" not in str(caught.value)
    with pytest.raises(InputError, match=r"no option 'searchr' for method 'bocl'.*did you mean 'searcher'") as caught:
        load(folder, searchr=None)
    assert not isinstance(caught.value, FolderError)
    with pytest.raises(InputError, match="'seed': it comes from the folder") as caught:
        load(folder, seed=5)
    assert not isinstance(caught.value, FolderError)
    with pytest.raises(InputError, match="'prior_trials': it comes from the folder"):
        load(folder, prior_trials=())
    with pytest.raises(InputError, match="no option 'searcher' for method 'sn'"):
        load(copy("sn"), searcher=None)


@pytest.mark.parametrize("method", SAVED)
def test_an_untouched_model_gives_the_same_bits_again(saved, tmp_path, method):
    learner = load(saved[method], device="cpu")
    save(learner, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(saved[method])


def test_odd_places_to_load_from_are_refused(tmp_path, folder):
    for place in (folder / "model.json", folder / "model.json" / "x", tmp_path / ("x" * 300), tmp_path / "a\0b"):
        refusal(place)
    (folder / "model.json").unlink()
    (folder / "model.json").mkdir()
    refusal(folder)


def test_a_folder_that_may_not_be_read_is_refused(folder, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    assert "Permission denied" in refusal(folder)
    monkeypatch.setattr("pathlib.Path.exists", refuse)
    assert "Permission denied" in refusal(folder)


@pytest.mark.parametrize("name", ["model.json", "weights"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), os.mkdir])
def test_what_could_be_read_for_ever_is_refused(folder, name, make):
    (path,) = folder.glob(f"{name}*")
    path.unlink()
    make(path)
    assert f"{path} cannot be read: it is not a file" in refusal(folder)


def test_what_is_no_model_is_refused(tmp_path, folder):
    with pytest.raises(FolderError, match="no model"):
        load(tmp_path / "nowhere")
    (folder / "model.json").write_text("{")
    with pytest.raises(FolderError, match="cannot be read"):
        load(folder)


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    learner = make_bocl()
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FolderError, match="something else"):
        save(learner, tmp_path)
    with pytest.raises(FolderError, match="it is a file"):
        save(learner, tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("text", ["{}", "[]", "mine", '{"format": 1, "weights": {"file": "weights-mine.safetensors"}}'])
def test_a_strangers_model_is_left_alone(tmp_path, text):
    (tmp_path / "model.json").write_text(text)
    (tmp_path / "weights-mine.safetensors").write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(FolderError, match="something else"):
        save(make_bocl(), tmp_path)
    assert contents(tmp_path) == before


def test_an_edited_model_is_not_written_over(folder):
    edit(folder, EDITS["seed"])
    before = contents(folder)
    with pytest.raises(FolderError, match="edited or damaged"):
        save(make_bocl(), folder)
    assert contents(folder) == before


def test_only_the_files_of_the_older_save_are_removed(folder):
    (old,) = folder.glob("*.safetensors")
    mine = ("weights-mine.safetensors", "weights-0123456789abcdef.safetensors", "mine.partial", "notes.txt")
    stale = ("model.json.partial", "weights-0123456789abcdef.safetensors.partial")
    for name in (*mine, *stale):
        (folder / name).write_text("mine")
    learner = load(folder, device="cpu")
    learner.learn(hard_stream()[1])
    save(learner, folder)
    names = set(contents(folder))
    assert set(mine) < names
    assert not names & {old.name, *stale}
    assert len(names) == len(mine) + 2


def test_a_first_save_that_was_cut_off_can_be_made_again(folder):
    learner = load(folder, device="cpu")
    (folder / "model.json").rename(folder / "model.json.partial")
    save(learner, folder)
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]
    assert len(load(folder, device="cpu").seen) == 1


CALLS = ("write", "fsync", "replace", "unlink")


def save_and_die(learner, folder, call: int) -> bool:
    """Save in a process that is killed before its n-th call that changes the folder; return whether it was."""
    child = os.fork()
    if child == 0:
        left = call

        def counted(real):
            def before(*arguments, **options):
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return before

        for name in CALLS:
            setattr(os, name, counted(getattr(os, name)))
        try:
            save(learner, folder)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
def test_saves_that_are_killed_leave_no_more_than_one_does(tmp_path, first):
    folder = tmp_path / "model"
    learners = (SN(small_mlp(), recipe=RECIPE, seed=seed, device="cpu") for seed in count())
    if not first:
        save(next(learners), folder)
    for call, learner in enumerate(learners):
        learner.learn(hard_stream()[0])
        if not save_and_die(learner, folder, call):
            break
        names = [path.name for path in folder.iterdir()] if folder.exists() else []
        assert len(names) <= 4, "a model, and the weights and half a model.json that one more save may leave"
        if "model.json" in names:
            load(folder, device="cpu")
    assert call > 8
    assert sorted(path.suffix for path in folder.iterdir()) == [".json", ".safetensors"]
    assert load(folder, device="cpu").seed == learner.seed


def test_where_nothing_can_be_locked_what_another_save_may_be_writing_stays(folder, monkeypatch):
    def no_locks(*_arguments, **_options):
        raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(saving, "lock_file", no_locks)
    (folder / "model.json.01234567.partial").touch()
    save(load(folder, device="cpu"), folder)
    assert (folder / "model.json.01234567.partial").exists()


def test_odd_places_to_save_to_are_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    places = [tmp_path / "file" / "x" / "y", tmp_path / ("x" * 300), tmp_path / "a\0b", "/proc/x", "/dev/null/x"]
    for place in places:
        with pytest.raises((FolderError, WorkError)) as caught:
            save(make_bocl(), place)
        assert str(place) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_disk_that_fails_is_told(tmp_path, monkeypatch):
    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(WorkError, match="No space left"):
        save(make_bocl(), tmp_path / "model")


def test_a_number_that_json_cannot_hold_is_told(tmp_path):
    network = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Hardtanh(0, float("inf")), torch.nn.Linear(3, 2))
    with pytest.raises(InputError, match="infinite"):
        save(make_bocl(network), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_state_is_read_for_the_method_and_the_tasks_it_is_of(saved):
    fresh = Fixed(small_cnn(), settings=FixedSettings(2), recipe=RECIPE, device="cpu")
    fresh.restore(read_state(saved["fixed"], fresh, tasks=2))
    assert len(fresh.seen) == 2


@pytest.mark.parametrize(
    ("make", "tasks", "reason"),
    [
        (
            lambda: Fixed(small_cnn(), settings=FixedSettings(2), recipe=RECIPE, device="cpu"),
            3,
            "has learnt 2 tasks, not 3",
        ),
        (lambda: Fixed(small_cnn(), settings=FixedSettings(3), recipe=RECIPE, device="cpu"), 2, "other settings"),
        (
            lambda: Fixed(small_cnn(), settings=FixedSettings(2), recipe=RECIPE, seed=1, device="cpu"),
            2,
            "other settings",
        ),
        (
            lambda: Fixed(make_bocl().graph, settings=FixedSettings(2), recipe=RECIPE, device="cpu"),
            2,
            "another network",
        ),
        (lambda: SN(small_cnn(), recipe=RECIPE, device="cpu"), 2, "of 'fixed', not of 'sn'"),
    ],
)
def test_a_state_of_something_else_is_refused_with_a_way_out(saved, make, tasks, reason):
    with pytest.raises(FolderError, match=reason) as caught:
        read_state(saved["fixed"], make(), tasks=tasks)
    assert str(saved["fixed"]) in str(caught.value)
    assert str(caught.value).endswith("give another folder with --out, or restore it from a copy")


def test_a_damaged_state_is_refused_with_a_way_out(copy):
    fresh = Fixed(small_cnn(), settings=FixedSettings(2), recipe=RECIPE, device="cpu")
    folder = copy("fixed")
    forge(folder, lambda model: model["facts"]["seen"].pop())
    with pytest.raises(FolderError, match="restore it from a copy"):
        read_state(folder, fresh, tasks=2)
    edit(folder, EDITS["seed"])
    with pytest.raises(FolderError, match=r"edited or damaged.*restore it from a copy"):
        read_state(folder, fresh, tasks=2)
    shutil.rmtree(folder)
    with pytest.raises(FolderError, match=r"no model.*restore it from a copy"):
        read_state(folder, fresh, tasks=2)


def test_a_load_next_to_two_saves_sees_a_whole_model(tmp_path):
    learners = [make_bocl(small_cnn(), seed=seed) for seed in (1, 2)]
    for learner in learners:
        learner.learn(hard_stream()[0])
    inputs = hard_stream()[0].train.inputs()[:4]
    said = [learner.predict(inputs, 0) for learner in learners]
    learners[0].save(tmp_path / "model")
    failures: list[BaseException] = []

    def save_often(learner):
        try:
            for _ in range(25):
                learner.save(tmp_path / "model")
        except BaseException as error:
            failures.append(error)

    savers = [threading.Thread(target=save_often, args=(learner,)) for learner in learners]
    for saver in savers:
        saver.start()
    saving = True
    while saving:
        saving = any(saver.is_alive() for saver in savers)
        found = load(tmp_path / "model", device="cpu").predict(inputs, 0)
        assert any(torch.equal(found, logits) for logits in said)
    assert failures == []
    assert len(list((tmp_path / "model").iterdir())) == 2, "model.json and the weights it names"


def test_writing_tensors_leaves_nothing_in_memory():
    def types() -> int:
        gc.collect()
        return sum(issubclass(type(found), type) for found in gc.get_objects())

    pack({"a": torch.zeros(1)}, "canaries, format 2")
    before = types()
    for size in range(2, 40):
        pack({"a": torch.zeros(size)}, "canaries, format 2")
    assert types() == before


def test_a_load_between_saves_of_the_same_model_sees_it(tmp_path, monkeypatch):
    learner = SN(small_mlp(), recipe=RECIPE)
    learner.learn(hard_stream()[0])
    learner.save(tmp_path)
    real, failed = saving._read_tensors, []

    def gone_once(folder, model):
        if not failed:
            failed.append(model)
            raise FolderError("another save removed these weights, and the next one wrote them again")
        return real(folder, model)

    monkeypatch.setattr(saving, "_read_tensors", gone_once)
    assert len(load(tmp_path).seen) == 1


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        ([1], "facts.growths[1].reads is (1,); it must be numbers of earlier tasks in order"),
        ([-1], "facts.growths[1].reads is (-1,); it must be numbers of earlier tasks in order"),
        ([0, 0], "facts.growths[1].reads is (0, 0); it must be numbers of earlier tasks in order"),
        (["0"], "facts.growths[1].reads[0]"),
        (0, "facts.growths[1].reads"),
        ({}, "facts.growths[1].reads"),
    ],
)
def test_a_model_that_reads_what_it_cannot_is_refused(copy, reads, message):
    folder = copy("bocl")
    forge(folder, lambda model: model["facts"]["growths"][1].update(reads=reads))
    assert message in refusal(folder)


def test_a_model_that_reads_a_task_without_all_that_it_reads_is_refused(tmp_path):
    learner = paper_bocl()
    for task in range(3):
        learner.learn(hard_stream()[task])
    save(learner, tmp_path / "model")
    forge(tmp_path / "model", lambda model: model["facts"]["growths"][2].update(reads=[1]))
    assert "facts.growths[2].reads has 1, but not all that it reads" in refusal(tmp_path / "model")


def test_a_model_of_before_there_was_a_choice_is_read_as_it_was(tmp_path):
    learner = paper_bocl(small_cnn())
    for task in range(3):
        learner.learn(hard_stream()[task])
    save(learner, tmp_path / "model")

    def make_early(model):
        settings = model["settings"]
        for section, names in {
            "growth": ("reads", "gates", "gate_share"),
            "search": ("halving",),
            "goal": ("tolerance",),
        }.items():
            for name in names:
                del settings[section][name]
        for growth in model["facts"]["growths"]:
            assert "reads" not in growth, "as in early files"
        for task in model["facts"]["history"]:
            for trial in task["trials"]:
                del trial["reads"], trial["rungs"]

    forge(tmp_path / "model", make_early)
    again = load(tmp_path / "model", device="cpu")
    assert (again.growth, again.search, again.goal) == (learner.growth, learner.search, learner.goal)
    assert again.history == learner.history
    x = torch.randn(9, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    assert all(torch.equal(again.predict(x, task), learner.predict(x, task)) for task in range(3))
    last = hard_stream()[3]
    assert repr(again.learn(last)) == repr(learner.learn(last))
