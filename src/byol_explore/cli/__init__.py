"""The commands, a module each: `run(arguments)` reads the words behind the command's name and does it."""
