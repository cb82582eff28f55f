"""Runtimes: how acting and learning share the machine."""
