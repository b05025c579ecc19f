"""The AWS emulator with what chaos needs of it and it doesn't do: `python -m tests.local.emulator`.

SQS promises to deliver at least once. The emulator delivers once, so here a share of the messages that event source
mappings receive stays visible, and is handed out again with a receive count of 2 while the first worker has it. As in
SQS the older receipt handle stays good. The share is read from the file that EMULATOR_CONTROL names whenever it
changes, so that it can be switched while everything runs:

    {"twice": 0.2, "seed": 7}

Each message that was handed out again is noted beside it, in `redelivered.jsonl`. Without the variable or the file
nothing is delivered twice.

SES publishes its events to EventBridge under `aws.ses`, a source that PutEvents refuses from anybody else. The SES
simulator stands in for SES, so here it may.

CloudWatch alarms are about one metric with its dimensions. The emulator looks at all metrics of the name, so one
tenant's bounces would set off every tenant's alarm. Here an alarm sees its own metric alone.

EventBridge Scheduler looks every ten seconds what is due, so `rate(1 minute)` would run after 60 to 70 seconds. Here
it looks every second.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

CONTROL = "EMULATOR_CONTROL"
NOTES = "redelivered.jsonl"

# How often the scheduler looks what is due.
SCHEDULER_SECONDS = 1

# The second worker has a message at most so long after the first; a batch of `send` lasts up to a second.
LAG_SECONDS = 0.3


class Redelivery:
    """Decides which messages come twice, and knows their older receipt handles."""

    def __init__(self, control: Path) -> None:
        self._control = control
        self._read_at = 0
        self._share = 0.0
        self._draw = random.Random(0)
        #: Message by a receipt handle that a later one has replaced.
        self._older: dict[str, dict[str, Any]] = {}

    def _look(self) -> None:
        try:
            changed = self._control.stat().st_mtime_ns
        except FileNotFoundError:
            self._share = 0.0
            return
        if changed != self._read_at:
            # Written whole, by a rename.
            asked = json.loads(self._control.read_text())
            self._read_at = changed
            self._share = float(asked.get("twice", 0))
            self._draw = random.Random(int(asked.get("seed", 0)))

    def before(self, queue: Mapping[str, Any]) -> dict[str, str]:
        """The handles that a receive may replace, by message id."""
        messages = queue["messages"]
        return {message["id"]: message["receipt_handle"] for message in messages if message.get("receipt_handle")}

    def after(self, received: list[dict[str, Any]], handles: Mapping[str, str], now: float) -> bool:
        """Let some of what was received stay visible; whether there was any."""
        self._look()
        again = False
        for message in received:
            if older := handles.get(message["id"]):
                self._older[older] = message
            if message.pop("twice", False):
                self._note(message, now)
            elif message["receive_count"] == 1 and self._draw.random() < self._share:
                message["twice"] = True
                message["visible_at"] = now + self._draw.random() * LAG_SECONDS
                again = True
        return again

    def current(self, handle: str) -> str:
        """The handle that the message has now, for one that it had."""
        message = self._older.get(handle)
        return message["receipt_handle"] if message else handle

    def translate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """A request to SQS with the handles that the messages have now."""
        changed = dict(request)
        if "ReceiptHandle" in changed:
            changed["ReceiptHandle"] = self.current(changed["ReceiptHandle"])
        if isinstance(changed.get("Entries"), list):
            changed["Entries"] = [
                entry | {"ReceiptHandle": self.current(entry["ReceiptHandle"])} if "ReceiptHandle" in entry else entry
                for entry in changed["Entries"]
            ]
        return changed

    def _note(self, message: Mapping[str, Any], now: float) -> None:
        # A request and an envelope both say whose mail it is; what doesn't is not ours.
        body: Any = None
        with contextlib.suppress(ValueError):
            body = json.loads(message["body"])
        named = body if isinstance(body, dict) else {}
        note = {"at_ms": now * 1000, "tenant": named.get("tenant"), "send_id": named.get("send_id")}
        with self._control.with_name(NOTES).open("a") as notes:
            notes.write(json.dumps(note) + "\n")


def deliver_twice(sqs: Any, redelivery: Redelivery) -> None:
    """Patch the emulator's SQS."""
    receive: Callable[[str, int], list[dict[str, Any]]] = sqs._receive_messages_for_esm
    dispatch = sqs._dispatch
    delete: Callable[[str, set[str]], None] = sqs._delete_messages_for_esm

    @functools.wraps(receive)
    def receive_some_twice(queue_url: str, max_number: int) -> list[dict[str, Any]]:
        handles = redelivery.before(sqs._get_q(queue_url))
        received = receive(queue_url, max_number)
        # A copy keeps what this worker is told: the next receive changes the message in the queue.
        told = [dict(message) for message in received]
        if redelivery.after(received, handles, time.time()):
            sqs.esm_wake.set()
        return told

    @functools.wraps(dispatch)
    async def dispatch_by_any_handle(action: str, data: dict[str, Any], queue_url: str) -> Any:
        return await dispatch(action, redelivery.translate(data), queue_url)

    @functools.wraps(delete)
    def delete_by_any_handle(queue_url: str, receipt_handles: set[str]) -> None:
        delete(queue_url, {redelivery.current(handle) for handle in receipt_handles})

    sqs._receive_messages_for_esm = receive_some_twice
    sqs._dispatch = dispatch_by_any_handle
    sqs._delete_messages_for_esm = delete_by_any_handle


def heed_dimensions(cloudwatch: Any) -> None:
    """Patch the emulator's CloudWatch: an alarm is evaluated by what was put with its very dimensions."""
    evaluate: types.FunctionType = cloudwatch._evaluate_alarm

    @functools.wraps(evaluate)
    def evaluate_own_metric(alarm: Mapping[str, Any]) -> None:
        own = cloudwatch._dims_key(cloudwatch._dims_from_list(alarm.get("Dimensions") or []))
        metrics = {key: points for key, points in cloudwatch._metrics.items() if key[2] == own}
        # The same code with other metrics in sight; the module's own stay as they are for everybody else.
        types.FunctionType(evaluate.__code__, vars(cloudwatch) | {"_metrics": metrics})(alarm)

    cloudwatch._evaluate_alarm = evaluate_own_metric


def main() -> None:
    """Run the emulator as its own command does."""
    from ministack.app import main as run
    from ministack.services import cloudwatch, eventbridge, scheduler, sqs

    if control := os.environ.get(CONTROL):
        deliver_twice(sqs, Redelivery(Path(control)))
    heed_dimensions(cloudwatch)
    eventbridge._put_events = functools.partial(eventbridge._put_events, allow_aws_source=True)
    scheduler._SCHEDULE_TICK_INTERVAL = SCHEDULER_SECONDS
    run()


if __name__ == "__main__":
    main()
