"""Names → searchers."""

from __future__ import annotations

from collections.abc import Callable

from bocl.search.bayesian import BayesianSearch
from bocl.search.paper import PaperSearch
from bocl.search.problem import Problem, Searcher
from bocl.search.random_search import RandomSearch
from bocl.search.reinforce import ReinforceSearch
from bocl.search.settings import SearchKind, SearchSettings

SEARCHERS: dict[SearchKind, Callable[[Problem, SearchSettings], Searcher]] = {
    "bayesian": BayesianSearch,
    "paper": PaperSearch,
    "random": RandomSearch,
    "reinforce": ReinforceSearch,
}


def make_searcher(problem: Problem, settings: SearchSettings) -> Searcher:
    """Return a new searcher of the kind the settings name."""
    return SEARCHERS[settings.kind](problem, settings)
