"""Acting on many machines with Ray: actors that may die and live again, seen from the learner as one more source."""
