"""Curiosity: four methods on one protocol, and the reward made of their uncertainty."""
