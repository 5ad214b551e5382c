"""How well searchers search: each is replayed on tables of real trials and on simulated tasks."""
