"""Ends the process groups it was told of once its standard input closes.

    +123    group 123 runs
    -123    group 123 has ended, and its id may be given to somebody else

The pipe closes when its writer ends in whatever way, `kill -9` included. After an orderly end no
group is left on the list and this does nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time


def main() -> None:
    """Keep the list until the writer is gone; then end what is on it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
    if not groups:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        time.sleep(1)


if __name__ == "__main__":
    main()
