"""Console entry point; Ctrl-C prints no traceback even while the command line is imported."""

import sys

from byol_explore.utils.interrupts import exit_on_sigint


def main() -> int:
    with exit_on_sigint():
        from byol_explore.cli.main import main as command_line
    return command_line()


if __name__ == "__main__":
    sys.exit(main())
