"""Environments of others, outside jit: Atari's emulator and Gymnasium."""
