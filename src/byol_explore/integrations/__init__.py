"""Curiosity for agents of other libraries, each of which comes with an extra."""
