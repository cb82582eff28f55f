"""Worlds of our own and those of XLand-MiniGrid: pure functions that run inside jit."""
