"""Child processes that never outlive us, and are ended by their own ids alone.

Every child leads a process group of its own, so that what it starts (the emulator runs one process
per Lambda environment) ends with it. Groups are named to `watchdog.py`, a small process that ends
them should this one be killed outright; `make up` does without it, since its servers stay.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO

from .errors import LocalError
from .paths import shown

GRACE_SECONDS = 5.0


class Interrupted(BaseException):
    """SIGTERM or SIGHUP, made an exception so that everything is stopped on the way out."""


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise Interrupted(signal.Signals(number).name)


def end_cleanly_on_signals() -> None:
    """SIGTERM and a closed terminal unwind like Ctrl-C does."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on now. Whoever takes it in between makes the start fail, loudly."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def group_lives(group: int) -> bool:
    """Whether any process is left in the group, zombies not counted where that can be told."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stats = list(_stats())
    return not stats or any(pgrp == group and state != "Z" for _, state, pgrp in stats)


def _stats() -> Iterator[tuple[int, str, int]]:
    """(pid, state, process group) of every process, from /proc; nothing where there is none."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = entry.read_text().rpartition(")")[2].split()
            yield int(entry.parent.name), fields[0], int(fields[2])


def end_groups(groups: Sequence[int]) -> None:
    """SIGTERM, a short grace, SIGKILL; returns when nothing of the groups is left."""
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and any(map(group_lives, groups)):
        time.sleep(0.05)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


class Processes:
    """The children of one run. As a context manager it ends them all, whatever happened."""

    def __init__(self, logs: Path, *, watched: bool = True) -> None:
        self.logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._started: set[str] = set()
        self._files: list[IO[bytes]] = []
        self._watchdog: subprocess.Popen[bytes] | None = None
        logs.mkdir(parents=True, exist_ok=True)
        if watched:
            # It must outlive a Ctrl-C at the terminal, hence the session of its own.
            self._watchdog = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("watchdog.py"))],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _tell_watchdog(self, sign: str, group: int) -> None:
        if self._watchdog and self._watchdog.stdin:
            self._watchdog.stdin.write(f"{sign}{group}\n".encode())
            self._watchdog.stdin.flush()

    def start(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str], cwd: Path, *, show: bool = False
    ) -> int:
        """Start a server; its output goes to `NAME.log`, or to the terminal. Returns its group's id.

        A server that is started again adds to its log.
        """
        log = None if show else self.log(name).open("ab" if name in self._started else "wb")
        self._started.add(name)
        if log:
            self._files.append(log)
        child = subprocess.Popen(
            [str(part) for part in command],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=None if show else subprocess.STDOUT,
            start_new_session=True,
        )
        self._running[name] = child
        self._tell_watchdog("+", child.pid)
        return child.pid

    def run(
        self, name: str, command: Sequence[str | Path], env: Mapping[str, str], cwd: Path, *, show: bool = False
    ) -> None:
        """Run a command to its end; its output goes to `NAME.log`, whose end is shown if it fails."""
        self.start(name, command, env, cwd, show=show)
        child = self._running[name]
        code = child.wait()
        del self._running[name]
        self._tell_watchdog("-", child.pid)
        if code != 0:
            raise LocalError(f"{name} failed with exit code {code}{'' if show else self.tail(name, 25)}")

    def kill(self, name: str) -> None:
        """SIGKILL for a server and what it started, as a crash would be."""
        child = self._running.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        self._tell_watchdog("-", child.pid)

    def wait_until(self, name: str, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until the server answers; fail at once if it exits first."""
        deadline = time.monotonic() + seconds
        while not ready():
            code = self._running[name].poll()
            if code is not None:
                raise LocalError(f"{name} stopped at its start with exit code {code}{self.tail(name)}")
            if time.monotonic() > deadline:
                raise LocalError(f"{name} did not answer within {seconds:g} s{self.tail(name)}")
            time.sleep(0.05)

    def dead(self) -> str | None:
        """The name of a server that stopped by itself, if one did."""
        return next((name for name, child in self._running.items() if child.poll() is not None), None)

    def pids(self) -> dict[str, int]:
        """The servers by name; each pid is also that of its process group."""
        return {name: child.pid for name, child in self._running.items()}

    def log(self, name: str) -> Path:
        """Where a child's output is."""
        return self.logs / f"{name.replace(' ', '-')}.log"

    def tail(self, name: str, lines: int = 10) -> str:
        """The end of a child's log, as the continuation of an error."""
        path = self.log(name)
        end = path.read_text(errors="replace").splitlines()[-lines:] if path.exists() else []
        return f"; the end of {shown(path)}:\n  " + "\n  ".join(end)

    def end(self) -> None:
        """End all that is running. A second Ctrl-C meanwhile doesn't leave half of it behind."""
        previous = {number: signal.signal(number, signal.SIG_IGN) for number in _STOPPING} if _in_main() else {}
        try:
            end_groups([child.pid for child in self._running.values()])
            for child in self._running.values():
                child.wait()
                self._tell_watchdog("-", child.pid)
            self._running.clear()
            for file in self._files:
                file.close()
            if self._watchdog and self._watchdog.stdin:
                self._watchdog.stdin.close()
                self._watchdog.wait()
                self._watchdog = None
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def leave_running(self) -> None:
        """Forget the children without ending them: `make up` hands them to `make down`."""
        self._running.clear()


_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _in_main() -> bool:
    return threading.current_thread() is threading.main_thread()
