"""A training run from its first step to its last: the loop, what watches it, and its directory."""
