"""Tasks exported as a program, as ONNX, as one file of tensors and as a folder for the Hub."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import safetensors
import torch
from exporting_examples import BATCHES, RECIPE, TYPES, adapted, fixed, samples_for, typed_stream
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import bocl
from bocl.errors import FolderError, InputError, WorkError
from bocl.methods.exporting import export as exporting
from bocl.methods.exporting import onnx_file
from bocl.methods.exporting.canaries import Canaries, check_logits
from bocl.methods.exporting.card import Recorded
from bocl.methods.exporting.onnx_file import onnx_of_one, run_onnx
from bocl.methods.exporting.pt2_file import pt2, run_pt2
from bocl.methods.exporting.safetensors_file import run_safetensors, safetensors_file
from bocl.records.files import write_whole
from bocl.tasks.texts import text_format

sys.path += [str(Path(__file__).parents[1] / room) for room in ("networks", "tasks")]
from low_rank_examples import MODULES, Transformer, trained
from network_examples import NETWORKS, random_stack
from text_examples import COLOURS, LIKED, encoder, made_up_tokenizers, tokenizer_json

ONNX = pytest.mark.extras("onnx", "onnxscript", "onnxruntime")
BOTH = [pytest.param("pt2"), pytest.param("onnx", marks=ONNX)]
OF_LARGEST = 1e-5
FEW = settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


def check(learner: bocl.Learner, task: int, to: str, kind: str = "float32") -> None:
    """See that an exported task gives the learner's logits for 1, 7 and 128 samples."""
    module = learner.module(task)
    compute = run_pt2(pt2(module)) if to == "pt2" else run_onnx(onnx_of_one(module))
    for count in BATCHES:
        x = samples_for(learner, task, count, kind)
        wanted = learner.predict(x, task)
        given = x if kind == "uint8" or learner.seen[task].padding is not None else x.float()
        assert (compute(given) - wanted).abs().max() <= OF_LARGEST * wanted.abs().max()


@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_task_of_units_gives_the_same_logits(name, to):
    check(fixed(NETWORKS[name](), tasks=2, growth=bocl.GrowthSettings(gate_share=1.0)), 1, to)


@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize(("name", "form"), [*((name, "low-rank") for name in MODULES), ("mobile", "whole")])
def test_a_task_of_an_adapted_module_gives_the_same_logits(name, form, to):
    check(adapted(name, form), 1, to)


@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize("method", [bocl.PGN, bocl.FearNet])
def test_a_task_of_columns_or_memories_gives_the_same_logits(method, to):
    learner = method(NETWORKS["cnn"](), recipe=RECIPE, device="cpu")
    for task in range(2):
        learner.learn(typed_stream("uint8")[task])
    check(learner, 1, to, "uint8")


def drawn(data) -> tuple[bocl.Learner, int, str]:
    """Draw a learner of a random network, one of its tasks and a type of samples."""
    kinds = data.draw(st.lists(st.sampled_from(["plain", "residual"]), min_size=1, max_size=2), label="kinds")
    widths = [data.draw(st.integers(1, 4), label="width") for _ in kinds]
    norm = data.draw(st.sampled_from(["none", "batch", "group"]), label="norm")
    pool = data.draw(st.sampled_from(["none", "max", "average", "adaptive"]), label="pool")
    kind = data.draw(st.sampled_from(TYPES), label="type of the samples")
    learner = fixed(random_stack(kinds, widths, norm, pool), kind, tasks=2)
    return learner, data.draw(st.integers(0, 1), label="task"), kind


@pytest.mark.parametrize("to", BOTH)
@FEW
@given(st.data())
def test_random_networks_and_samples_give_the_same_logits(to, data):
    learner, task, kind = drawn(data)
    check(learner, task, to, kind)


# -- one file of tensors ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_one_file_of_units_gives_the_same_bits(name, tmp_path):
    learner = fixed(NETWORKS[name](), "uint8")
    for task in range(3):
        path = learner.export(task, tmp_path / f"{task}.safetensors", "safetensors").path
        module = bocl.load_module(path, device="cpu")
        assert module.labels == learner.classes(task)
        for count in BATCHES:
            x = samples_for(learner, task, count, "uint8")
            with torch.no_grad():
                assert torch.equal(module(x), learner.predict(x, task))


@FEW
@given(st.data())
def test_one_file_of_random_networks_gives_the_same_bits(data):
    learner, task, kind = drawn(data)
    compute = run_safetensors(learner, safetensors_file(learner, task, learner.network.single_task(task)))
    for count in BATCHES:
        x = samples_for(learner, task, count, kind)
        assert torch.equal(compute(x), learner.predict(x, task))


@pytest.mark.parametrize("form", ["low-rank", "low-rank, own norms", "whole"])
@pytest.mark.parametrize("name", ["mobile", "text"])
def test_one_file_of_an_adapted_module_gives_the_same_bits(name, form, tmp_path):
    learner = adapted(name, form)
    path = learner.export(1, tmp_path / "one.safetensors", "safetensors").path
    given = {} if name == "text" else {"network": trained(MODULES[name][0](), seed=3)}
    module = bocl.load_module(path, device="cpu", **given)
    x = samples_for(learner, 1, 7)
    with torch.no_grad():
        assert torch.equal(module(x), learner.predict(x, 1))
    if name == "mobile":
        with pytest.raises(InputError, match=r"adapts a Mobile, whose code is yours; give such a module with network="):
            bocl.load_module(path)
        with pytest.raises(InputError, match=r"adapts another module: a Mobile with \d+ tensors, not this Transformer"):
            bocl.load_module(path, network=Transformer())


def test_one_file_holds_what_the_task_uses_and_nothing_else(tmp_path):
    learner = fixed(NETWORKS["mlp"]())
    path = learner.export(0, tmp_path / "first.safetensors", "safetensors").path
    with safetensors.safe_open(path, "pt") as held:
        numbers = sum(held.get_tensor(name).numel() for name in held.keys())  # noqa: SIM118 - it is no mapping
    assert numbers == sum(learner.network.parameters_by_task()[0].values())
    assert numbers < sum(learner.parameters().values())


def test_a_damaged_or_foreign_file_is_refused_in_one_line(tmp_path):
    path = fixed(NETWORKS["mlp"](), tasks=1).export(0, tmp_path / "one.safetensors", "safetensors").path
    data = path.read_bytes()
    for number, (damaged, told) in enumerate(
        [
            (data[:-1], "cannot be read"),
            (data[:-1] + bytes([data[-1] ^ 1]), "edited or damaged"),
            (data.replace(b"task 1", b"task 2"), "edited or damaged"),
            (data.replace(b'\\"format\\": 1', b'\\"format\\": 9'), "has format 9"),
            (b"", "cannot be read"),
            (b"\xff" * 64, "no safetensors file"),
            (safetensors.numpy.save({"a": np.zeros(2)}), "cannot be read as an exported task"),
        ]
    ):
        other = tmp_path / f"{number}.safetensors"
        other.write_bytes(damaged)
        with pytest.raises(FolderError, match=told) as raised:
            bocl.load_module(other)
        assert "\n" not in str(raised.value)
    with pytest.raises(FolderError, match="cannot be read: No such file"):
        bocl.load_module(tmp_path / "none.safetensors")


# -- all tasks in one file -------------------------------------------------------------------------------


@ONNX
@pytest.mark.parametrize("kind", ["units", "factors"])
def test_all_tasks_in_one_file_give_each_tasks_logits(kind, tmp_path):
    import onnxruntime

    learner = fixed(NETWORKS["cnn"](), "uint8") if kind == "units" else adapted("mobile", tasks=3)
    written = learner.export(None, tmp_path / "all.onnx", "onnx")
    assert written.tasks == tuple(about.name for about in learner.seen)
    session = onnxruntime.InferenceSession(written.path)
    for task, about in enumerate(learner.seen):
        for count in BATCHES:
            x = samples_for(learner, task, count, "uint8" if kind == "units" else "float32")
            wanted = learner.predict(x, task)
            (found,) = session.run(None, {"x": x.numpy(), "task": np.array(task)})
            assert found.shape == (count, about.classes)
            assert np.abs(found - wanted.numpy()).max() <= OF_LARGEST * float(wanted.abs().max())
    assert [(each.name, each.shape[:1]) for each in session.get_inputs()] == [("x", ["batch"]), ("task", [])]
    facts = json.loads(session.get_modelmeta().custom_metadata_map["bocl"])
    assert [task["task"] for task in facts["tasks"]] == list(written.tasks)
    if kind == "factors":  # what tasks share is stored once
        one, base = onnx_of_one(learner.module(0)), 4 * learner.parameters()["base"]
        assert written.bytes < 3 * len(one) - 1.5 * base
    for none in (3, -1, -3):
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"x": x.numpy(), "task": np.array(none)})


# -- without bocl ----------------------------------------------------------------------------------------

_ALONE = """
import sys
sys.modules["bocl"] = None  # whoever imports it fails
import numpy as np
x = np.load(sys.argv[2])
if sys.argv[1].endswith("pt2"):
    import torch
    facts = {"about.json": ""}
    found = torch.export.load(sys.argv[1], extra_files=facts).module()(torch.from_numpy(x)).detach().numpy()
    assert "task 2" in facts["about.json"]
else:
    import onnxruntime
    found = onnxruntime.InferenceSession(sys.argv[1]).run(None, {"x": x})[0]
np.save(sys.argv[3], found)
"""


LEARNERS = {
    "units": lambda: fixed(NETWORKS["residual, batch norm"](), "uint8"),
    "factors": lambda: adapted("mobile", "low-rank, own norms"),
    "texts": lambda: adapted("text"),
}


@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize("form", LEARNERS)
def test_an_export_runs_in_a_process_without_bocl(form, to, tmp_path):
    learner, kind = LEARNERS[form](), "uint8" if form == "units" else "float32"
    path = learner.export("task 2", tmp_path / f"task.{to}", to).path
    here = str(Path(bocl.__file__).parent).encode()
    parts = [path.read_bytes()]
    if to == "pt2":
        with zipfile.ZipFile(path) as archive:
            parts = [archive.read(name) for name in archive.namelist()]
    assert not any(here in part for part in parts), "an export does not tell where it was made"
    x = samples_for(learner, 1, 7, kind)
    np.save(tmp_path / "x.npy", x.numpy())
    places = [str(path), str(tmp_path / "x.npy"), str(tmp_path / "logits.npy")]
    subprocess.run([sys.executable, "-W", "ignore", "-c", _ALONE, *places], check=True, cwd=tmp_path)
    wanted = learner.predict(x, 1).numpy()
    assert np.abs(np.load(tmp_path / "logits.npy") - wanted).max() <= OF_LARGEST * np.abs(wanted).max()


# -- a folder for the Hub --------------------------------------------------------------------------------


def test_a_folder_for_the_hub_says_what_it_is_and_how_to_use_it(tmp_path):
    learner = fixed(NETWORKS["cnn"](), "uint8")
    written = learner.export(1, tmp_path / "hub", "hub-folder")
    assert written.files == ("README.md", "config.json", "model.pt2", "model.safetensors")
    card = (written.path / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: bocl\n")
    facts = json.loads((written.path / "config.json").read_text())
    assert facts["labels"] == ["0", "1"]
    x = samples_for(learner, 1, 5, "uint8")
    for block in card.split("```python\n")[1:]:
        code = block.split("```")[0].replace('"model', f'"{written.path}/model')
        names = {"samples": x}
        exec(code, names)
        torch.testing.assert_close(names["network"](x), learner.predict(x, 1))
        assert names.get("labels", learner.predict_labels(x, 1)) == learner.predict_labels(x, 1)


def test_the_card_of_a_module_of_ones_own_says_that_its_code_is_needed(tmp_path):
    learner = adapted("mobile")
    card = (learner.export(0, tmp_path / "hub", "hub-folder").path / "README.md").read_text()
    assert 'bocl.load_module("model.safetensors", network=Mobile())' in card
    assert "but for the code of `Mobile`, which bocl needs to load it." in card
    module = bocl.load_module(tmp_path / "hub", network=trained(MODULES["mobile"][0](), seed=3))
    x = samples_for(learner, 0, 3)
    with torch.no_grad():
        assert torch.equal(module(x), learner.predict(x, 0))


def test_a_card_shows_any_name_as_it_is(tmp_path):
    name, labels = 'odd\n# *pets* 😀 "x": ---', ["a, b", "<i>"]
    y = np.arange(30) % 2
    stream = bocl.from_arrays([(np.eye(30, 6, dtype="float32"), [labels[each] for each in y])], names=[name])
    learner = bocl.Fixed(bocl.mlp(6, [4]), recipe=bocl.Recipe(epochs=1), device="cpu")
    learner.learn(stream[0])
    recorded = Recorded(0.5, 0.5, 0.5, name, "0" * 64, "0" * 64, 3, 2, 0.0, {"bocl": "0"}, "now", 0)
    folder = exporting.export(learner, 0, tmp_path / "hub", "hub-folder", recorded=recorded).path
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    assert f"name: {json.dumps(name, ensure_ascii=False)}" in front
    assert '# odd \\# \\*pets\\* 😀 "x": ---\n' in text
    assert "in the order of the logits: “\\<i\\>”, “a, b”." in text


def test_a_folder_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    learner, written = fixed(NETWORKS["mlp"](), tasks=1), []

    def full(path, data):
        if written:
            raise WorkError("the disk is full")
        written.append(path)
        write_whole(path, data)

    monkeypatch.setattr(exporting, "write_whole", full)
    with pytest.raises(WorkError, match="the disk is full"):
        learner.export(0, tmp_path / "hub", "hub-folder")
    assert not any(tmp_path.iterdir())


@ONNX
def test_what_one_onnx_file_cannot_hold_is_refused_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_file, "_MOST_BYTES", onnx_file._ROOM + 100)
    with pytest.raises(InputError, match=r"the ONNX file would have [\d,]+ bytes of tensors, and the format holds"):
        fixed(NETWORKS["mlp"](), tasks=1).export(0, tmp_path / "a.onnx", "onnx")


@pytest.fixture(scope="module")
def of_texts():
    """Return a learner of two tasks of texts, whose tokenizer fills up and cuts off in another way than bocl does."""
    how = text_format(tokenizer_json(), 6, truncate=True)
    learner = bocl.Fixed(
        encoder(), pretrained=True, growth=bocl.GrowthSettings(form="low-rank"), recipe=RECIPE, device="cpu"
    )
    with pytest.MonkeyPatch.context() as patched:
        if find_spec("tokenizers") is None:
            patched.setitem(sys.modules, "tokenizers", made_up_tokenizers())
        for task in bocl.from_texts([LIKED, COLOURS], how):
            learner.learn(task)
    return learner


def test_exports_of_texts_hold_the_tokenizer(of_texts, tmp_path):
    tokenizer = of_texts.text.tokenizer
    for to in ("hub-folder", "peft", "merged"):
        folder = of_texts.export(0, tmp_path / to, to).path
        assert (folder / "tokenizer.json").read_text() == tokenizer
    told = json.loads((tmp_path / "hub-folder" / "config.json").read_text())["samples"]
    assert told == {"shape": [6], "type": "int64", "columns": [], "padding": 0, "truncate": True}
    extra = {"about.json": "", "tokenizer.json": ""}
    torch.export.load(of_texts.export(0, tmp_path / "task.pt2", "pt2").path, extra_files=extra)
    assert extra["tokenizer.json"] == tokenizer
    assert json.loads(extra["about.json"])["samples"] == told


@ONNX
@pytest.mark.parametrize("task", [1, None])
def test_onnx_files_of_texts_hold_the_tokenizer(of_texts, task, tmp_path):
    import onnxruntime

    path = of_texts.export(task, tmp_path / "texts.onnx", "onnx").path
    told = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert told["tokenizer.json"] == of_texts.text.tokenizer
    facts = json.loads(told["bocl"])
    assert (facts if task else facts["tasks"][0])["samples"]["truncate"]


@pytest.mark.extras("tokenizers")
def test_the_card_of_texts_turns_them_into_what_the_task_takes(of_texts, tmp_path, monkeypatch):
    folder = of_texts.export(1, tmp_path / "hub", "hub-folder").path
    monkeypatch.chdir(folder)
    texts = ["the red film", "a blue song and a red red film", "unheard of", ""]
    for block in (folder / "README.md").read_text().split("```python\n")[1:]:
        names = {"texts": texts}
        exec(block.split("```")[0], names)
        torch.testing.assert_close(names["network"](names["samples"]), of_texts.predict(texts, 1))
        assert names.get("labels", of_texts.predict_labels(texts, 1)) == of_texts.predict_labels(texts, 1)


@pytest.mark.extras("transformers")
def test_transformers_reads_the_tokenizer_of_a_folder(of_texts, tmp_path):
    from transformers import AutoTokenizer

    folder = of_texts.export(0, tmp_path / "hub", "hub-folder").path
    texts = ["the red film", "a blue song and a red red film"]
    found = AutoTokenizer.from_pretrained(folder)(texts, padding="max_length", truncation=True)
    assert found["input_ids"] == of_texts.text.encode(texts).ids.tolist()


# -- checks and refusals ---------------------------------------------------------------------------------


def test_an_export_that_gives_other_logits_leaves_nothing(tmp_path, monkeypatch):
    learner = fixed(NETWORKS["mlp"]())
    single = learner.network.single_task(2)
    other = {
        "pt2": lambda _: pt2(learner.module(1)),
        "safetensors_file": lambda *_: safetensors_file(learner, 2, single),
    }
    for to, made in (("pt2", "pt2"), ("safetensors", "safetensors_file")):
        with monkeypatch.context() as patched:
            patched.setattr(exporting, made, other[made])
            with pytest.raises(WorkError, match=r"task 'task 1' as .* gives (other logits|logits of shape)"):
                learner.export(0, tmp_path / "out", to)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("to", ["merged", "peft"])
def test_an_adapter_is_read_again_and_compared(to, tmp_path):
    learner = adapted("mobile")
    wrong = learner.predict(samples_for(learner, 0, 4), 0) + 0.1
    canaries = {0: Canaries(samples_for(learner, 0, 4), wrong)}
    with pytest.raises(WorkError, match=f"task 'task 1' as {to} gives other logits than the task"):
        exporting.export(learner, 0, tmp_path / "out", to, canaries=canaries)
    assert not (tmp_path / "out").exists()


def test_the_difference_is_a_share_of_the_largest_logit():
    canaries = Canaries(torch.zeros(2, 1), torch.tensor([[1.0, -8.0], [0.0, 2.0]]))
    assert check_logits(lambda _: canaries.logits + 0.004, canaries, "it") == pytest.approx(0.0005, rel=1e-3)
    for wrong in (canaries.logits + 0.1, canaries.logits * float("nan"), canaries.logits[:1]):
        with pytest.raises(WorkError, match="nothing was kept"):
            check_logits(lambda _, wrong=wrong: wrong, canaries, "it")


class Branching(nn.Module):
    """A module whose code looks at its samples, which no program can."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 6) to (n, 3)."""
        hidden = self.body(x)
        return self.head(hidden.relu() if bool(x.sum() > 1e9) else hidden.tanh())


def test_what_cannot_be_exported_is_refused_by_name(tmp_path):
    growth = bocl.GrowthSettings(form="low-rank")
    recipe = bocl.Recipe(epochs=1)
    learner = bocl.Fixed(Branching(), pretrained=True, growth=growth, recipe=recipe, device="cpu")
    rng = np.random.default_rng(0)
    learner.learn(bocl.from_arrays([(rng.normal(size=(30, 6)).astype("float32"), np.arange(30) % 3)])[0])
    with pytest.raises(
        InputError, match=r"task 'task 1' cannot be exported as pt2: .*; export it as safetensors"
    ) as told:
        learner.export(0, tmp_path / "a.pt2", "pt2")
    assert "\n" not in str(told.value)
    assert not any(tmp_path.iterdir())
    learner.export(0, tmp_path / "a.safetensors", "safetensors")


def test_wrong_wishes_are_told_in_one_line(tmp_path, monkeypatch):
    learner = fixed(NETWORKS["mlp"](), tasks=1)
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for task, path, to, told in (
        (0, tmp_path / "a", "pt", r"a task cannot be exported as 'pt' \(did you mean 'pt2'\?\)"),
        (0, tmp_path / "a", "ONNX", r"as 'ONNX' \(did you mean 'onnx'\?\)"),
        (0, tmp_path / "a", "html", r"as 'html' \(known: pt2, onnx, safetensors, hub-folder, peft, merged\)"),
        (0, taken, "pt2", "is there already"),
        (0, tmp_path / "none" / "a", "pt2", "is not a folder"),
        (0, tmp_path, "hub-folder", "is not an empty folder"),
        (None, tmp_path / "a", "pt2", "all tasks in one file are exported as onnx, not as pt2"),
        (7, tmp_path / "a", "pt2", "task 7 has not been learnt"),
        (0, tmp_path / "a", "peft", "^method [a-z]+ did not grow by low-rank factors"),
    ):
        with pytest.raises(InputError, match=told):
            learner.export(task, path, to)
    assert taken.read_text() == "mine"
    with monkeypatch.context() as patched:  # a test that root runs may write anywhere
        patched.setattr(exporting.os, "access", lambda place, _: place != tmp_path)
        with pytest.raises(FolderError, match="is a folder that you may not write to; give a place in another"):
            learner.export(0, tmp_path / "a", "pt2")
    fresh = bocl.SN(NETWORKS["mlp"](), device="cpu")
    with pytest.raises(InputError, match="no task has been learnt"):
        fresh.export(None, tmp_path / "a", "onnx")
