"""The commands behind the Makefile: `python -m tests.local demo|up|down|invoke|costs`."""

from __future__ import annotations

import os
import sys

from rich.markup import escape

from .costs import costs
from .demo import demo
from .errors import LocalError
from .invoke import invoke
from .knobs import Knobs
from .paths import STACK_FILE, shown
from .processes import Interrupted, end_cleanly_on_signals
from .say import console
from .stack import down, up


def main(command: str) -> int:
    """Run one command; the exit code."""
    end_cleanly_on_signals()
    try:
        if command == "demo":
            return demo(Knobs.read(os.environ))
        if command == "up":
            stack = up(Knobs.read(os.environ))
            console.print(f"up: {stack.endpoint_url}, described in {shown(STACK_FILE)}; `make down` ends it")
        elif command == "down":
            console.print("down" if down() else "nothing was up")
        elif command == "invoke":
            return invoke(os.environ.get("FUNCTION", ""), os.environ.get("EVENT", ""))
        elif command == "costs":
            return costs(os.environ)
        else:
            raise LocalError(f"{command!r} is not one of demo, up, down, invoke, costs")
    except LocalError as error:
        console.print(f"[red]error:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    except (KeyboardInterrupt, Interrupted):
        console.print("interrupted; everything that was started has ended")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
