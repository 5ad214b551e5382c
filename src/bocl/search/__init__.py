"""Which widths to try next: integers in, integers out. No networks, no data, no training.

problem.py           what a searcher knows, and what it must offer
settings.py          SearchSettings: which searcher, how many trials
searchers.py         names → searchers; which of them need the difficulty measured
bayesian.py          ours: a Gaussian process on accuracy, expected improvement over integers, all earlier trials
paper.py             the paper's: warm start, Gaussian process and expected improvement
random_search.py     uniform over the lattice
reinforce.py         RCL's: a controller draws widths and learns from their rewards
accuracy_model.py    the mathematics of bayesian.py: the process, with accuracy_kernel.py
improvement.py       the same: expected improvement on the lattice
diagnostics.py       what a person may ask about bayesian.py
gaussian_process.py  the mathematics of paper.py
likelihood.py        priors and fits of both
controller.py        the mathematics of reinforce.py
ledger.py            what was asked for and told; the best child
lattice.py           the integer box within a budget: lists, random points, neighbours
stopping.py          when a search is over
one_thread.py        one thread of torch
"""
