"""Environments of others, outside jit: Atari's emulator, Gymnasium and DM-HARD-8."""
