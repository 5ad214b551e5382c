"""The command line as a user meets it: what it prints, where, and how it exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from bocl.cli.tables import results_table
from bocl.method_table import METHODS

SMALL = [
    *("--set", "stream.tasks=2"),
    *("--set", "network.arguments={inputs=64, hidden=[6, 5]}"),
    *("--set", "recipe.epochs=1"),
    *("--set", "search.trials=2"),
    *("--set", "search.bounds=3"),
]


def test_a_run_tells_its_course_and_ends_with_the_closing_table(bocl, tmp_path):
    code, out, err = bocl("run", *SMALL)
    assert code == 0
    for words in (
        "learnt",
        "now",
        "units added to fc1, fc2",
        "average accuracy (ACC)",
        "backward transfer (BWT)",
        "0 points",
    ):
        assert words in out
    lines = err.splitlines()
    assert "bocl on permuted-digits, seed 0 → runs/digits/bocl-seed0" in lines[0]
    assert any(line.startswith("task 2/2  trial 1/5  (") for line in lines)
    (closed,) = [line for line in lines if line.startswith("task 2/2  permutation 2")]
    zero, *told = [line.split()[3] for line in lines if line.startswith("task 2/2  trial ")]
    assert zero == "0/5"
    assert f"parameters  {len(told)} trials" in closed, "z = 0 was not asked for by the search: it is no trial of it"
    assert told[-1].split("/")[0] == str(len(told))
    assert [row.split()[-3] for row in out.splitlines() if "permutation 2" in row] == [str(len(told))]
    again = bocl("run", *SMALL)
    assert again[1] == out, "a finished run shows its results again"
    assert bocl("show", "runs/digits")[1] == out
    code, trials, _ = bocl("show", "runs/digits", "--task", 2)
    assert trials.count("kept") == 1
    assert "difficulty M" not in trials
    assert bocl("run", *SMALL, "--set", "search.kind=paper", "--out", "paper")[0] == 0
    assert "difficulty M" in bocl("show", "paper", "--task", 2)[1], "which only the paper's search asks for"


def test_one_of_a_kind_is_told_in_the_singular(bocl):
    one = ("--set", "search.trials=1", "--set", "search.warm_points=0", "--set", "search.kind=random")
    _, _, err = bocl("run", *SMALL, *one)
    assert "  1 trial  " in err
    _, front, _ = bocl("pareto", "runs/digits")
    assert "of 2 children, which no other beats" in front
    assert bocl("trials", "runs/digits")[1] == "2 children of 1 task written to prior_trials.json\n"
    _, valid, _ = bocl("validate", "digits", "--set", "stream.tasks=1")
    assert "bocl on 1 task of permuted-digits" in valid
    _, _, err = bocl("run", *SMALL, "--total-budget", 100, "--out", "b")
    assert "and 1 more task without growing" in err


def test_json_is_all_there_is_on_standard_output(bocl):
    code, out, _ = bocl("run", *SMALL, "--methods", "sn,independent", "--seeds", "0,1", "--out", "there", "--json")
    runs = json.loads(out)
    assert code == 0
    assert [(run["method"], run["seed"]) for run in runs] == [
        ("sn", 0),
        ("sn", 1),
        ("independent", 0),
        ("independent", 1),
    ]
    for run in runs:
        assert run["finished"]
        assert set(run["figures"]) == {
            "accuracy",
            "backward_transfer",
            "forgetting",
            "first_task_forgetting",
            "parameters",
            "extra_numbers",
            "task_named",
            "accuracy_without_task",
            "attention",
            "samples",
            "seconds",
        }
        assert [len(task["row"]) for task in run["tasks"]] == [1, 2]
    assert json.loads(bocl("show", "there", "--json")[1]) == sorted(runs, key=lambda run: run["folder"])


def fail_for(method, monkeypatch):
    """Let every run of a method fail, as a training that diverges does; the others run."""
    import bocl.experiment.grid as grid

    run = grid.run

    def failing(config, folder, **options):
        if config.method == method:
            config = replace(config, recipe=replace(config.recipe, learning_rate=1e30))
        return run(config, folder, **options)

    monkeypatch.setattr(grid, "run", failing)


def test_a_failed_run_does_not_stop_the_others(bocl, monkeypatch):
    fail_for("sn", monkeypatch)
    code, out, err = bocl("run", *SMALL, "--methods", "fixed,sn,frozen", "--seeds", "0,1")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines() if line][2:4] == ["fixed", "frozen"]
    assert "not finished, left out: runs/digits/sn-seed0 (0 of 2 tasks)" in out
    assert "run 3/6  sn, seed 0  failed: task 'permutation 1': the loss was not finite" in err
    last = err.splitlines()[-3:]
    assert last[0] == "bocl: 2 of 6 runs failed:"
    assert last[1].startswith("  runs/digits/sn-seed0: task 'permutation 1': the loss was not finite")
    assert last[2].startswith("  runs/digits/sn-seed1: ")


def test_a_failed_run_is_told_in_json(bocl, monkeypatch):
    fail_for("sn", monkeypatch)
    code, out, _ = bocl("run", *SMALL, "--methods", "fixed,sn", "--json")
    fixed, sn = json.loads(out)
    assert code == 1
    assert (fixed["finished"], "error" in fixed) == (True, False)
    assert (sn["finished"], sn["tasks"], sn["figures"]) == (False, [], None)
    assert "the loss was not finite" in sn["error"]


def test_a_grid_says_which_run_of_how_many(bocl):
    words = ("run", *SMALL, "--methods", "sn,frozen")
    _, out, err = bocl(*words)
    lines = err.splitlines()
    assert lines[0] == "run 1/2  sn, seed 0 → runs/digits/sn-seed0"
    assert any(line.startswith("run 1/2  sn, seed 0  ACC ") and "parameters" in line for line in lines)
    assert any(line.startswith("run 2/2  frozen, seed 0  ACC ") for line in lines)
    _, again, err = bocl(*words)
    assert again == out
    assert err.splitlines() == ["run 1/2  sn, seed 0  finished before", "run 2/2  frozen, seed 0  finished before"]


def test_runs_of_other_settings_are_not_averaged(bocl):
    for epochs in (1, 2):
        bocl("run", *SMALL, "--methods", "sn,frozen", "--set", f"recipe.epochs={epochs}", "--out", f"e{epochs}")
    rows = [line.split() for line in bocl("show", "e1", "e2")[1].splitlines() if line]
    assert [row[:2] for row in rows[2:6]] == [[f"e{e}/{m}", "1"] for e in (1, 2) for m in ("frozen", "sn")]


@pytest.mark.parametrize("width", [80, 130])
def test_a_comparison_fits_a_terminal(bocl, width):
    from io import StringIO

    from rich.console import Console

    from bocl.cli.comparison import print_comparison
    from bocl.records.summary import summarise_all

    bocl("run", *SMALL, "--methods", "sn,independent,gem", "--seeds", "0,1", "--set", "gem.memories=3")
    text = StringIO()
    print_comparison(Console(file=text, width=width), summarise_all(["runs/digits"]))
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in text.getvalue()
    assert ("attention" in text.getvalue()) == (width == 130)
    head = lines[1].split() + lines[2].split()
    for column in ("method", "seeds", "ACC", "BWT", "forgot", "task", "parameters", "extra", "samples", "time"):
        assert column in head
    assert "extra: numbers kept besides the parameters" in text.getvalue()


def test_a_comparison_without_memories_has_no_column_for_them(bocl):
    assert "extra" not in bocl("run", *SMALL, "--methods", "sn,frozen")[1]


def test_a_run_shows_what_the_steps_of_its_method_were_about(bocl):
    _, out, _ = bocl("run", *SMALL, "--methods", "den", "--set", "den.drift=0")
    head = out.splitlines()[1].split()
    assert head == ["task", "added", "copied", "pruned", "selected", "learnt", "now", "parameters", "trials", "time"]
    assert "units added, copied, pruned, selected in fc1, fc2" in out
    assert "kept beside them" not in out
    (line,) = (line for line in bocl("run", *SMALL, "--methods", "ewc")[1].splitlines() if "kept beside" in line)
    assert line.split()[-2:] == ["850", "numbers"]  # two for each of 64·6 + 6 + 6·5 + 5 shared parameters


def test_several_runs_end_with_a_comparison(bocl):
    code, out, _ = bocl("run", *SMALL, "--methods", "sn,fixed", "--seeds", "0,1")
    rows = [line.split() for line in out.splitlines() if line]
    assert code == 0
    assert [row[0] for row in rows[:4]] == ["forgot", "method", "sn", "fixed"]  # forgot task 1, in two lines
    assert rows[2][1] == rows[3][1] == "2"
    assert "±" in rows[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "digit"], "unknown preset 'digit' (did you mean 'digits'?)"),
        (["run", "missing.toml"], "missing.toml: there is no such file"),
        (["run", "--set", "recipe.epoch=1"], "recipe.epoch: unknown key (did you mean 'epochs'?)"),
        (["run", "--methods", "boc"], "unknown method 'boc' (did you mean 'bocl'?)"),
        (["run", "--seeds", "x"], "'x' is not a whole number"),
        (["run", "--device", "gpu"], "unknown device 'gpu'"),
        (["run", "--set", "network=nowhere:net"], "cannot import 'nowhere'"),
        (["run", "--set", "network=lenet"], "cannot take samples of shape (1, 8, 8)"),
        (["run", "--data", "nowhere"], "data is 'nowhere', which is not a folder"),
        (["run", ""], "unknown preset ''"),
        (
            ["run", "--set", "network={build='resnet', arguments={widths=[]}}"],
            "resnet.widths is []; it must be a list of 1 to 1000",
        ),
        (["run", "--set", "network=sys:exit"], "network: sys:exit() failed: SystemExit"),
        (["run", "--seeds", "0,00"], "names a seed twice"),
        (["run", "--out", "x" * 300], "cannot be used"),
        (["show", "x" * 300], "there is no such folder"),
        (["audit", "x" * 300], "there is no such folder"),
        (["run", "--data", "x" * 300], "which is not a folder"),
        (["run", "--data", "~nobody-of-that-name"], "which is not a folder"),
        (["run", "two\nlines"], r"unknown preset 'two\nlines'"),
        (["run", "--seeds", "9" * 5000], "is not a whole number from 0 to 9223372036854775807"),
        (["run", "--seeds", str(2**63)], "seed is 9223372036854775808; it must be at most 9223372036854775807"),
        (["run", "--device", "cuda:" + "9" * 5000], "unknown device"),
        (["run", "--sed", "3"], "No such option: --sed"),
        (["run", "--at-once", "x"], "--at-once"),
        (["show"], "Missing argument 'RUN...'"),
        (["shwo"], "No such command 'shwo'"),
        (
            ["validate", "digits", "--set", "network.arguments.inputs=10000000000"],
            "takes 1,920 GB, and this machine has",
        ),
        (["validate", "digits", "--set", "network.arguments.hidden=[0]"], "mlp.hidden[0] is 0; it must be at least 1"),
        (
            ["validate", "digits", "--set", "network={build='resnet', arguments={blocks=1000000000}}"],
            "resnet.blocks is 1000",
        ),
        (["validate", "digits", "--set", "network.arguments.inputs=63"], "cannot take samples of shape (1, 8, 8)"),
        (["show", "nothing"], "nothing: there is no such folder"),
        (["show", "."], "holds no runs"),
        (["validate", "digits", "--set", "search.kind=bo"], "unknown value 'bo'"),
    ],
)
def test_a_mistake_is_one_clear_line_and_exit_code_2(bocl, tmp_path, words, message):
    code, out, err = bocl(*words)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.startswith("bocl: ")
    assert len(err.splitlines()) == 1
    assert not list(tmp_path.rglob("*.jsonl")), "a refused run leaves no journal"


def test_cuda_asked_for_and_absent_is_refused(bocl, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    code, _, err = bocl("run", "--device", "cuda")
    assert (code, "PyTorch sees 0 GPUs; use --device cpu" in err) == (2, True)


def test_no_data_and_no_network_says_where_it_looked(bocl, monkeypatch, tmp_path):
    from bocl.tasks import mnist

    monkeypatch.delenv("BOCL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    offline = dict.fromkeys(("MIRRORS",), ("http://127.0.0.1:9/",))
    for name, value in offline.items():
        monkeypatch.setattr(mnist, name, value)
    code, _, err = bocl("run", "mnist-small")
    assert code == 2
    assert str(tmp_path / "cache") in err
    assert "BOCL_DATA" in err
    assert not (tmp_path / "runs").exists()


def test_another_config_in_the_same_folder_is_refused(bocl):
    assert bocl("run", *SMALL)[0] == 0
    code, _, err = bocl("run", *SMALL, "--set", "recipe.batch_size=16")
    assert code == 2
    assert "recipe.batch_size: 32 there, 16 here" in err


def test_list_and_validate_speak_json_too(bocl):
    names = json.loads(bocl("list", "--json")[1])
    assert {"presets", "streams", "networks", "weights", "methods", "searchers"} == set(names)
    assert all(line for entries in names.values() for line in entries.values())
    assert "permuted-mnist" in bocl("list")[1]
    assert json.loads(bocl("validate", "digits", "--json")[1])["method"] == "bocl"
    assert "hidden groups fc1 48, fc2 24" in bocl("validate", "digits")[1]


def test_validate_tries_every_method_it_is_given(bocl):
    assert "digits is valid: sn, den on 5 tasks" in bocl("validate", "digits", "--methods", "sn,den")[1]
    found = json.loads(bocl("validate", "digits", "--methods", "all", "--json")[1])
    assert [config["method"] for config in found] == list(METHODS)
    code, _, err = bocl("validate", "digits", "--methods", "sn,den", "--set", "den.expansion=[1]")
    assert (code, err.count("\n")) == (2, 1)
    assert "den.expansion has 1 entry (1,)" in err
    residual = ("--set", "network={build='resnet', arguments={channels=1, widths=[4], blocks=1}}")
    code, out, err = bocl("validate", "digits", "--methods", "all", *residual)
    assert code == 0
    assert "bocl: den is left out: 'add" in err
    assert "den" not in out.splitlines()[0].split(": ")[1].split(" on ")[0].split(", ")
    assert bocl("validate", "digits", "--methods", "den", *residual)[0] == 2


def test_the_module_runs_and_a_bare_call_explains_itself():
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    bare = subprocess.run([sys.executable, "-m", "bocl"], capture_output=True, text=True, env=environment, check=False)
    assert bare.returncode == 2
    assert "Commands:" in bare.stdout + bare.stderr
    version = subprocess.run([sys.executable, "-m", "bocl", "--version"], capture_output=True, text=True, check=False)
    assert (version.returncode, version.stdout.split()[0]) == (0, "bocl")


@pytest.mark.parametrize(("number", "wanted"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_to_stop_says_how_to_go_on(bocl, monkeypatch, number, wanted):
    from bocl.experiment.store import RunStore

    keep_round = RunStore.keep_round
    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "keep_round", lambda *words: (keep_round(*words), signal.raise_signal(number)))
        code, _, err = bocl("run", *SMALL)
    assert code == wanted
    assert err.splitlines()[-1] == "bocl: stopped; run the same command again to resume after the last finished round"
    code, _, err = bocl("run", *SMALL)
    assert code == 0
    assert "task 1/2  1 round recalled, not trained again" in err


def test_a_full_disk_is_one_line_and_exit_code_1(bocl, monkeypatch):
    def full(_descriptor, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    code, _, err = bocl("run", *SMALL)
    assert code == 1
    assert "No space left on device; free space on the disk, then run the same command again" in err.splitlines()[-1]


def test_a_torn_record_is_told_in_one_line_and_cut_when_the_run_goes_on(bocl, tmp_path):
    _, out, _ = bocl("run", *SMALL, "--methods", "sn")
    path = tmp_path / "runs/digits/sn-seed0/journal.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:30])
    line = (
        "bocl: runs/digits/sn-seed0/journal.jsonl: its last record is unfinished; 30 bytes of it left out here, "
        "and cut off when it is run again\n"
    )
    assert bocl("show", "runs/digits") == (0, out, line)
    code, _, err = bocl("audit", "runs/digits")
    assert (code, err) == (0, line)
    assert bocl("run", *SMALL, "--methods", "sn")[:2] == (0, out)
    assert path.read_bytes() == whole
    assert bocl("show", "runs/digits") == (0, out, "")


class TestAudit:
    def test_a_sound_run_is_a_table_and_exit_code_0(self, bocl):
        bocl("run", *SMALL, "--methods", "bocl,sn")
        code, out, err = bocl("audit", "runs/digits")
        assert (code, err) == (0, "")
        assert out.count("the same bits") == 3
        assert "this method changes earlier tasks" in out
        assert out.count("journal head ") == 2
        found = json.loads(bocl("audit", "runs/digits", "--json", "--no-accuracy")[1])
        assert [(run["drift"], len(run["head"]), run["tasks"][1]["accuracy"]) for run in found] == [
            (None, 64, None)
        ] * 2

    def test_a_drift_is_one_line_and_exit_code_1_and_other_runs_are_audited(self, bocl, tmp_path):
        bocl("run", *SMALL, "--methods", "bocl,sn")
        path = next((tmp_path / "runs/digits/bocl-seed0/checkpoints").glob("*/weights-*"))
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        code, out, err = bocl("audit", "runs/digits")
        assert code == 1
        assert len(err.splitlines()) == 1
        assert path.name in err
        assert "sn-seed0: as recorded" in out
        found = json.loads(bocl("audit", "runs/digits", "--json")[1])
        assert [bool(run["drift"]) for run in found] == [True, False]

    def test_what_is_no_run_is_exit_code_2(self, bocl, tmp_path):
        assert bocl("audit", "nowhere")[0] == 2
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "journal.jsonl").write_text('{"check":"0123456789abcdef","record":{}}\n')
        code, _, err = bocl("audit", "old")
        assert (code, "has format 1" in err) == (2, True)

    def test_a_run_that_forgets_stops_with_exit_code_1_unless_told_not_to_look(self, bocl, monkeypatch):
        from bocl.methods.bocl import BOCL

        learn = BOCL.learn

        def learn_and_forget(self, task, callback, **options):
            for growth in self.network.growths:
                growth.tensors["head/bias"][0] += 1
            return learn(self, task, callback, **options)

        monkeypatch.setattr(BOCL, "learn", learn_and_forget)
        code, _, err = bocl("run", *SMALL)
        assert (code, "tensor head/bias is not the one recorded" in err.splitlines()[-1]) == (1, True)
        assert bocl("run", *SMALL, "--no-audit")[0] == 0
        assert bocl("audit", "runs/digits")[0] == 0, "what is on disk of earlier tasks is not written again"


def test_names_with_brackets_are_shown_as_they_are(bocl):
    code, out, err = bocl("run", *SMALL, "--methods", "sn", "--out", "a[red]b[/x]")
    assert code == 0
    assert "a[red]b[/x]/sn-seed0" in err
    assert "a[red]b[/x]/sn-seed0" in out


def test_a_training_that_diverges_fails_with_exit_code_1(bocl):
    code, _, err = bocl("run", *SMALL, "--methods", "sn", "--set", "recipe.learning_rate=1e30")
    assert code == 1
    assert "the loss was not finite" in err.splitlines()[-1]


def test_budget_and_target_are_short_for_settings(bocl, tmp_path):
    code, _, err = bocl("run", *SMALL, "--budget", 100)
    assert code == 2
    assert err.startswith("bocl: goal.budget is 100, but a task of 10 classes takes")
    assert not (tmp_path / "runs").exists()
    least = int(err.split("give at least ")[1].replace(",", ""))
    code, out, _ = bocl("run", *SMALL, "--budget", least + 60, "--total-budget", 10_000, "--alpha", 0, "--json")
    assert code == 0
    (task,) = json.loads(out)[0]["tasks"][1:]
    assert max(trial["parameters"] for trial in task["trials"]) <= least + 60
    assert all(trial["reward"] == trial["accuracy"] for trial in task["trials"])
    code, out, _ = bocl("run", *SMALL, "--target", 0.01, "--out", "target", "--json")
    assert json.loads(out)[0]["tasks"][1]["widths"] == [0, 0], "nothing is enough"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--budget", "many"), 'goal.budget: expected an integer, found the string "many"'),
        (("--total-budget", "-3"), "goal.total_budget is -3; it must be at least 1"),
        (("--target", "97"), "goal.target is 97; it must be at most 1"),
        (("--alpha", "-1"), "reward.alpha is -1; it must be"),
        (("--alpha", "0.01", "--target", "0.9"), "--alpha and --target are different ways to say what is wanted"),
        (
            ("--target", "0.9", "--tolerance", "0.1"),
            "--target and --tolerance are different ways to say what is wanted",
        ),
        (("--tolerance", "2"), "goal.tolerance is 2; it must be at most 1"),
        (("--tolerance", "little"), 'goal.tolerance: expected a finite number, found the string "little"'),
    ],
)
def test_a_wrong_goal_is_one_line(bocl, words, message):
    code, _, err = bocl("run", *SMALL, *words)
    assert code == 2
    assert err.count("\n") == 1
    assert message in err


def test_the_front_of_a_task_is_shown_and_another_of_it_picked(bocl):
    bocl("run", *SMALL, "--alpha", 0)
    code, out, _ = bocl("pareto", "runs/digits", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["task"] == 2
    assert found["front"][0]["widths"] == [0, 0]
    assert found["kept"] == found["chosen"] == found["front"][-1]["widths"]
    code, out, _ = bocl("pareto", "runs/digits", "--task", 2, "--alpha", 50)
    assert code == 0
    assert "by alpha 50.0" in next(line for line in out.splitlines() if "  0, 0  " in line)
    code, out, err = bocl("pick", "runs/digits", "--alpha", 50)
    assert (code, err) == (0, "")
    assert out.startswith("task 2, permutation 2: (0, 0) in place of")
    assert "test" not in out, "nobody is to pick by it"
    assert "nothing was changed" in bocl("pick", "runs/digits", "--alpha", 50)[1]
    assert json.loads(bocl("pareto", "runs/digits", "--json")[1])["kept"] == [0, 0]
    assert bocl("audit", "runs/digits")[0] == 0
    for words, message in [
        (("pick", "runs/digits"), "give --widths, or what to choose by"),
        (("pick", "runs/digits", "--widths", "0,0", "--alpha", 1), "give --widths, or what to choose by"),
        (("pick", "runs/digits", "--widths", "0;0"), "--widths 0;0: give whole numbers"),
        (("pick", "runs/digits", "--task", 1, "--alpha", 0), "the last finished one, 2, can"),
        (("pareto", "runs/digits", "--task", 1), "was learnt by bocl without a search"),
        (("pareto", "runs/digits", "--task", 3), "has finished tasks 1 to 2"),
        (("pareto", "runs/digits", "--alpha", 1, "--target", 0.5), "give one of them"),
        (("pareto", "nowhere"), "there is no such folder"),
    ]:
        code, _, err = bocl(*words)
        assert (code, err.count("\n")) == (2, 1), err
        assert message in err


TWINS = [  # children of the same widths, one of which is a network of its own
    *("--set", "stream.tasks=2"),
    *("--set", "network.arguments={inputs=64, hidden=[1]}"),
    *("--set", "recipe.epochs=1"),
    *("--set", "search.bounds=1"),
    *("--set", "growth.reads=choose"),
]


def test_of_two_children_with_the_same_widths_the_one_that_reads_so_is_picked(bocl):
    assert bocl("run", *TWINS)[0] == 0
    shown = bocl("show", "runs/digits", "--task", 2)[1]
    assert "reads" in shown
    assert shown.count("kept\n") == shown.count("kept ") - 1 == 0, "one of the two"
    code, _, err = bocl("pick", "runs/digits", "--widths", "1")
    assert code == 2
    assert "2 children have the widths (1,) and read different tasks; say --reads own or --reads first" in err
    for reads, said in (("own", "own network"), ("first", "reads first"), ("own", "own network")):
        code, out, _ = bocl("pick", "runs/digits", "--widths", "1", "--reads", reads)
        assert code == 0
        assert f"(1, {said})" in out
        (task,) = [task for task in json.loads(bocl("show", "runs/digits", "--json")[1])[0]["tasks"] if task["index"]]
        assert task["reads"] == ([] if reads == "own" else [0])
    assert "nothing was changed" in bocl("pick", "runs/digits", "--widths", "1", "--reads", "own")[1]
    assert bocl("audit", "runs/digits")[0] == 0
    for words, message in [
        (
            ("--widths", "1", "--reads", "alone"),
            "--reads alone: no child reads so (known: first, near, all, own, base)",
        ),
        (("--widths", "1", "--reads", "near"), "no child with widths (1,) that reads near was trained for task 2"),
        (("--tolerance", 0.1, "--reads", "own"), "--reads own tells apart children of the same widths: give --widths"),
    ]:
        code, _, err = bocl("pick", "runs/digits", *words)
        assert (code, err.count("\n")) == (2, 1), err
        assert message in err


def test_a_tolerance_takes_the_place_of_a_presets_price(bocl):
    code, _, err = bocl("run", *SMALL, "--tolerance", 0.2, "--methods", "bocl,rcl")
    assert code == 0
    assert "rcl takes a price, not a tolerance" in err
    with open("runs/digits/bocl-seed0/journal.jsonl") as journal:
        config = json.loads(journal.readline())["record"]["config"]
    assert config["reward"]["alpha"] is config["goal"]["target"] is None
    assert config["goal"]["tolerance"] == 0.2
    code, out, _ = bocl("pareto", "runs/digits/bocl-seed0", "--tolerance", 1)
    assert "by tolerance 1.0" in next(line for line in out.splitlines() if "  0, 0  " in line)


def test_a_run_without_an_end_is_begun_with_a_tolerance(bocl):
    with open("spring.csv", "w") as file:
        file.write("a,label\n" + "".join(f"{number % 2 + number / 100},{number % 2}\n" for number in range(60)))
    words = ("learn", "run", "spring.csv", "--set", "recipe.epochs=20", "--tolerance")
    assert bocl(*words, 0.1)[0] == 0
    assert bocl(*words, 0.1, "--name", "summer", "--set", "search.trials=5")[0] == 0
    code, _, err = bocl(*words, 0.2, "--name", "autumn")
    assert code == 2
    assert err == "bocl: run was begun with other settings than goal.tolerance=0.2; leave them out\n"


def test_what_stopped_children_and_growth_is_shown(bocl):
    quick = ("--set", "recipe.epochs=8", "--set", "search.halving=true", "--tolerance", "0.01")
    code, out, err = bocl("run", *SMALL, *quick)
    assert code == 0
    assert "stopped at 25 % of the epochs" in err
    assert "growth stopped by the " in err
    assert "growth stopped by: " in out
    trials = bocl("show", "runs/digits", "--task", 2)[1]
    assert "stopped at 25 %" in trials
    assert max(map(len, trials.splitlines())) <= 80
    assert "failed" not in trials + err


@pytest.mark.filterwarnings("always::bocl.errors.GoalWarning")
def test_a_target_that_is_missed_is_told_in_one_line(bocl):
    code, _, err = bocl("run", *SMALL, "--target", 0.999)
    assert code == 0
    told = [line for line in err.splitlines() if line.startswith("bocl: task 'permutation 2': no network reached")]
    assert len(told) == 1


def test_a_front_fits_80_columns(bocl):
    bocl("run", *SMALL)
    _, out, _ = bocl("pareto", "runs/digits", "--alpha", 0.123456)
    assert max(map(len, out.splitlines())) <= 80


def test_two_runs_are_too_many_to_pick_from(bocl):
    bocl("run", *SMALL, "--methods", "frozen", "--seeds", "0,1")
    for command in ("pick", "pareto"):
        code, _, err = bocl(command, "runs/digits", "--alpha", 0)
        assert code == 2
        assert "holds 2 runs; give one of them, such as runs/digits/frozen-seed0" in err


def test_goals_of_methods_that_do_not_search_are_told(bocl, tmp_path):
    words = ["--methods", "bocl,sn", "--budget", "5000", "--set", "recipe.epochs=1", "--out", str(tmp_path / "runs")]
    code, _, err = bocl("run", "digits", *SMALL, *words)
    assert code == 0
    assert err.count("does not search") == 1
    assert "sn does not search" in err


def test_validate_finds_budgets_that_cannot_be_kept(bocl):
    code, _, err = bocl("validate", "digits", "--methods", "all", "--set", "goal.budget=10")
    assert code == 2
    assert "at least" in err


def test_prior_trials_are_of_one_network_and_for_it_only(bocl, tmp_path):
    bocl("run", *SMALL, "--out", "runs/a")
    bocl("run", *SMALL, "--set", "network.arguments={inputs=64, hidden=[6]}", "--out", "runs/b")
    bocl("run", *SMALL, "--methods", "sn", "--out", "runs/c")
    code, _, err = bocl("trials", "runs")
    assert (code, err.count("\n")) == (2, 1)
    assert "a/bocl-seed0 has the hidden groups fc1, fc2, runs/b/bocl-seed0 has the hidden groups fc1: no run can" in err
    code, _, err = bocl("trials", "runs/c")
    assert (code, err) == (2, "bocl: no task of runs/c/sn-seed0 was searched: there are no trials\n")
    assert bocl("trials", "runs/b")[0] == 0
    code, _, err = bocl("run", *SMALL, "--set", "prior_trials=prior_trials.json", "--out", "runs/d")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(
        "bocl: prior_trials prior_trials.json comes from a network with the hidden groups fc1; this one has fc1, fc2;"
    )
    assert not (tmp_path / "runs/d").exists()


def test_prior_trials_replace_no_other_file(bocl, tmp_path):
    assert bocl("run", "digits", *SMALL, "--set", "recipe.epochs=1", "--out", str(tmp_path / "runs"))[0] == 0
    journal = next(tmp_path.glob("runs/*/journal.jsonl"))
    before = journal.read_bytes()
    code, _, err = bocl("trials", journal.parent, "-o", journal)
    assert code == 2
    assert "is not a file of trials of bocl" in err
    assert journal.read_bytes() == before
    for _ in range(2):
        assert bocl("trials", journal.parent, "-o", tmp_path / "prior_trials.json")[0] == 0


def test_in_a_narrow_terminal_names_are_cut_and_figures_are_not():
    table = results_table("task", "", "learnt", left=("",))
    table.add_row("1", "a-name-of-thirty-five-characters-in", "100.00 %")
    written = StringIO()
    Console(file=written, width=30).print(table)
    heading, row = written.getvalue().splitlines()
    assert heading.split() == ["task", "learnt"]
    assert row.endswith("…  100.00 %")
    assert len(row) <= 30
