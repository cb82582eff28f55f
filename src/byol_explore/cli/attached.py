"""`python -m byol_explore.cli.attached train ...`: the command line, for as long as the study behind it lives.

The study holds the other end of the standard input. However it ends, kill -9 too, the pipe closes, and the run saves
and stops as it does after SIGTERM: nothing goes on writing unseen.
"""

import os
import signal
import sys
import threading

from byol_explore.cli.main import main


def end_with_the_other_end() -> None:
    """Stop this process as SIGTERM does when whoever has started it lives no more."""
    os.read(0, 1)  # nothing is ever written: returns when the pipe closes
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_other_end, daemon=True).start()
    sys.exit(main())
