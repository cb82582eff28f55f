"""Studies: many runs described by one small file, run and finished by one command."""
