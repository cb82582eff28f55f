"""Curiosity for other training loops: spaces and arrays of Gymnasium in, intrinsic rewards out."""

from byol_explore.dropin import autoreset

__all__ = ["autoreset"]
