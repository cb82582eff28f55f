"""A trained agent at play: loaded from its run, evaluated, filmed."""
