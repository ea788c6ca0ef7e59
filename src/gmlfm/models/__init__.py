"""Models: scores from attribute rows. They never see files, ids, optimisers or devices by name."""
