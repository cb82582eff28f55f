"""Episodes and scores of trained agents, films, and human play."""
