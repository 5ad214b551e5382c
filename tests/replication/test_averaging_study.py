"""Averaged weights: runs that differ as they should, and tables that are what the records say."""

from __future__ import annotations

from dataclasses import replace

from bocl.experiment.study import jobs, load_study
from replication.averaging import noise, recipes, tables
from replication.tables import filled

PAIRS = load_study(str(tables.HERE / "pairs.toml"))


def test_the_tables_of_the_page_are_what_the_records_say():
    text = tables.PAGE.read_text(encoding="utf-8")
    assert filled(text, tables.tables()) == text, "run `python -m replication.averaging.tables --write`"


def test_every_pair_differs_in_nothing_but_what_is_compared():
    made = {(job.preset, job.name, job.seed): job.config for job in jobs([PAIRS], seeds=[0])}
    for (preset, name, seed), config in made.items():
        base, averaged, rest = name.partition("-average")
        if averaged:
            recipe = replace(config.recipe, average="off", augment="off")
            assert (config.recipe.average, config.recipe.augment) == ("last", rest.removeprefix("-") or "off")
            assert replace(config, recipe=recipe) == made[preset, base, seed]
        else:
            assert (preset, f"{name}-average", seed) in made


def test_the_grid_asks_all_methods_for_every_recipe_once(tmp_path):
    made = list(recipes.orders(list(recipes.WIDTHS), tmp_path, None))
    assert len({order.title for *_, order in made}) == len(made)
    for stream, (schedule, average, augment), method, order in made:
        config = order.settings()
        assert (config.stream.name, config.method, config.seed) == (stream, method, recipes.SEED)
        assert (config.recipe.schedule, config.recipe.average, config.recipe.augment) == (schedule, average, augment)
    for stream in recipes.WIDTHS:
        asked = [(recipe, method) for of, recipe, method, _ in made if of == stream]
        assert asked == [(recipe, method) for recipe in recipes.recipes_of(stream) for method in recipes.METHODS]


def test_the_noise_of_a_child_is_told_beside_what_searches_make_of_it(monkeypatch):
    monkeypatch.setattr(noise, "REPLAYS", 2)
    found = [noise.measured("digits", average) for average in noise.AVERAGES]
    assert [one["table"]["overrides"] for one in found] == [["recipe.average=off"], ["recipe.average=last"]]
    for one in found:
        assert 0.005 < one["noise"] < 0.05
        assert 0.8 < one["reward"] < 1
