"""Tasks exported as PEFT adapters and as merged weights give the logits that the learner gives."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import bocl
from bocl.errors import FolderError, InputError
from bocl.networks.library import make_network
from bocl.networks.low_rank.modules import every_part_called
from bocl.training.recipe import Recipe

sys.path.append(str(Path(__file__).parents[1] / "networks"))
from low_rank_examples import MODULES, Mobile, Transformer, samples, trained
from test_pretrained_methods import stream, text_stream

RECIPE = Recipe("adam", learning_rate=0.02, batch_size=16, epochs=2)
ENCODER = {"vocabulary": 30, "width": 8, "layers": 2, "heads": 2, "inner": 12, "positions": 16}
CASES = [(name, norms) for name in MODULES for norms in ("frozen", "task") if (name, norms) != ("text", "task")]


def learnt(name: str, norms: str = "frozen", tasks: int = 3):
    """Return a learner whose later tasks read the factors of earlier ones, and the module it adapts."""
    module = trained(make_network("text-encoder", ENCODER) if name == "text" else MODULES[name][0]())
    growth = bocl.GrowthSettings("all", form="low-rank", norms=norms, gate_bias=0.5)
    settings = bocl.FixedSettings(widths=2)
    learner = bocl.Fixed(module, pretrained=True, growth=growth, settings=settings, recipe=RECIPE, device="cpu")
    for task in text_stream(tasks) if name == "text" else stream(tasks, MODULES[name][1]):
        learner.learn(task)
    return learner, module


def inputs(name: str) -> torch.Tensor:
    return text_stream(1).test_split(0).raw[:5] if name == "text" else samples(name, 5)


def with_outputs(module: nn.Module, head: str | None, classes: int) -> nn.Module:
    """Give the head of a module so many outputs, as who loads an adapter does."""
    if head is not None:
        place, _, name = head.rpartition(".")
        inputs = module.get_submodule(head).in_features
        setattr(module.get_submodule(place), name, nn.Linear(inputs, classes))
    return module.eval()


def logits_of(module, folder: Path, x: torch.Tensor, head: str | None) -> torch.Tensor:
    with torch.no_grad(), every_part_called():  # PyTorch's own transformer layers compute past adapters otherwise
        out = module(x)
    if head is not None:
        return out
    own = load_file(folder / "head.safetensors")
    return out @ own["weight"].T + own["bias"]


@pytest.mark.parametrize(("name", "norms"), CASES)
def test_merged_weights_load_into_the_module(name, norms, tmp_path):
    learner, _ = learnt(name, norms)
    head = learner.graph.head
    for task in range(3):
        folder = learner.export(task, tmp_path / str(task), to="merged")
        classes = learner.seen[task].classes
        plain = with_outputs(
            MODULES[name][0]() if name != "text" else make_network("text-encoder", ENCODER), head, classes
        )
        plain.load_state_dict(load_file(folder / "model.safetensors"))
        x = inputs(name)
        torch.testing.assert_close(logits_of(plain, folder, x, head), learner.predict(x, task), rtol=1e-4, atol=1e-5)
    assert "Logits are" in (folder / "README.md").read_text() or head is not None


@pytest.mark.extras("peft")
@pytest.mark.parametrize(("name", "norms"), [case for case in CASES if case[0] != "series"])
def test_an_adapter_loads_with_peft_to_the_same_logits(name, norms, tmp_path):
    from peft import PeftModel

    learner, module = learnt(name, norms)
    head = learner.graph.head
    for task in range(3):
        folder = learner.export(task, tmp_path / str(task))
        base = with_outputs(copy.deepcopy(module), head, learner.seen[task].classes)
        adapted = PeftModel.from_pretrained(base, folder).eval()
        x = inputs(name)
        torch.testing.assert_close(logits_of(adapted, folder, x, head), learner.predict(x, task), rtol=1e-4, atol=1e-5)


@pytest.mark.extras("peft", "transformers")
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_an_adapter_of_our_text_encoder_loads_on_transformers_own(tmp_path):
    from peft import PeftModel
    from transformers import BertConfig, BertModel

    learner, module = learnt("text", tasks=2)
    config = BertConfig(
        vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=16, layer_norm_eps=1e-12, attn_implementation="eager",
    )  # fmt: skip
    theirs = BertModel(config, add_pooling_layer=False)
    missing, unexpected = theirs.load_state_dict(module.state_dict(), strict=False)
    assert not unexpected
    assert not [name for name in missing if "position_ids" not in name]
    folder = learner.export(1, tmp_path / "adapter")
    adapted = PeftModel.from_pretrained(theirs, folder).eval()
    x = inputs("text")
    mask = (x != 0).long()
    with torch.no_grad():
        tokens = adapted(input_ids=x.long(), attention_mask=mask).last_hidden_state
    features = (tokens * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    own = load_file(folder / "head.safetensors")
    torch.testing.assert_close(features @ own["weight"].T + own["bias"], learner.predict(x, 1), rtol=1e-4, atol=1e-5)


def test_an_adapter_says_what_it_is(tmp_path):
    learner, _ = learnt("transformer")
    folder = learner.export("task 3", tmp_path / "adapter")
    facts = json.loads((folder / "adapter_config.json").read_text())
    assert facts["use_rslora"]
    assert set(facts["rank_pattern"].values()) == {6}, "its own rank, and those of the two tasks it reads"
    assert facts["modules_to_save"] == ["head"]
    readme = (folder / "README.md").read_text()
    assert "Task 3 of a Fixed learner, on a Transformer" in readme
    assert "Classes, in the order of the logits: 0, 1, 2" in readme


def test_a_task_without_factors_is_an_adapter_that_adds_nothing(tmp_path):
    growth = bocl.GrowthSettings(form="low-rank")
    learner = bocl.Frozen(trained(Transformer()), pretrained=True, growth=growth, recipe=RECIPE, device="cpu")
    learner.learn(stream(1, (12,))[0])
    folder = learner.export(0, tmp_path / "adapter")
    assert load_file(folder / "adapter_model.safetensors").keys() == {
        "base_model.model.head.weight", "base_model.model.head.bias",
    }  # fmt: skip


def test_what_cannot_be_exported_is_refused(tmp_path):
    learner, _ = learnt("mobile", tasks=1)
    with pytest.raises(InputError, match="to is 'pft' \\(did you mean 'peft'"):
        learner.export(0, tmp_path / "a", to="pft")
    with pytest.raises(InputError, match="no task 'nine'"):
        learner.export("nine", tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(FolderError, match="is not an empty folder"):
        learner.export(0, tmp_path / "full")
    series, _ = learnt("series", tasks=1)
    with pytest.raises(InputError, match=r"'body\.3' has dilation \(2,\), which PEFT leaves out; export it as merged"):
        series.export(0, tmp_path / "a")
    units = bocl.Frozen(trained(Mobile()), pretrained=True, recipe=RECIPE, device="cpu")
    units.learn(stream(1)[0])
    with pytest.raises(InputError, match="frozen did not grow by low-rank factors"):
        units.export(0, tmp_path / "a")
    assert not (tmp_path / "a").exists()
