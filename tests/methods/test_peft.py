"""Tasks exported as PEFT adapters and as merged weights give the logits that the learner gives."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import bocl
from bocl.errors import FolderError, InputError
from bocl.networks.library import make_network
from bocl.networks.low_rank.modules import every_part_called
from bocl.training.recipe import Recipe

sys.path.append(str(Path(__file__).parents[1] / "networks"))
from low_rank_examples import MODULES, Mobile, Transformer, samples, trained
from test_pretrained_methods import stream, text_stream

RECIPE = Recipe("adam", learning_rate=0.02, batch_size=16, epochs=2)
LOW_RANK = {"pretrained": True, "growth": bocl.GrowthSettings(form="low-rank")}
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
        folder = learner.export(task, tmp_path / str(task), to="merged").path
        classes = learner.seen[task].classes
        plain = with_outputs(
            MODULES[name][0]() if name != "text" else make_network("text-encoder", ENCODER), head, classes
        )
        plain.load_state_dict(load_file(folder / "model.safetensors"))
        x = inputs(name)
        torch.testing.assert_close(logits_of(plain, folder, x, head), learner.predict(x, task), rtol=1e-4, atol=1e-5)
    assert ("head.safetensors" in (folder / "README.md").read_text()) == (head is None)


@pytest.mark.extras("peft")
@pytest.mark.parametrize(("name", "norms"), [case for case in CASES if case[0] != "series"])
def test_an_adapter_loads_with_peft_to_the_same_logits(name, norms, tmp_path):
    from peft import PeftModel

    learner, module = learnt(name, norms)
    head = learner.graph.head
    for task in range(3):
        folder = learner.export(task, tmp_path / str(task), to="peft").path
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
    folder = learner.export(1, tmp_path / "adapter", to="peft").path
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
    folder = learner.export("task 3", tmp_path / "adapter", to="peft").path
    facts = json.loads((folder / "adapter_config.json").read_text())
    assert facts["use_rslora"]
    assert set(facts["rank_pattern"].values()) == {6}, "its own rank, and those of the two tasks it reads"
    assert facts["modules_to_save"] == ["head"]
    readme = (folder / "README.md").read_text()
    assert readme.startswith(
        "---\nbase_model: Transformer\nlibrary_name: peft\ntags:\n- bocl\n- lora\n---\n\n# task 3\n"
    )
    assert "Task 3 of a Fixed learner, on a Transformer" in readme
    assert "Classes, in the order of the logits: 0, 1, 2" in readme
    added, stored = sum(learner.network.parameters_by_task()[2].values()), learner.parameters()["base"]
    assert f"Size: {added:,} parameters of its own, next to {stored:,} of the module." in readme
    assert "Ranks: 2 in mlp lower" in readme
    assert "reads the factors of task 1, 2, which are part of these files" in readme
    merged = (learner.export("task 3", tmp_path / "merged", to="merged").path / "README.md").read_text()
    assert "peft" not in merged


def test_the_readme_says_how_samples_are_made_ready(tmp_path):
    texts, _ = learnt("text", tasks=1)
    readme = (texts.export(0, tmp_path / "text", to="peft").path / "README.md").read_text()
    assert "Samples: shape (12,), token ids, where 0 stands for no token." in readme
    learner = bocl.Frozen(trained(Mobile()), **LOW_RANK, recipe=RECIPE, device="cpu")
    images = np.random.default_rng(0).integers(0, 256, (40, 2, 8, 8), dtype=np.uint8)
    learner.learn(bocl.from_arrays([(images, np.arange(40) % 2)])[0])
    readme = (learner.export(0, tmp_path / "bytes", to="peft").path / "README.md").read_text()
    assert f"Samples: shape (2, 8, 8), scaled as (x / 255 - {list(learner.seen[0].mean)}) / " in readme


# -- what the README says is done as it says -----------------------------------------------------------


class Named(nn.Module):
    """Linear layers of any names and a head, one after another."""

    def __init__(self, head: str, *names: str, bias: bool = True, norm: str = "") -> None:
        super().__init__()
        self.order = [*names, *([norm] if norm else []), head]
        for name in self.order:
            place, _, last = name.rpartition(".")
            parent = self
            for part in filter(None, place.split(".")):
                if not hasattr(parent, part):
                    parent.add_module(part, nn.Module())
                parent = getattr(parent, part)
            layer = nn.Linear(6, 3, bias) if name == head else nn.Linear(6, 6)
            parent.add_module(last, nn.LayerNorm(6) if name == norm else layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 6) to (n, 3)."""
        for name in self.order[:-1]:
            x = self.get_submodule(name)(x).tanh()
        return self.get_submodule(self.order[-1])(x)


def adapted(module: nn.Module, shape: tuple[int, ...] = (6,), tasks: int = 2, widths=2, **growth):
    """Return a learner that has learnt tasks by factors of these ranks."""
    settings = {"growth": bocl.GrowthSettings(form="low-rank", **growth), "settings": bocl.FixedSettings(widths=widths)}
    learner = bocl.Fixed(trained(module), pretrained=True, **settings, recipe=RECIPE, device="cpu")
    for task in stream(tasks, shape):
        learner.learn(task)
    return learner


def check_as_the_readme_says(learner, module: nn.Module, folder: Path, x: torch.Tensor) -> None:
    """Load an export by the code in its README, and compare logits of task 2."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    names = {"module": copy.deepcopy(module), "x": x, "torch": torch, "safetensors": safetensors}
    if "peft" in code:
        import peft

        names["peft"] = peft
    fastpath = torch.backends.mha.get_fastpath_enabled()
    try:
        exec(code.replace("FOLDER", str(folder)), names)
    finally:
        torch.backends.mha.set_fastpath_enabled(fastpath)
    torch.testing.assert_close(names["logits"].detach(), learner.predict(x, 1), rtol=1e-4, atol=1e-5)


SIX = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", [*MODULES, "no bias", "numbered head"])
@pytest.mark.parametrize("to", ["merged", pytest.param("peft", marks=pytest.mark.extras("peft"))])
def test_an_export_loads_as_its_readme_says(name, to, tmp_path):
    if (name, to) == ("series", "peft"):
        pytest.skip("PEFT leaves dilation out")
    if name in MODULES:
        learner, module = learnt(name, tasks=2)
    else:
        numbered = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
        module = trained(Named("head", "one", bias=False) if name == "no bias" else numbered)
        learner = adapted(module, head="2" if name == "numbered head" else None)
    folder = learner.export(1, tmp_path / "export", to=to).path
    check_as_the_readme_says(learner, module, folder, inputs(name) if name in MODULES else SIX)


# -- names that PEFT takes for one another -------------------------------------------------------------


class Grouped(nn.Module):
    """A convolution whose name is the end of a grouped one's, which has no factors."""

    def __init__(self) -> None:
        super().__init__()
        self.c, self.deep, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Module(), nn.Linear(4, 3)
        self.deep.c = nn.Conv2d(4, 4, 3, groups=4, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 2, 8, 8) to (n, 3)."""
        return self.head(self.deep.c(self.c(x)).tanh().mean((2, 3)))


@pytest.mark.extras("peft")
@pytest.mark.parametrize("widths", [(1, 3), (3, 1), (2, 0), (0, 2)])
def test_layers_whose_names_end_alike_have_their_own_ranks(widths, tmp_path):
    module = trained(Named("head", "proj", "block.proj"))
    learner = adapted(module, widths=widths, reads="own", groups={"a": "^proj$", "b": "block"})
    check_as_the_readme_says(learner, module, learner.export(1, tmp_path / "adapter", to="peft").path, SIX)


@pytest.mark.extras("peft")
def test_only_layers_with_factors_are_adapted(tmp_path):
    module = trained(Grouped())
    learner = adapted(module, (2, 8, 8))
    check_as_the_readme_says(
        learner, module, learner.export(1, tmp_path / "adapter", to="peft").path, samples("mobile", 5)
    )


@pytest.mark.extras("peft")
def test_norms_whose_names_end_alike_are_all_the_tasks_own(tmp_path):
    module = trained(Named("head", "block.fc", "block.mid", norm="block.norm"))
    learner = adapted(module, norms="task")
    check_as_the_readme_says(learner, module, learner.export(1, tmp_path / "adapter", to="peft").path, SIX)


@pytest.mark.parametrize(
    ("head", "other"), [("fc", "block.fc"), ("head", "subhead"), ("head", "block.head.proj")], ids="{0}".format
)
def test_a_head_that_peft_takes_for_other_layers_is_refused(head, other, tmp_path):
    module = trained(Named(head, other, "mid"))
    learner = adapted(module)
    with pytest.raises(InputError, match=f"'{head}' is the task's own, but PEFT would take '.*{head}.*' for it"):
        learner.export(1, tmp_path / "adapter", to="peft")
    assert not (tmp_path / "adapter").exists()
    check_as_the_readme_says(learner, module, learner.export(1, tmp_path / "merged", to="merged").path, SIX)


# -- weights into which no factors can be merged -------------------------------------------------------


class Standardised(nn.Conv2d):
    """A convolution that standardises its weight before it is used."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, in, …) to (n, out, …)."""
        return F.conv2d(x, (self.weight - self.weight.mean(1, True)) / self.weight.std(1, keepdim=True), self.bias)


def _shared_layer() -> nn.Module:
    module = Named("head", "one", "two")
    module.two = module.one
    return module


def _shared_weight() -> nn.Module:
    module = Named("head", "one", "two")
    module.two.weight = module.one.weight
    return module


def _standardised() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (6, 1, 1)), Standardised(6, 6, 1), nn.Flatten(), nn.Tanh(), nn.Linear(6, 3))


def _parametrised() -> nn.Module:
    module = Named("head", "one", "two")
    weight_norm(module.one)
    return module


CANNOT_MERGE = {
    "shared layer": (_shared_layer, "Named would not give the task's features with merged weights"),
    "shared weight": (_shared_weight, "Named would not give the task's features with merged weights"),
    "standardised": (_standardised, "Sequential would not give the task's features with merged weights"),
    "weight norm": (_parametrised, "'one' makes its weight from other tensors"),
}


def _unmergeable(name: str):
    torch.manual_seed(0)
    module = trained(CANNOT_MERGE[name][0]())
    return adapted(module, head="4" if name == "standardised" else None), module


@pytest.mark.parametrize("name", CANNOT_MERGE)
def test_factors_that_no_weight_can_hold_are_not_merged(name, tmp_path):
    learner, _ = _unmergeable(name)
    with pytest.raises(InputError, match=f"{CANNOT_MERGE[name][1]}.*; export the task as peft"):
        learner.export(1, tmp_path / "merged", to="merged")
    assert not (tmp_path / "merged").exists()


def test_a_convolution_of_another_class_is_no_adapter(tmp_path):
    learner, _ = _unmergeable("standardised")
    with pytest.raises(InputError, match="PEFT makes factors of the class of '1', Standardised, which may change them"):
        learner.export(1, tmp_path / "adapter", to="peft")
    assert not (tmp_path / "adapter").exists()


@pytest.mark.extras("peft")
@pytest.mark.parametrize("name", [name for name in CANNOT_MERGE if name != "standardised"])
def test_factors_that_no_weight_can_hold_are_adapters(name, tmp_path):
    learner, module = _unmergeable(name)
    check_as_the_readme_says(learner, module, learner.export(1, tmp_path / "adapter", to="peft").path, SIX)


def test_a_task_without_factors_is_an_adapter_that_adds_nothing(tmp_path):
    learner = bocl.Frozen(trained(Transformer()), **LOW_RANK, recipe=RECIPE, device="cpu")
    learner.learn(stream(1, (12,))[0])
    folder = learner.export(0, tmp_path / "adapter", to="peft").path
    assert load_file(folder / "adapter_model.safetensors").keys() == {
        "base_model.model.head.weight", "base_model.model.head.bias",
    }  # fmt: skip


def test_what_cannot_be_exported_is_refused(tmp_path):
    learner, _ = learnt("mobile", tasks=1)
    with pytest.raises(InputError, match="cannot be exported as 'pft' \\(did you mean 'peft'"):
        learner.export(0, tmp_path / "a", to="pft")
    with pytest.raises(InputError, match="no task 'nine'"):
        learner.export("nine", tmp_path / "a", to="peft")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    with pytest.raises(FolderError, match="is not an empty folder"):
        learner.export(0, tmp_path / "full", to="peft")
    series, _ = learnt("series", tasks=1)
    with pytest.raises(
        InputError, match=r"'body\.3' has dilation \(2,\), which PEFT leaves out; export the task as merged"
    ):
        series.export(0, tmp_path / "a", to="peft")
    units = bocl.Frozen(trained(Mobile()), pretrained=True, recipe=RECIPE, device="cpu")
    units.learn(stream(1)[0])
    with pytest.raises(InputError, match="frozen did not grow by low-rank factors"):
        units.export(0, tmp_path / "a", to="peft")
    assert not (tmp_path / "a").exists()
