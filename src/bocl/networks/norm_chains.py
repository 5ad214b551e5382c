"""Batch norms with what follows them: the addition and the ReLU that a residual block ends with, as one step.

On a GPU a chain reads and writes its values once, where three steps would three times.
"""

from __future__ import annotations

from dataclasses import dataclass

from bocl.networks.graph import Add, Function, Graph, Layer, Norm


@dataclass(frozen=True)
class NormChain:
    """A norm, and the steps that come right after it and are its only readers.

    other      the number of the value that is added, or None
    rectifies  whether a ReLU follows
    """

    norm: Norm
    other: int | None = None
    rectifies: bool = False


def norm_chains(graph: Graph) -> tuple[dict[int, NormChain], frozenset[int]]:
    """Return the chains of a graph by the number of their last value, and the numbers of the values inside chains.

    A chain begins at a batch norm of what a 2-d convolution gives, and is computed where it ends. Its inner values are
    read by nothing else, so nothing waits for them.
    """
    readers: dict[int, list[int]] = {}
    for number, step in enumerate(graph.steps, start=1):
        for read in step.reads:
            readers.setdefault(read, []).append(number)
    chains: dict[int, NormChain] = {}
    inside: set[int] = set()
    for number, step in enumerate(graph.steps, start=1):
        if not isinstance(step, Norm) or step.kind != "batch" or not _convolves(graph, step.reads[0]):
            continue
        end, chain = number, NormChain(step)
        while not chain.rectifies and len(readers.get(end, ())) == 1:
            following = readers[end][0]
            next_step = graph.steps[following - 1]
            if isinstance(next_step, Add) and chain.other is None:
                first, second = next_step.reads
                other = second if first == end else first
                if other in inside:  # of another chain, which does this addition; this one ends at the other side of it
                    break
                chain = NormChain(step, other)
            elif isinstance(next_step, Function) and next_step.function == "relu":
                chain = NormChain(step, chain.other, rectifies=True)
            else:
                break
            inside.add(end)
            end = following
        chains[end] = chain
    return chains, frozenset(inside)


def _convolves(graph: Graph, number: int) -> bool:
    """Whether a value is what a 2-d convolution gives."""
    step = graph.steps[number - 1] if number else None
    return isinstance(step, Layer) and len(step.kernel) == 2
