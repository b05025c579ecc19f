"""The hands of chaos: what breaks Redis, the functions' processes, SQS's single delivery and the provider.

Processes are ended by ids that we found in the process group of a server that we started, never by a name.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import random
import signal
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import valkey

from tests.local.emulator import NOTES
from tests.local.processes import Processes
from tests.local.report import Key
from tests.local.servers import start_valkey
from tests.local.stack import Stack

from .judge import Span


def now_ms() -> float:
    """Unix time in ms, as the record has it."""
    return time.time() * 1000


class Redis:
    """The stack's Valkey, and what may happen to it."""

    def __init__(self, processes: Processes, stack: Stack, out: Path) -> None:
        self._processes = processes
        self._stack = stack
        self._out = out
        host, port = stack.redis_url.removeprefix("redis://").split(":")
        self._host = host
        self._port = int(port)
        #: When it lost what it knew.
        self.losses: list[Span] = []

    def client(self, timeout_seconds: float = 5) -> valkey.Valkey:
        """A connection that fails if nobody answers in time."""
        return valkey.Valkey.from_url(
            self._stack.redis_url, socket_timeout=timeout_seconds, socket_connect_timeout=timeout_seconds
        )

    def kill(self) -> None:
        """It crashes. Nothing was saved."""
        self._processes.kill("valkey")

    def start(self) -> None:
        """It is there again, at the same address and empty."""
        start_valkey(self._processes, self._host, self._out, self._port)
        self._stack.pids = self._processes.pids()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Killed, and started again at the end."""
        killed = now_ms()
        self.kill()
        try:
            yield
        finally:
            self.start()
            self.losses.append(Span(killed, now_ms()))

    def flush(self) -> None:
        """It forgets everything, the scripts too."""
        begun = now_ms()
        with self.client() as client:
            client.flushall()
            client.script_flush()
        self.losses.append(Span(begun, now_ms()))

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """A replica of nobody: it answers reads, refuses writes and keeps what it holds, as after a failover."""
        with self.client() as client:
            # The port of TCP's multiplexer: nobody listens there, so no sync ever empties it.
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            try:
                yield
            finally:
                client.execute_command("REPLICAOF", "NO", "ONE")

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Its connections stay open and nothing is answered."""
        pid = self._processes.pids()["valkey"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


def function_processes(emulator: int, function: str) -> list[int]:
    """The processes that run a function: of the emulator's own group, with the function's name in their environment."""
    found: list[int] = []
    mark = f"AWS_LAMBDA_FUNCTION_NAME={function}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            group = int((folder / "stat").read_text().rpartition(")")[2].split()[2])
            if group == emulator and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def crash_functions(stack: Stack, function: str, share: float, draw: random.Random) -> int:
    """SIGKILL for a share of the processes of a function; how many that were."""
    pids = sorted(function_processes(stack.pids["emulator"], function))
    pids = draw.sample(pids, math.ceil(share * len(pids)))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)


class Delivery:
    """How often SQS delivers: the emulator's control file."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._control.unlink(missing_ok=True)
        self._control.with_name(NOTES).unlink(missing_ok=True)

    def twice(self, share: float, seed: int) -> None:
        """From now on this share of the messages is handed out twice."""
        fresh = self._control.with_suffix(".new")
        fresh.write_text(json.dumps({"twice": share, "seed": seed}))
        fresh.replace(self._control)

    def redelivered(self) -> frozenset[Key]:
        """The mails that were, so far."""
        notes = self._control.with_name(NOTES)
        lines = notes.read_text().splitlines() if notes.exists() else []
        read = [json.loads(line) for line in lines if line.endswith("}")]
        return frozenset((note["tenant"], note["send_id"]) for note in read if note["tenant"] and note["send_id"])


class Provider:
    """The SES simulator: its faults and limits, and the switches that SES has."""

    def __init__(self, stack: Stack) -> None:
        self._endpoint = stack.ses_endpoint
        self._ses = stack.ses()

    def faults(self, *faults: Mapping[str, Any]) -> None:
        """Replace all faults by these."""
        self._put("faults", {"faults": list(faults)})

    def settings(self, **settings: Any) -> None:
        """Change settings such as the rate, without anybody being told."""
        self._put("settings", settings)

    def let_tenant_send(self, tenant: str, enabled: bool) -> None:
        """The switch of its configuration set, which has its name."""
        self._ses.put_configuration_set_sending_options(ConfigurationSetName=tenant, SendingEnabled=enabled)

    def let_account_send(self, enabled: bool) -> None:
        """The account's switch."""
        self._ses.put_account_sending_attributes(SendingEnabled=enabled)

    def _put(self, path: str, body: Mapping[str, Any]) -> None:
        request = urllib.request.Request(
            f"{self._endpoint}/_simulator/{path}",
            data=json.dumps(body).encode(),
            method="PUT",
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()
