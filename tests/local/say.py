"""What the person sees while things start: one line per step, with a spinner on a terminal."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from rich.console import Console

console = Console(highlight=False)


@contextlib.contextmanager
def step(doing: str, done: str | None = None) -> Iterator[None]:
    """Show `doing` while the block runs, then leave `done` (or the same) with the time it took."""
    begun = time.monotonic()
    with console.status(f"{doing} …"):
        yield
    console.print(f"[green]✓[/] {done or doing} [dim]{time.monotonic() - begun:.1f} s[/]")
