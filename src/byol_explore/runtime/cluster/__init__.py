"""Acting on many machines with Ray: a source of rollouts whose actors are restarted when they fail."""
