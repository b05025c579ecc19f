"""Follows the simulator's record while it grows."""

from __future__ import annotations

import json
from pathlib import Path

from .report import Arrival


class Record:
    """Reads the lines that were added since the last look."""

    def __init__(self, path: Path) -> None:
        self.arrivals: list[Arrival] = []
        self._path = path
        self._offset = 0

    def follow(self) -> list[Arrival]:
        """Take in what is new and return it. A line still being written is left for next time."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        end = fresh.rfind(b"\n") + 1
        self._offset += end
        new = [Arrival.of(json.loads(line)) for line in fresh[:end].splitlines()]
        self.arrivals += new
        return new
