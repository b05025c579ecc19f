"""Client commands are told from those inside scripts, on a real Valkey."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import valkey

from tests.local.paths import LUA
from tests.local.processes import Processes
from tests.local.redis_calls import RedisCalls, client_calls, commands_in_scripts
from tests.local.servers import start_valkey

SCRIPT = "local call = redis.call for i = 1, 10 do call('INCR', KEYS[1]) end return redis.pcall(\"TIME\")[1]"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[valkey.Valkey]:
    with Processes(tmp_path / "logs") as processes:
        yield valkey.Valkey.from_url(start_valkey(processes, "127.0.0.1", tmp_path))


def test_a_script_call_is_one(server: valkey.Valkey, tmp_path: Path) -> None:
    (tmp_path / "one.lua").write_text(SCRIPT)
    counter = RedisCalls(server, tmp_path)
    for _ in range(7):
        server.eval(SCRIPT, 1, "key")
    server.set("other", 1)
    assert counter.count() == 8


def test_commands_are_found_in_our_own_scripts() -> None:
    found = commands_in_scripts(path.read_text() for path in LUA.rglob("*.lua"))
    assert "time" in found
    assert not found & {"eval", "evalsha", "script", "hello", "client"}


def test_subcommands_count_and_our_own_info_does_not() -> None:
    statistics = {"cmdstat_client|setinfo": {"calls": 2}, "cmdstat_info": {"calls": 5}, "cmdstat_time": {"calls": 9}}
    assert client_calls(statistics, {"time"}) == 2
