"""PyTorch's SGD and Adam, which load no compiler.

PyTorch wraps some methods of its optimisers so that its compiler lets them be. The wrappers load that compiler when
they are first called: hundreds of modules that nothing here uses, seconds in every process that trains. The methods
themselves need none of it; one that PyTorch no longer wraps is taken as it is.

``unwrap`` takes off every wrapper, so one that does something for the step is lost with the others. Today that is
``torch.no_grad`` on ``step``, put back below. Should PyTorch add one that matters, steps here would differ from its
own; ``tests/training/test_optimisers.py`` compares them to the bit.
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
