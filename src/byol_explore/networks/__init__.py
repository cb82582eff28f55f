"""Equinox modules. They take leading batch axes as they come, so `[T*B]` frames go through in one call."""
