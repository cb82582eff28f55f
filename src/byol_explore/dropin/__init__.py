"""Curiosity for anybody's agent: spaces and arrays of others in, a stream of our own inside, rewards out."""
