"""Training by rows: objectives, row-wise optimisers, the loop and its checkpoints."""
