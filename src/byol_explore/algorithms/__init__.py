"""Reinforcement learning on rewards that are given: any algorithm does (section 3.4)."""
