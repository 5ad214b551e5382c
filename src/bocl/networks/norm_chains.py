"""Batch norms with what follows them: the addition and the ReLU that a residual block ends with, as one step.

On a GPU a chain reads and writes its values once, where three steps would three times.
"""

from __future__ import annotations

from dataclasses import dataclass

from bocl.networks.graph import Add, Function, Graph, Norm


@dataclass(frozen=True)
class NormChain:
    """A norm, and the steps that come right after it and are its only readers.

    add       the addition, or None; ``other`` is the number of the value that it adds
    function  the ReLU, or None
    """

    norm: Norm
    add: Add | None = None
    other: int = 0
    function: Function | None = None


def norm_chains(graph: Graph) -> tuple[dict[int, NormChain], frozenset[int]]:
    """Return the chains of a graph by the number of their last value, and the numbers of the values inside chains.

    A chain is computed where it ends. Its inner values are read by nothing else, so nothing waits for them.
    """
    readers: dict[int, list[int]] = {}
    for number, step in enumerate(graph.steps, start=1):
        for read in step.reads:
            readers.setdefault(read, []).append(number)
    chains: dict[int, NormChain] = {}
    inside: set[int] = set()
    for number, step in enumerate(graph.steps, start=1):
        if not isinstance(step, Norm) or step.kind != "batch":
            continue
        end, chain, numbers = number, NormChain(step), []
        while len(readers.get(end, ())) == 1:
            following = readers[end][0]
            next_step = graph.steps[following - 1]
            if isinstance(next_step, Add) and chain.add is None:
                first, second = next_step.reads
                other = second if first == end else first
                if other in inside:  # it is normalised only where the addition is, in a chain of its own
                    break
                chain = NormChain(step, next_step, other)
            elif isinstance(next_step, Function) and next_step.function == "relu":
                chain = NormChain(step, chain.add, chain.other, next_step)
            else:
                break
            numbers.append(end)
            end = following
            if chain.function is not None:
                break
        if end not in chains:
            chains[end] = chain
            inside.update(numbers)
    return chains, frozenset(inside)
