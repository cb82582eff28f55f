"""What can be set: the configuration of a run, named presets of it, and consent to code that it names."""
