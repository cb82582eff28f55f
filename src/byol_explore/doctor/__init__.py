"""Is a run's curiosity healthy? Evidence from its metrics and its newest checkpoint, and a finding per check."""
