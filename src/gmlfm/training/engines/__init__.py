"""Who takes the training steps: eager PyTorch, right for every model, and compiled kernels that agree with it."""
