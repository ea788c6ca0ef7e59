"""What a step trains on: batches of positives with negatives, and the steps that imitate newcomers."""
