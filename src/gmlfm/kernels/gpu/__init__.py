"""Training steps for a GPU by Triton. Every kernel reads the number of its step from the device, so that a step can be
recorded once as a CUDA graph and replayed. Importing this package imports Triton."""
