"""The paper's equations as pure functions: unbatched, time-major, vmapped by the caller."""
