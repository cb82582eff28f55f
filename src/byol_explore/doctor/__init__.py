"""Health checks of a run or of a Curiosity: evidence from its log and newest checkpoint, one finding per check."""
