"""Hands mail in the way any service would: SendMessageBatch with the ordinary AWS SDK."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .mails import URGENT_PER_SECOND, Mail, Plan
from .report import HandedIn, Key
from .stack import Stack

# SQS's limits of one SendMessageBatch call.
MAX_ENTRIES = 10
MAX_BYTES = 1_048_576
THREADS = 8


def batches(mails: Iterable[Mail]) -> Iterator[list[Mail]]:
    """Cut by count and by bytes. A message above the limit goes alone, for SQS to refuse."""
    batch: list[Mail] = []
    size = 0
    for mail in mails:
        length = len(mail.body.encode())
        if batch and (len(batch) == MAX_ENTRIES or size + length > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(mail)
        size += length
    if batch:
        yield batch


class Producer:
    """Hands a plan in from threads; `handed_in` holds what the queues took."""

    def __init__(self, stack: Stack, plan: Plan) -> None:
        self.handed_in: dict[Key, HandedIn] = {}
        self._plan = plan
        self._sqs: Any = stack.client("sqs", max_pool_connections=THREADS + 2)
        self._queues = {
            "bulk": stack.outputs["BulkIntakeQueueUrl"],
            "priority": stack.outputs["PriorityIntakeQueueUrl"],
        }
        self._stop = threading.Event()
        self._trickle = self._thread("trickle", "bulk", plan.trickle, plan.trickle_seconds)
        self._urgent = self._thread("urgent", "priority", plan.urgent, 1 / URGENT_PER_SECOND)

    def hand_in_burst(self, taken: Callable[[int], None]) -> None:
        """Hand in the burst as fast as the queue takes it, then start the urgent mail. The trickle starts first."""
        self._trickle.start()
        by_lane = [(lane, [mail for mail in self._plan.burst if mail.lane == lane]) for lane in ("bulk", "priority")]
        with ThreadPoolExecutor(THREADS) as pool:
            calls = [(lane, batch) for lane, mails in by_lane for batch in batches(mails)]
            for count in pool.map(lambda call: self._hand_in(*call), calls):
                taken(count)
        self._urgent.start()

    def finished(self) -> bool:
        """Whether everything was handed in."""
        return not (self._urgent.is_alive() or self._trickle.is_alive())

    def stop(self) -> None:
        """Give up on what was not handed in yet."""
        self._stop.set()

    def _hand_in(self, lane: str, batch: list[Mail]) -> int:
        at_ms = time.time() * 1000
        entries = [{"Id": str(index), "MessageBody": mail.body} for index, mail in enumerate(batch)]
        answer = self._sqs.send_message_batch(QueueUrl=self._queues[lane], Entries=entries)
        for entry in answer.get("Successful", []):
            self.handed_in[batch[int(entry["Id"])].key] = HandedIn(lane=lane, at_ms=at_ms)
        return len(answer.get("Successful", []))

    def _thread(self, name: str, lane: str, mails: list[Mail], seconds: float) -> threading.Thread:
        return threading.Thread(target=self._hand_in_evenly, args=(lane, mails, seconds), name=name, daemon=True)

    def _hand_in_evenly(self, lane: str, mails: list[Mail], seconds: float) -> None:
        """One mail every so many seconds. After a delay it hands in what is due, and is in time again."""
        begun = time.monotonic()
        for number, mail in enumerate(mails, start=1):
            if self._stop.wait(max(0.0, begun + number * seconds - time.monotonic())):
                return
            self._hand_in(lane, [mail])
