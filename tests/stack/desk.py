"""What a test can do from outside: hand mail in, and see what reached the provider."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.local.queues import Queues
from tests.local.record import Record
from tests.local.report import Arrival, Key
from tests.local.stack import Stack

# Longer than a claim's lease of 60 s: a copy of what is just being sent comes back when that is over.
PATIENCE_SECONDS = 120.0


def request(send_id: str, tenant: str = "tenant-1", **more: Any) -> dict[str, Any]:
    """A request that is right in every way but what `more` says."""
    return {
        "send_id": send_id,
        "tenant": tenant,
        "from": "Test <test@example.com>",
        "to": ["reader@example.com"],
        "content": {"simple": {"subject": "Hello", "text": "Hello.\n"}},
    } | more


def key(made: dict[str, Any]) -> Key:
    """What tells the mail from all others."""
    return made["tenant"], made["send_id"]


class Desk:
    """One stack, seen by a producer and by the provider."""

    def __init__(self, stack: Stack) -> None:
        assert stack.record, "these tests judge by our simulator's record: run them without SES_ENDPOINT"
        self.stack = stack
        self.queues = Queues(stack)
        self._record = Record(Path(stack.record))
        self._sqs: Any = stack.client("sqs")
        self._lambda: Any = stack.client("lambda")

    def hand_in(self, lane: str, bodies: Iterable[dict[str, Any] | str]) -> None:
        """Put requests on a lane's intake queue, ten a call; a text goes as it is."""
        texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
        url = self.stack.outputs[f"{lane.capitalize()}IntakeQueueUrl"]
        for start in range(0, len(texts), 10):
            entries = [{"Id": str(n), "MessageBody": text} for n, text in enumerate(texts[start : start + 10])]
            answer = self._sqs.send_message_batch(QueueUrl=url, Entries=entries)
            assert len(answer["Successful"]) == len(entries), answer

    def invoke_reserve(self, *requests: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
        """Invoke `reserve` directly; its results."""
        answer = self._lambda.invoke(
            FunctionName=self.stack.outputs["ReserveFunctionName"],
            Payload=json.dumps({"messages": requests} | more).encode(),
        )
        payload = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, payload
        return payload["results"]

    def arrivals(self, keys: Iterable[Key]) -> list[Arrival]:
        """All that reached the provider so far of these mails, in order of time."""
        self._record.follow()
        wanted = set(keys)
        return sorted((a for a in self._record.arrivals if a.key in wanted), key=lambda a: a.at_ms)

    def settled(self, keys: Iterable[Key], seconds: float = PATIENCE_SECONDS) -> list[Arrival]:
        """Wait until each of these mails arrived and nothing is under way; what arrived of them."""
        wanted = set(keys)

        def done() -> bool:
            return wanted <= {a.key for a in self.arrivals(wanted) if a.accepted} and self.queues.empty()

        arrived = lambda: f"{len({a.key for a in self.arrivals(wanted)})} of {len(wanted)} arrived"  # noqa: E731
        wait_until(done, arrived, seconds)
        return self.arrivals(wanted)

    def dead_letters(self, output: str, send: Callable[[dict[str, Any]], bool], count: int) -> list[dict[str, Any]]:
        """Wait for `count` messages that `send` picks from a dead-letter queue, and take them off it."""
        found: list[dict[str, Any]] = []

        def done() -> bool:
            for message in self.queues.receive_all(output):
                if send(message):
                    found.append(message)
                    handle = message["ReceiptHandle"]
                    self._sqs.delete_message(QueueUrl=self.stack.outputs[output], ReceiptHandle=handle)
            return len(found) >= count

        wait_until(done, lambda: f"{len(found)} of {count} dead letters in {output}")
        return found


def wait_until(done: Callable[[], bool], otherwise: Callable[[], str], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait for it, or fail saying how far it came."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, f"{otherwise()} within {seconds:g} s"
        time.sleep(0.2)


def times_sent(arrivals: Iterable[Arrival]) -> Counter[Key]:
    """How often the provider accepted each mail."""
    return Counter(arrival.key for arrival in arrivals if arrival.accepted)
