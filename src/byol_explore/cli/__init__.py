"""The commands of `byol-explore`: each `run_<command>(arguments)` parses its arguments and runs."""
