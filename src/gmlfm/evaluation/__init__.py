"""Honest evaluation: metrics in expectation over ties, protocols by name, paired tests."""
