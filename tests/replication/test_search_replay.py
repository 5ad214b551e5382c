"""Replay: tables are read as they were written, what a searcher sees is not what it is judged by, counts are right."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bocl.cli.main import main
from bocl.errors import ConfigError, DataError, InputError
from bocl.networks.compact import CompactNetwork
from bocl.records.record import Trial
from bocl.search.lattice import whole_lattice
from bocl.search.problem import Problem
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchSettings
from bocl.training.batches import DeviceSplit
from bocl.widths import Widths
from replication.search import __main__ as commands
from replication.search import growth_table
from replication.search.growth_table import make_table, spread_widths
from replication.search.optuna_search import OptunaSearch
from replication.search.replay import Ended, Replay, replay
from replication.search.simulated import BOUNDS, simulated_stream
from replication.search.standings import compare, contestants, streams_of
from replication.search.trial_table import TaskTable, TrialTable, read_table, replay_tasks, write_table


def small_table(tasks: int = 5, seeds: int = 4) -> TrialTable:
    """Every widths of a small box; seen and judged differ by a constant, so that they can be told apart."""
    widths = tuple(map(tuple, whole_lattice((5, 3)).tolist()))

    def one(number: int) -> TaskTable:
        generator = np.random.default_rng(number)
        true = [0.6 + 0.2 * (1 - math.exp(-z[0] / 2)) for z in widths]
        seen = tuple(tuple(value + 0.1 + 0.01 * generator.normal(size=seeds)) for value in true)
        judged = tuple(tuple(value + 0.01 * generator.normal(size=seeds)) for value in true)
        return TaskTable(f"task {number}", (5, 3), (0.75, 0.25), widths, tuple(map(sum, widths)), seen, judged)

    return TrialTable(tuple(map(one, range(tasks))), {"preset": "none"})


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = small_table(2)
    write_table(table, tmp_path / "table.json")
    assert read_table(tmp_path / "table.json") == table


@pytest.mark.parametrize(
    ("text", "named"),
    [("{", "is not a table"), ("[]", "format None"), ('{"format": 2}', "format 2"), ('{"format": 1}', "tasks")],
)
def test_what_is_no_table_is_refused(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(InputError, match=named):
        read_table(path)
    with pytest.raises(DataError, match="is not a table"):
        read_table(tmp_path / "nowhere.json")


def test_a_table_with_holes_is_refused() -> None:
    with pytest.raises(DataError, match="has holes"):
        TaskTable("t", (1,), (1.0,), ((0,), (1,)), (0, 1), ((0.5,), (0.5,)), ((0.5,),))
    with pytest.raises(DataError, match="lacks widths of zero"):
        TaskTable("t", (1,), (1.0,), ((1,),), (1,), ((0.5,),), ((0.5,),))


def test_a_search_sees_one_draw_and_is_judged_by_what_widths_are_worth() -> None:
    table = small_table(1)
    (task,) = replay_tasks(table, alpha=0.04)
    z = np.array([[2, 1], [0, 0]])
    drawn = {tuple(map(tuple, task.measure(z, np.random.default_rng(seed)))) for seed in range(40)}
    row = table.tasks[0].widths.index((2, 1))
    children = set(zip(table.tasks[0].seen[row], table.tasks[0].judged[row], strict=True))
    assert {(seen[0], judged[0]) for seen, judged in drawn} == children, "both accuracies are one child's"
    np.testing.assert_allclose(task.penalty(z), [0.04 * (2 * 0.75 + 0.25), 0])
    rewards = task.truth(np.array(table.tasks[0].widths)) - task.penalty(np.array(table.tasks[0].widths))
    assert task.best_reward == rewards.max()
    assert 0 <= task.limit < task.tolerance
    true = np.array([0.6 + 0.2 * (1 - math.exp(-z[0] / 2)) for z in table.tasks[0].widths])
    left = np.std(task.truth(np.array(table.tasks[0].widths)) - true)
    assert left < 0.7 * np.std(np.array(table.tasks[0].judged).mean(1) - true), "noise is left as it was"
    assert task.tolerance == pytest.approx(0.01 / 2, rel=0.4)  # one standard error of four seeds


def test_trials_and_rounds_are_counted_to_the_first_good_choice() -> None:
    ended = Ended(2, 1, 0.01)
    done = Replay((0.05, 0.04, 0.002, 0.02), (0, 1, 1, 2), ended, tolerance=0.003)
    assert (done.trials_to_reach(), done.rounds_to_reach()) == (2, 1)
    assert done.regret_after(99) == 0.02
    never = Replay((0.05, 0.04), (0, 1), ended, tolerance=0.003)
    assert (never.trials_to_reach(), never.rounds_to_reach()) == (math.inf, math.inf)


class Scripted:
    """Asks for given rounds and commits to the last point told; notes the history it was given."""

    histories: list[int] = []  # noqa: RUF012

    def __init__(self, problem: Problem, settings: SearchSettings) -> None:
        Scripted.histories.append(len(problem.history))
        self.rounds: list[list[Widths]] = [[(1, 0), (2, 0)], [(4, 0)]]
        (self.last,) = problem.pending

    def ask(self, count: int) -> list[Widths]:
        return self.rounds.pop(0) if self.rounds else []

    def tell(self, trials: list[Trial]) -> None:
        self.last = trials[-1].widths

    def best(self) -> Widths:
        return self.last


def test_a_replay_hands_on_history_and_judges_every_choice() -> None:
    table = small_table(3)
    stream = replay_tasks(table, alpha=0.01)
    Scripted.histories.clear()
    done = replay(stream, Scripted, SearchSettings(), trials=8, seed=0)  # type: ignore[arg-type]
    assert Scripted.histories == [0, 1, 2, 2], "the last task is searched twice"
    assert done.rounds == (0, 1, 1, 2)
    task = stream[-1]
    z = np.array([(0, 0), (1, 0), (2, 0), (4, 0)])
    np.testing.assert_allclose(done.regrets, task.best_reward - (task.truth(z) - task.penalty(z)))
    kept = table.tasks[-1].judged[table.tasks[-1].widths.index((4, 0))]
    worth = [task.best_reward - (accuracy - float(task.penalty(z[-1:])[0])) for accuracy in kept]
    assert (done.ended.trials, done.ended.rounds) == (3, 2)
    assert done.ended.regret in [pytest.approx(regret) for regret in worth], "the very child that was kept"


def test_as_in_a_run_a_search_ends_by_itself_and_else_after_the_trials() -> None:
    (task,) = replay_tasks(small_table(1), alpha=0.01)
    short = SearchSettings(kind="random", trials=4, patience=2, warm_points=1)
    done = replay([task], make_searcher, short, trials=12, seed=0)
    assert len(done.regrets) == 13
    assert done.ended.trials <= 5


def test_simulated_optimum_is_the_highest_of_all_points() -> None:
    task = simulated_stream(3, tasks=2, turned=[1])[1]
    z = whole_lattice(BOUNDS[:2])
    points = np.concatenate([np.pad(z, ((0, 0), (0, 2))), np.pad(z, ((0, 0), (2, 0)))])
    rewards = task.truth(points) - task.penalty(points)
    halves = rewards[: len(z)].max() + rewards[len(z) :].max() - float(task.truth(np.zeros((1, 4)))[0])
    assert task.best_reward == pytest.approx(halves)  # groups add up


def test_measured_tasks_have_three_before_them() -> None:
    stream = streams_of(small_table(6), 0.01)
    assert [[task.name[-1] for task in stream(number)] for number in range(4)] == [
        ["0", "1", "2", "3"],
        ["1", "2", "3", "4"],
        ["2", "3", "4", "5"],
        ["0", "1", "2", "3"],
    ]
    assert len(streams_of(small_table(2), 0.01)(0)) == 2
    assert len(streams_of(None, 0.01)(0)) == 4


def test_searchers_are_compared_on_a_table() -> None:
    few = contestants(["no transfer", "random"])
    told: list[object] = []
    found = compare(streams_of(small_table(4), 0.01), few, alpha=0.01, replays=2, trials=8, tell=told.append)
    assert told == found
    assert [one.searcher for one in found] == ["no transfer", "random"]
    assert all(len(one.regret) == len(one.spread) == 9 for one in found)


def test_without_optuna_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    (theirs,) = contestants(["optuna TPE"])
    with pytest.raises(InputError, match="pip install optuna"):
        replay(simulated_stream(0, tasks=1), theirs.make, theirs.settings, trials=4, seed=0)


def test_an_unknown_searcher_is_told() -> None:
    with pytest.raises(InputError, match=r"unknown searcher 'rondom' \(did you mean 'random'"):
        contestants(["rondom"])


@pytest.mark.parametrize("sampler", ["tpe", "gp"])
def test_optuna_asks_for_candidates_alone(sampler: str) -> None:
    pytest.importorskip("optuna")
    (task,) = replay_tasks(small_table(1), alpha=0.01)
    done = replay(
        [task],
        lambda problem, settings: OptunaSearch(problem, settings, sampler),  # type: ignore[arg-type]
        SearchSettings(kind="random"),
        trials=22,
        seed=0,
    )
    assert len(done.regrets) == 23


def test_widths_of_a_table_are_spread_over_both_scales() -> None:
    points = spread_widths((30, 30), 60, seed=0)
    assert len(points) == len(set(points)) == 60
    assert {(0, 0), (30, 30)} <= set(points)
    assert 8 < np.median([width for point in points for width in point]) < 18


def test_a_table_is_made_by_training() -> None:
    told: list[TaskTable] = []
    table = make_table("digits", ["recipe.epochs=2"], tasks=1, widths=8, seeds=2, device="cpu", tell=told.append)
    assert told == [table]
    (task,) = table.tasks
    assert len(task.widths) == 8
    assert sum(task.price_shares) == pytest.approx(1)
    assert np.array(task.seen).shape == np.array(task.judged).shape == (8, 2)
    assert (np.array(task.seen) != np.array(task.judged)).any()
    assert replay([*replay_tasks(table, 0.005)], make_searcher, SearchSettings(kind="random"), trials=5, seed=0).regrets


def test_a_table_that_was_begun_goes_on_as_if_made_at_once() -> None:
    told: list[TrialTable] = []
    made = partial(make_table, "digits", ["recipe.epochs=2"], widths=8, seeds=2, device="cpu", tell=told.append)
    whole = made(tasks=2)
    begun = told[0]
    assert len(begun.tasks) == 1
    told.clear()
    assert made(tasks=2, begun=begun).tasks == whole.tasks
    assert len(told) == 1, "what was made before is not made again"
    assert made(tasks=1, begun=whole).tasks == whole.tasks
    assert len(told) == 1
    for other in ({"seeds": 3}, {"widths": 10}, {"begun": replace(begun, about={})}):
        with pytest.raises(ConfigError, match="has another preset, other data, settings, widths or seeds"):
            made(**{"tasks": 2, "begun": begun, **other})


def test_a_table_leaves_out_children_that_failed_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    real = growth_table.accuracy

    def fail(network: CompactNetwork, split: DeviceSplit) -> float:
        return math.nan if network.blocks[-1] == (16, 16) else real(network, split)

    monkeypatch.setattr(growth_table, "accuracy", fail)
    table = make_table("digits", ["recipe.epochs=2"], tasks=2, widths=8, seeds=2, device="cpu", tell=lambda _: None)
    assert [len(task.widths) for task in table.tasks] == [7, 7]


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(small_table(2), tmp_path / "table.json")
    words = ["replay", str(tmp_path / "table.json"), "--searchers", "ours,random", "--alpha", "1e-2"]
    monkeypatch.setattr(sys, "argv", ["search", *words, "--replays", "2", "--trials", "5", "--json"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        main(commands.app)
    assert not ended.value.code
    told = json.loads(capsys.readouterr().out)
    assert [one["searcher"] for one in told["standings"]] == ["ours", "random"]
    assert told["suggestion_milliseconds"] > 0
    (tmp_path / "told.json").write_text(json.dumps(told))
    monkeypatch.setattr(sys, "argv", ["search", "figure", str(tmp_path / "told.json"), "-o", str(tmp_path)])
    with pytest.raises(SystemExit):
        main(commands.app)
    assert capsys.readouterr().out == f"{tmp_path / 'regret-told-alpha-0.01.svg'}\n"
    drawn = (tmp_path / "regret-told-alpha-0.01.svg").read_text()
    for one in told["standings"]:
        assert f"{one['searcher']}, 5: {100 * one['regret'][5]:.2f} ±" in drawn
    monkeypatch.setattr(sys, "argv", ["search", *words[:-1], "1e-2,0", "--replays", "2", "--trials", "30"])
    with pytest.raises(SystemExit):
        main(commands.app)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 100
    assert [line.split(":")[0] for line in lines if line.startswith("α")] == ["α 0.01", "α 0"]
    head, *rows = lines[2:5]
    assert " ".join(head.split()) == "searcher trials rounds after 5 after 10 after 30 trials rounds kept child"
    assert [row.split()[0] for row in rows] == ["ours", "random"]
    assert len({len(line) for line in (head, *rows)}) == 1, "columns stand below their heads"
    monkeypatch.setattr(sys, "argv", ["search", *words[:-1], "x"])
    with pytest.raises(SystemExit) as ended:
        main(commands.app)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("python -m replication.search: --alpha is 'x'")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"tasks": []}, "without tasks"),
        ({"widths": [[0], [1]]}, "do not fit"),
        ({"widths": [[0, 0], [-1, 0]]}, "do not fit"),
        ({"price_shares": [1.0]}, "do not fit"),
        ({"judged": [[0.5], [55.0]]}, "does not lie in 0"),
        ({"bounds": [0, 0], "widths": [[0, 0], [0, 0]]}, "no group that can grow"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(tmp_path: Path, change: dict[str, object], named: str) -> None:
    task = {
        **{"name": "t", "bounds": [2, 2], "price_shares": [0.5, 0.5], "widths": [[0, 0], [1, 0]]},
        **{"parameters": [1, 2], "seen": [[0.5], [0.6]], "judged": [[0.5], [0.6]]},
    }
    whole = {"format": 1, "tasks": [task]}
    changed = {**whole, **change} if "tasks" in change else {**whole, "tasks": [{**task, **change}]}
    path = tmp_path / "table.json"
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match=named):
        read_table(path)
    path.write_text("[" * 100_000)
    with pytest.raises(DataError, match="is not a table"):
        read_table(path)
