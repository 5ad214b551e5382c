"""Rivals on pretrained networks: what is chosen, counted and told of them."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from bocl.experiment.config import load_config
from bocl.experiment.study import load_study
from replication.pretrained import adalora, choose, tables
from replication.tables import filled

STUDIES = [tables.HERE / f"{name}.toml" for name in ("images", "texts")]


def test_the_tables_of_the_page_are_what_the_records_say():
    text = tables.PAGE.read_text(encoding="utf-8")
    assert filled(text, tables.TABLES) == text, "run `python -m replication.pretrained.tables --write`"


def test_every_record_is_a_run_of_the_studies():
    studies = [load_study(str(path)) for path in STUDIES]
    defined = {(study.on[0], entry.title, seed) for study in studies for entry in study.run for seed in study.seeds}
    found = {
        (stream, system, seed)
        for stream, systems in tables.all_runs().items()
        for system, seeds in systems.items()
        if system != "adalora"
        for seed in seeds
    }
    assert found
    assert found <= defined


def test_studies_take_the_learning_rates_that_validation_samples_chose():
    scores = json.loads(choose.PLACE.read_text(encoding="utf-8"))
    for path in STUDIES:
        study = load_study(str(path))
        chosen = {name: float(rate) for name, rate in choose.best(scores[study.on[0]]).items()}
        rates = {entry.title: load_config(study.on[0], entry.set).recipe.learning_rate for entry in study.run}
        assert (rates["head"], rates["whole"]) == (chosen["head"], chosen["whole"])
        assert {rates[name] for name in rates.keys() - {"head", "whole"}} == {chosen["factors"]}


def test_the_best_rate_of_each_system_is_chosen():
    scores = {"head-1e-3": 0.5, "head-1e-2": 0.6, "whole-1e-4": 0.9, "whole-3e-4": 0.8}
    assert choose.best(scores) == {"head": "1e-2", "whole": "1e-4"}


def _runs(**systems: tuple[float, float]):
    return {name: {0: tables.Run(accuracy, added, 1.0, 1.0)} for name, (added, accuracy) in systems.items()}


def test_fixed_ranks_are_compared_at_the_size_of_the_search(monkeypatch):
    known = _runs(**{"head": (10, 0.5), "rank-1": (20, 0.7), "rank-4": (60, 0.9), "rank-16": (200, 0.8)})
    monkeypatch.setattr(tables, "all_runs", lambda: {"s": known})
    assert tables.fixed_ranks_at("s", 40) == pytest.approx(0.8), "half way between two"
    assert tables.fixed_ranks_at("s", 100) == pytest.approx(0.9), "a smaller one is better than the line"
    assert tables.fixed_ranks_at("s", 5) is None


def test_an_aim_is_open_until_every_seed_is_there(monkeypatch):
    monkeypatch.setattr(
        tables, "all_runs", lambda: {"text-sections": _runs(bocl=(1, 1.0), head=(1, 0.5), whole=(1, 1.0))}
    )
    assert tables.verdicts("text-sections")[0].startswith(
        "- **open**: there are not 4 runs yet of `bocl`, `head`, `whole`"
    )


@pytest.mark.extras("peft")
def test_what_adalora_stores_is_counted_as_its_ranks_are_in_the_end():
    from peft import AdaLoraConfig, get_peft_model

    model = adalora._WithHead(nn.Sequential(nn.Linear(6, 5)), 5, 3)
    config = AdaLoraConfig(
        target_modules=r"encoder\.0", modules_to_save=["head"], init_r=4, target_r=2, total_step=10, tinit=1, tfinal=1
    )
    adapted = get_peft_model(model, config)
    with torch.no_grad():
        values = next(part for name, part in adapted.named_parameters() if "lora_E" in name)
        values.copy_(torch.tensor([[1.0], [0.0], [2.0], [0.0]]))
    assert adalora._stored(adapted) == 2 * (6 + 5 + 1) + 3 * 5 + 3
    assert adalora._orthogonality(adapted).ndim == 0
