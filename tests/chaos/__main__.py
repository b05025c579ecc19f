"""The command behind `make chaos`: `python -m tests.chaos`."""

from __future__ import annotations

import sys

from rich.markup import escape

from tests.local.errors import LocalError
from tests.local.processes import Interrupted, end_cleanly_on_signals
from tests.local.say import console

from .run import from_environment


def main() -> int:
    """Run it; the exit code."""
    end_cleanly_on_signals()
    try:
        return from_environment()
    except LocalError as error:
        console.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except (KeyboardInterrupt, Interrupted):
        console.print("interrupted; everything that was started has ended")
        return 130


if __name__ == "__main__":
    sys.exit(main())
