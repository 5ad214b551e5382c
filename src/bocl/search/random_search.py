"""Random search: uniform over the lattice within the budget, no point twice. The control that all others must beat."""

from __future__ import annotations

from bocl.search.ledger import LedgerSearch
from bocl.widths import Widths


class RandomSearch(LedgerSearch):
    """Random widths, for comparison: as many trials as the paper's search makes, none twice.

    Uniform draws under the same N, H and m as every searcher; its opening points are random too.

    A point depends only on the seed, its number and the points taken before it, so the same points are tried
    whatever the size of a round. [] while points are pending means: tell those first.
    """

    def ask(self, count: int) -> list[Widths]:
        """Return 1 … count new widths, [] when there is nothing more to try."""
        return [self._ledger.hand_out_random() for _ in range(self._ledger.room(count))]
