"""The search of RCL: a controller draws widths and learns from their rewards.

A policy gradient samples with replacement, but a search trains no child twice. So a draw that was trained before is
answered from its record: the controller learns from it again, at no cost, and draws until there is a new point. A
policy that has settled hardly finds one, so after some draws the nearest untried point is taken. It was not drawn, so
the controller does not learn from it until a draw hits it.
"""

from __future__ import annotations

from collections.abc import Sequence

from bocl.records.record import Trial
from bocl.search.controller import CONTROLLERS, Controller
from bocl.search.lattice import nearest_of
from bocl.search.ledger import LedgerSearch
from bocl.search.problem import Problem
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from bocl.widths import Widths

MOST_DRAWS = 32  # for one new point


class ReinforceSearch(LedgerSearch):
    """The search of RCL: an LSTM controller trained by policy gradient, as released or tuned.

    A round has as many points as the controller learns from at once: one as released. The opening points are its draws
    too. An update waits for the rewards of a whole batch, in the order of drawing; failed children are left out.
    If asked again before it is told, it draws from the policy as it is. [] while points are pending means: tell those
    first.
    """

    def __init__(self, problem: Problem, settings: SearchSettings) -> None:
        """Prepare a search of the problem."""
        super().__init__(problem, settings)
        how = CONTROLLERS[settings.controller]
        self.controller = Controller(problem.bounds, problem.allowed, how, seed=seed_for(problem.seed, "controller"))
        self._draws: list[Widths] = []  # not learnt from yet, oldest first

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths, at most a batch of them; [] when there is nothing more to try."""
        room = self._ledger.room(count)
        return [self._hand_out_draw() for _ in range(min(room, self.controller.settings.batch))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Take in trained children and learn from those that were drawn."""
        super().tell(trials)
        self._learn()

    def _hand_out_draw(self) -> Widths:
        """Hand out a new draw of the controller, or the likeliest of the untried points nearest to its last draw."""
        ledger = self._ledger
        for _ in range(MOST_DRAWS):
            drawn = self.controller.draw()
            self._draws.append(drawn)
            widths = self._trained_for(drawn)
            if ledger.free([widths]):
                return ledger.hand_out(widths)
            self._learn()
        return ledger.hand_out(self.controller.likeliest(ledger.nearest(drawn)))

    def _learn(self) -> None:
        """Learn from the draws whose rewards are known, batch by batch; the rest wait."""
        rewards = {trial.widths: trial.reward for trial in self._ledger.succeeded}
        answered = {trial.widths for trial in self._ledger.trained}
        known = [widths for widths in self._draws if self._trained_for(widths) in rewards]
        waiting = [widths for widths in self._draws if self._trained_for(widths) not in answered]
        batch = self.controller.settings.batch
        while len(known) >= batch:
            drawn, known = known[:batch], known[batch:]
            self.controller.learn(drawn, [rewards[self._trained_for(widths)] for widths in drawn])
        self._draws = known + waiting

    def _trained_for(self, drawn: Widths) -> Widths:
        """Return what is trained for a draw: the draw itself, or the nearest of ``Problem.candidates``."""
        candidates = self._ledger.candidates
        return drawn if candidates is None else nearest_of([*candidates], drawn)[0]
