"""Curiosity: one file per method on one protocol, and the reward made of their uncertainty."""
