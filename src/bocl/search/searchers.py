"""Names → searchers, and whether a searcher needs the difficulty measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from bocl.search.bayesian import BayesianSearch
from bocl.search.paper import PaperSearch
from bocl.search.problem import Problem, Searcher
from bocl.search.random_search import RandomSearch
from bocl.search.reinforce import ReinforceSearch
from bocl.search.settings import SearchKind, SearchSettings

SearcherFactory = Callable[[Problem, SearchSettings], Searcher]

SEARCHERS: dict[SearchKind, SearcherFactory] = {
    "bayesian": BayesianSearch,
    "paper": PaperSearch,
    "random": RandomSearch,
    "reinforce": ReinforceSearch,
}


def make_searcher(problem: Problem, settings: SearchSettings) -> Searcher:
    """Return a new searcher of the kind the settings name."""
    return SEARCHERS[settings.kind](problem, settings)


def wants_difficulty(factory: SearcherFactory, settings: SearchSettings) -> bool:
    """Return whether M_t must be measured for a searcher of this factory: ``factory.wants_difficulty``, else False.

    For ``make_searcher`` the class that the settings name decides, for a ``partial`` the function that it calls.
    """
    if factory is make_searcher:
        factory = SEARCHERS[settings.kind]
    declared = factory.func if isinstance(factory, partial) else factory
    return bool(getattr(declared, "wants_difficulty", False))
