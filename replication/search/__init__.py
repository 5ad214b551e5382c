"""How well searchers search: each replayed on tables of real trials, and on simulated tasks."""
