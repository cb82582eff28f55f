"""Where the command starts: quiet about Ctrl-C even while the command line itself is loaded."""

import sys

from byol_explore.interrupts import leaving_at_once


def main() -> int:
    with leaving_at_once():
        from byol_explore.cli.main import main as command_line
    return command_line()


if __name__ == "__main__":
    sys.exit(main())
