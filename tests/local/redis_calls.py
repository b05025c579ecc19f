"""How many commands clients sent, from Valkey's own statistics.

`INFO commandstats` counts a script's inner commands under their own names, exactly like commands
that a client sends. The two are told apart by name: the Lua sources name every command that they
call, and everything else was sent by a client. Nothing is left out but our own `INFO`: EVALSHA
counts one whatever its script does, and so do a script's loading and the greeting of each
connection (HELLO, CLIENT SETINFO). A command that a client sends outside a script although scripts
call it too would be missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import valkey

_CALL = re.compile(r"""\bp?call\(\s*['\"](\w+)['\"]""")


def commands_in_scripts(sources: Iterable[str]) -> set[str]:
    """The commands that Lua sources call, in lower case."""
    return {name.lower() for source in sources for name in _CALL.findall(source)}


def client_calls(statistics: Mapping[str, Mapping[str, Any]], scripted: set[str]) -> int:
    """The calls of all commands but those in `scripted` and INFO."""
    calls = {name.removeprefix("cmdstat_"): int(entry["calls"]) for name, entry in statistics.items()}
    return sum(count for name, count in calls.items() if name.split("|")[0] not in scripted | {"info"})


class RedisCalls:
    """Counts the client commands since it was made."""

    def __init__(self, server: valkey.Valkey, lua: Path) -> None:
        self._server = server
        self._scripted = commands_in_scripts(path.read_text() for path in sorted(lua.rglob("*.lua")))
        # Connecting greets the server too; done once here, before the first count.
        self._server.ping()
        self._before = self._now()

    def _now(self) -> int:
        return client_calls(self._server.info("commandstats"), self._scripted)

    def count(self) -> int:
        """Client commands since the start."""
        return self._now() - self._before
