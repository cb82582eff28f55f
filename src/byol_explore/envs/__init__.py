"""Environments: protocols inside and outside jit, vector environments, our own worlds, and adapters."""
