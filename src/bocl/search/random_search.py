"""Random search: uniform over the lattice, as far as allowed, no point twice. The control all others must beat."""

from __future__ import annotations

from bocl.search.ledger import Ledger, LedgerSearch
from bocl.seeding import seed_for
from bocl.widths import Widths


class RandomSearch(LedgerSearch):
    """Random widths, for comparison: as many trials as the paper's search makes, none twice.

    Uniform draws under the same N, H and m as every searcher; its opening points are random too.

    The i-th point follows from the seed, i and the points taken before it, so the same points are tried
    however many are asked for in a round. [] while points are pending means: tell those first.
    """

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths, [] when there is nothing more to try."""
        return [draw_point(self._ledger) for _ in range(self._ledger.room(count))]


def draw_point(ledger: Ledger) -> Widths:
    """Hand out a random untried point; there must be one."""
    seed = seed_for(ledger.problem.seed, "random point", ledger.started)
    point = ledger.random(seed)
    ledger.hand_out(point)
    return point
