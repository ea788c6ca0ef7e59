"""From a caller's tables to training rows."""
