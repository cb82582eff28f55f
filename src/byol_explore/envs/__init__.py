"""Environments: one protocol for worlds inside jit, adapters, and worlds of our own."""
