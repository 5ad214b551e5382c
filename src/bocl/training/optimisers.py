"""PyTorch's SGD and Adam, which load no compiler.

PyTorch wraps some methods of its optimisers to hide them from its compiler. The wrappers load that compiler when they
are first called: hundreds of modules that nothing here uses, seconds in every process that trains.

``unwrap`` removes every wrapper. A step needs only one of them, ``torch.no_grad`` on ``step``, which is put back below.
If PyTorch adds another, ``tests/training/test_optimisers.py`` fails: it compares steps with PyTorch's own to the bit.
"""

from __future__ import annotations

from inspect import unwrap

import torch


class SGD(torch.optim.SGD):
    """``torch.optim.SGD``, to the bit."""

    add_param_group = unwrap(torch.optim.SGD.add_param_group)
    zero_grad = unwrap(torch.optim.SGD.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class Adam(torch.optim.Adam):
    """``torch.optim.Adam``, to the bit."""

    add_param_group = unwrap(torch.optim.Adam.add_param_group)
    zero_grad = unwrap(torch.optim.Adam.zero_grad)
    step = torch.no_grad()(unwrap(torch.optim.Adam.step))
