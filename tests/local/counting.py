"""What the emulator was asked for and ran, counted where AWS would meter it. None of it asks our own counters.

The emulator writes the counts to a file, as long as they change; `Meter` reads them and takes differences.
"""

from __future__ import annotations

import dataclasses
import json
import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .errors import LocalError

#: SQS bills a request anew for every so many bytes of payload.
SQS_REQUEST_BYTES = 65_536
#: Most messages that one request to SQS moves. Lambda's pollers work by the same requests as everybody.
SQS_BATCH = 10
#: How often the file is written.
WRITE_SECONDS = 0.5

# What Lambda itself logs of an invocation, in the format JSON and at its least level: sizes are all that matters.
_ID = "00000000-0000-0000-0000-000000000000"
_PLATFORM_LINES = (
    f'{{"time":"2026-12-01T00:00:00.000Z","type":"platform.start","record":{{"requestId":"{_ID}","version":"$LATEST"}}}}',
    f'{{"time":"2026-12-01T00:00:00.000Z","type":"platform.report","record":{{"requestId":"{_ID}","metrics":'
    '{"durationMs":1000.000,"billedDurationMs":1000,"memorySizeMB":512,"maxMemoryUsedMB":40},"status":"success"}}',
)
PLATFORM_BYTES = sum(map(len, _PLATFORM_LINES))

#: Who asked: a function, Lambda's pollers, EventBridge, or anybody else, such as the producer.
FUNCTION, POLLER, EVENTBRIDGE, OTHER = "function", "poller", "eventbridge", "other"


@dataclasses.dataclass
class Requests:
    """Requests of one kind."""

    count: int = 0
    #: How many SQS bills: more than `count` where a payload is over 64 KiB.
    billed: int = 0
    #: Of these, with a MessageGroupId.
    grouped: int = 0
    #: Of payload.
    size: int = 0

    def add(self, other: Requests) -> None:
        """Count those of `other`, too."""
        self.count += other.count
        self.billed += other.billed
        self.grouped += other.grouped
        self.size += other.size


@dataclasses.dataclass
class Invocations:
    """Runs of one function."""

    count: int = 0
    cold: int = 0
    #: From handing the event over to the answer, and starting the process where it was cold; each rounded up.
    billed_ms: int = 0
    memory_mb: int = 0
    #: What it printed, and what Lambda adds.
    log_bytes: int = 0

    @property
    def gb_seconds(self) -> float:
        """What Lambda bills."""
        return self.billed_ms / 1000 * self.memory_mb / 1024


#: (service, action, who asked, queue or "")
Kind = tuple[str, str, str, str]


@dataclasses.dataclass
class Counted:
    """All counts at a moment, or between two."""

    requests: dict[Kind, Requests]
    invocations: dict[str, Invocations]
    #: Metrics in log lines: name and dimensions' values. Each is a custom metric.
    metrics: frozenset[str]

    def since(self, before: Counted) -> Counted:
        """What came after `before`."""
        return Counted(
            {kind: _less(now, before.requests.get(kind)) for kind, now in self.requests.items()},
            {name: _less(now, before.invocations.get(name)) for name, now in self.invocations.items()},
            self.metrics - before.metrics,
        )

    def to_json(self) -> dict[str, Any]:
        """For the file."""
        return {
            "requests": [[*kind, dataclasses.asdict(requests)] for kind, requests in sorted(self.requests.items())],
            "invocations": {name: dataclasses.asdict(runs) for name, runs in sorted(self.invocations.items())},
            "metrics": sorted(self.metrics),
        }

    @classmethod
    def of_json(cls, read: Mapping[str, Any]) -> Counted:
        """From the file."""
        return cls(
            {(service, action, by, queue): Requests(**rest) for service, action, by, queue, rest in read["requests"]},
            {name: Invocations(**rest) for name, rest in read["invocations"].items()},
            frozenset(read["metrics"]),
        )


def _less(now: Any, before: Any) -> Any:
    if before is None:
        return now
    changed = {field.name: getattr(now, field.name) - getattr(before, field.name) for field in dataclasses.fields(now)}
    if "memory_mb" in changed:
        changed["memory_mb"] = now.memory_mb
    return dataclasses.replace(now, **changed)


def billed_requests(payload_bytes: int) -> int:
    """What SQS bills for one request with so much payload."""
    return max(1, math.ceil(payload_bytes / SQS_REQUEST_BYTES))


def sent(request: Mapping[str, Any]) -> tuple[int, bool]:
    """(bytes of payload, whether a message has a group) of a request to SQS."""
    entries = request.get("Entries") if isinstance(request.get("Entries"), list) else [request]
    size = 0
    for entry in entries:
        size += len(str(entry.get("MessageBody", "")).encode())
        for name, value in (entry.get("MessageAttributes") or {}).items():
            size += len(name) + len(str(value.get("DataType", ""))) + len(str(value.get("StringValue", "")).encode())
    return size, any(entry.get("MessageGroupId") for entry in entries)


def metrics_in(log: str) -> Iterable[str]:
    """The custom metrics that lines in the embedded metric format make: a name with its dimensions' values."""
    for line in log.splitlines():
        if '"_aws"' not in line:
            continue
        try:
            found = json.loads(line)
            directives = found["_aws"]["CloudWatchMetrics"]
        except (ValueError, KeyError, TypeError):
            continue
        for directive in directives:
            for dimensions in directive["Dimensions"]:
                place = ",".join(f"{name}={found.get(name)}" for name in sorted(dimensions))
                for metric in directive["Metrics"]:
                    yield f"{directive['Namespace']} {metric['Name']} {place}"


class Counter:
    """Counts, and writes the counts to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._requests: defaultdict[Kind, Requests] = defaultdict(Requests)
        self._invocations: defaultdict[str, Invocations] = defaultdict(Invocations)
        self._metrics: set[str] = set()

    def request(
        self, service: str, action: str, by: str, queue: str = "", size: int = 0, grouped: bool = False, count: int = 1
    ) -> None:
        """Count one, or `count` that share a payload of `size` bytes."""
        billed = max(count, billed_requests(size)) if service == "sqs" else count
        with self._lock:
            kind = self._requests[service, action, by, queue]
            kind.count += count
            kind.billed += billed
            kind.grouped += billed if grouped else 0
            kind.size += size

    def invocation(self, function: str, seconds: float, memory_mb: int, cold: bool, log: str) -> None:
        """Count a run."""
        found = set(metrics_in(log))
        with self._lock:
            runs = self._invocations[function]
            runs.count += 1
            runs.cold += cold
            runs.billed_ms += math.ceil(seconds * 1000)
            runs.memory_mb = memory_mb
            runs.log_bytes += len(log.encode()) + PLATFORM_BYTES
            self._metrics |= found

    def now(self) -> Counted:
        """The counts of this moment."""
        with self._lock:
            return Counted(
                {kind: dataclasses.replace(requests) for kind, requests in self._requests.items()},
                {name: dataclasses.replace(runs) for name, runs in self._invocations.items()},
                frozenset(self._metrics),
            )

    def write(self) -> None:
        """Write the file whole, by a rename."""
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps(self.now().to_json() | {"at": time.time()}))
        fresh.replace(self._path)

    def write_on(self) -> None:
        """Write again and again, in the background."""

        def repeat() -> None:
            while True:
                self.write()
                time.sleep(WRITE_SECONDS)

        threading.Thread(target=repeat, name="counts", daemon=True).start()


class Meter:
    """Reads the counts of a running emulator."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Counted:
        """The counts, not older than this call."""
        asked = time.time()
        for _ in range(60):
            time.sleep(WRITE_SECONDS / 2)
            if self._path.exists():
                found = json.loads(self._path.read_text())
                if found["at"] >= asked:
                    return Counted.of_json(found)
        raise LocalError(f"{self._path}: the emulator doesn't write its counts; its log is beside it, under logs/")
