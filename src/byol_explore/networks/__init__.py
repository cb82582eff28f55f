"""Equinox modules. They take any leading batch axes, so frames [T * B, ...] are processed in one call."""
