"""GPU kernels for K children at once. Triton comes with PyTorch's GPU builds; without it they cannot be imported."""
