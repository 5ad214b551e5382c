"""WSN: subnetworks chosen by scores, which use old weights as they are and train new ones."""

from __future__ import annotations

from dataclasses import replace

import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp

from bocl.methods.wsn import WSN, WSNSettings
from bocl.networks.masked import MaskedNetwork
from bocl.networks.subnetworks import Draft, Subnetworks
from bocl.networks.trace import trace

OPTIONS = {"recipe": RECIPE, "seed": 0, "device": "cpu"}


def test_a_task_uses_old_weights_and_brings_new_ones():
    learner = WSN(small_cnn(), settings=WSNSettings(density=0.4), **OPTIONS)
    shared = []
    for index in range(3):
        before = learner.network.used
        learner.learn(hard_stream()[index])
        masks = learner.network.mask(index)
        shared.append(sum(int((masks[name] & used).sum()) for name, used in before.items()))
        new = {name: mask & ~before[name] for name, mask in masks.items()}
        assert any(mask.any() for mask in new.values())
        kept = learner.state().tensors
        for name, mask in new.items():
            assert torch.equal(kept[f"{index}/layer/{name}/values"], learner.network.weights[name][mask])
    assert shared[0] == 0 < min(shared[1:])


def test_scores_go_on_from_the_task_before():
    learner = WSN(small_mlp(), **OPTIONS)
    learner.learn(hard_stream()[0])
    first = learner.scores
    assert learner.draft(_data(learner, 1)).scores is first
    learner.learn(hard_stream()[1])
    assert not torch.equal(learner.scores["fc1"], first["fc1"])
    assert learner.extra_numbers() == 72 * 6 + 6 * 5
    assert torch.equal(learner.state().tensors["memory/score/fc1"], learner.scores["fc1"])


def _data(learner, index):
    return learner.to_learn_from(hard_stream()[index], index)


def test_weights_outside_the_subnetwork_do_not_fade():
    """With a decay, and no gradient to oppose it, they would be 0, and their scores without a gradient."""
    learner = WSN(small_mlp(), recipe=RECIPE, seed=0, device="cpu")
    decayed = WSN(small_mlp(), recipe=replace(RECIPE, weight_decay=0.5), seed=0, device="cpu")
    for one in (learner, decayed):
        one.learn(hard_stream()[0])
    assert all(torch.equal(learner.scores[name], decayed.scores[name]) for name in learner.scores)


def test_gradients_are_those_of_the_equation():
    """∂L/∂s = ∂L/∂W ⊙ W ⊙ sign(s), before the mask; ∂L/∂θ = ∂L/∂W ⊙ m ⊙ (1 - M)."""
    graph, draw = trace(small_mlp()), torch.Generator().manual_seed(0)
    network = MaskedNetwork(graph)
    start, scores = network.start(3, seed=0), network.scores(seed=1)
    fixed = {name: torch.rand(weight.shape, generator=draw) < 0.5 for name, weight in network.weights.items()}
    old = {name: torch.randn(mask.shape, generator=draw) * mask for name, mask in fixed.items()}
    children = Subnetworks(graph, [Draft(start, fixed, old, scores, 0.3)])
    x, y = torch.randn(9, 2, 6, 6, generator=draw), torch.arange(9) % 3
    torch.nn.functional.cross_entropy(children(x)[0], y).backward()

    masks, theta = children.masks(0), start.tensors
    weights = {name: torch.where(fixed[name], old[name], theta[f"layer/{name}/rows"]) for name in fixed}
    leaves = {name: (weights[name] * masks[name]).requires_grad_() for name in fixed}
    hidden = x.flatten(1)
    for name in fixed:
        hidden = torch.relu(hidden @ leaves[name].T + theta[f"layer/{name}/bias"])
    logits = hidden @ theta["head/weight"].T + theta["head/bias"]
    torch.testing.assert_close(children(x)[0], logits)
    torch.nn.functional.cross_entropy(logits, y).backward()
    for name, leaf in leaves.items():
        size = scores[name].abs()
        assert torch.equal(masks[name], size >= size.flatten().sort(descending=True)[0][int(masks[name].sum()) - 1])
        wanted = leaf.grad * weights[name] * scores[name].sign()
        torch.testing.assert_close(children.parameters[f"score/{name}"].grad[0], wanted)
        wanted = leaf.grad * masks[name] * ~fixed[name]
        torch.testing.assert_close(children.parameters[f"layer/{name}/rows"].grad[0], wanted)
