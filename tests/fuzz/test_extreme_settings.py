"""Settings at the ends of their ranges: what a config accepts, a run can be begun with."""

from __future__ import annotations

import shutil

from fuzzing import TALLY, cases
from hypothesis import given
from hypothesis import strategies as st

from bocl.errors import BoclError, ConfigError
from bocl.experiment.config import load_config
from bocl.experiment.run import run
from bocl.records.events import Event

SMALL = (
    "stream.tasks=2",
    "network.arguments={inputs=64, hidden=[3, 2]}",
    "recipe.epochs=1",
    "recipe.batch_size=512",
    "search.trials=2",
    "search.warm_points=1",
    "search.bounds=1",
    "rcl.trials=2",
    "ewc.fisher_samples=8",
    "imm.fisher_samples=8",
    "gem.memories=8",
    "pc.fisher_samples=8",
    "cab.samples=8",
)
# Setting → the method that reads it.
READERS = {
    "seed": "bocl",
    **dict.fromkeys([f"recipe.{name}" for name in ("learning_rate", "momentum", "weight_decay")], "sn"),
    **dict.fromkeys([f"recipe.{name}" for name in ("batch_size", "epochs", "patience")], "sn"),
    **dict.fromkeys([f"search.{name}" for name in ("trials", "patience", "warm_points", "round_size")], "bocl"),
    "search.children_at_once": "bocl",
    **dict.fromkeys(["search.memory_gb", "search.bounds", "reward.alpha", "stream.tasks"], "bocl"),
    **dict.fromkeys(["growth.reduction_nodes", "growth.gate_bias"], "bocl"),
    **dict.fromkeys(["fixed.widths", "fixed.budget", "fixed.children"], "fixed"),
    **dict.fromkeys(["ewc.strength", "ewc.decay", "ewc.fisher_samples"], "ewc"),
    **dict.fromkeys(["gem.memories", "gem.margin"], "gem"),
    **dict.fromkeys(["pc.strength", "pc.decay", "pc.adapter", "pc.fisher_samples"], "pc"),
    **dict.fromkeys(["cab.aperture", "cab.samples"], "cab"),
    **dict.fromkeys([f"fearnet.{name}" for name in ("sleep_every", "hidden", "code", "reconstruction")], "fearnet"),
    **dict.fromkeys(["pgn.width", "pgn.adapter"], "pgn"),
    **dict.fromkeys([f"den.{name}" for name in ("l1", "group_lasso", "l2", "anchor", "loss", "drift")], "den"),
    "den.expansion": "den",
    **dict.fromkeys(["hat.steepness", "hat.sparsity"], "hat"),
    **dict.fromkeys(["imm.l2", "imm.drop", "imm.fisher_samples"], "imm"),
    "rcl.trials": "rcl",
    **dict.fromkeys(["packnet.keep", "packnet.retrain"], "packnet"),
    "supsup.density": "supsup",
    "wsn.density": "wsn",
}
EXTREMES = (
    "0",
    "1",
    "1e-300",
    "5e-324",
    "1e-3",
    "1.0",
    "1e6",
    "1e30",
    "1e300",
    "1e308",
    str(2**31),
    str(2**53),
    str(2**63 - 1),
)
OTHERS = ("", "recipe.schedule=cosine", "recipe.optimiser=sgd", "search.kind=random", "search.kind=reinforce")


class Enough(BaseException):
    """The run has shown that it works."""


def until_it_works(events: int = 30) -> object:
    """Return a listener that ends a run which would take too long."""
    heard = 0

    def callback(_event: Event) -> None:
        nonlocal heard
        heard += 1
        if heard > events:
            raise Enough

    return callback


@cases(10)
@given(st.sampled_from(sorted(READERS)), st.sampled_from(EXTREMES), st.sampled_from(OTHERS))
def test_an_extreme_setting_that_is_accepted_can_be_run(tmp_path_factory, path, value, other):
    folder = tmp_path_factory.mktemp("run") / "it"
    try:
        config = load_config("digits", [*SMALL, *filter(None, [other]), f"method={READERS[path]}", f"{path}={value}"])
        run(config, folder, device="cpu", callback=until_it_works())
        outcome = "ran"
    except Enough:
        outcome = "ran"
    except ConfigError:
        outcome = "refused"
    except BoclError:
        outcome = "failed as it should"
    TALLY["extreme setting", outcome] += 1
    shutil.rmtree(folder, ignore_errors=True)
