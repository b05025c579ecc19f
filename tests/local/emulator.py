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

AWS sends a bill, the emulator doesn't. With EMULATOR_COUNTS it counts requests and invocations as AWS would meter them,
for `make costs`, and writes them to the file that it names (`counting.py`). Lambda's pollers make no requests in the
emulator; here each batch that they take counts as the ReceiveMessage, and what they delete of it as the
DeleteMessageBatch, that Lambda makes for it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import threading
import time
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .counting import EVENTBRIDGE, FUNCTION, OTHER, POLLER, SQS_BATCH, Counter, sent

CONTROL = "EMULATOR_CONTROL"
COUNTS = "EMULATOR_COUNTS"
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


def count_requests(app: Any, counter: Counter) -> None:
    """Patch the emulator's front door: count what comes by HTTP. Functions are told by the SDK they use."""
    dispatch = app._dispatch_service_request

    @functools.wraps(dispatch)
    async def dispatch_and_count(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any], request_id: str
    ) -> Any:
        params = app._routing_params(method, path, headers, body, query)
        service: str = app.detect_service(method, path, headers, params)
        action: str = app._ct_event_name(service, method, path, headers, params)
        by = FUNCTION if headers.get("user-agent", "").startswith("aws-sdk-rust") else OTHER
        queue, size, grouped = "", len(body), False
        if service == "sqs" and isinstance(request := _json(body), dict):
            queue = str(request.get("QueueUrl", "")).rpartition("/")[2]
            if action.startswith("SendMessage"):
                size, grouped = sent(request)
        counter.request(service, action, by, queue, size, grouped)
        return await dispatch(method, path, headers, body, query, request_id)

    app._dispatch_service_request = dispatch_and_count


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def count_polls(sqs: Any, counter: Counter) -> None:
    """Patch the emulator's SQS: count what event source mappings take and delete, as Lambda's pollers would ask for."""
    receive: Callable[[str, int], list[dict[str, Any]]] = sqs._receive_messages_for_esm
    delete: Callable[[str, set[str]], None] = sqs._delete_messages_for_esm

    @functools.wraps(receive)
    def receive_and_count(queue_url: str, max_number: int) -> list[dict[str, Any]]:
        received = receive(queue_url, max_number)
        if received:
            size = sum(len(message["body"].encode()) for message in received)
            requests = -(-len(received) // SQS_BATCH)
            counter.request("sqs", "ReceiveMessage", POLLER, queue_url.rpartition("/")[2], size, count=requests)
        return received

    @functools.wraps(delete)
    def delete_and_count(queue_url: str, receipt_handles: set[str]) -> None:
        requests = -(-len(receipt_handles) // SQS_BATCH)
        counter.request("sqs", "DeleteMessageBatch", POLLER, queue_url.rpartition("/")[2], count=requests)
        delete(queue_url, receipt_handles)

    sqs._receive_messages_for_esm = receive_and_count
    sqs._delete_messages_for_esm = delete_and_count


def count_events(eventbridge: Any, counter: Counter) -> None:
    """Patch the emulator's EventBridge: count what its rules put on queues."""
    to_sqs: Callable[..., None] = eventbridge._dispatch_to_sqs

    @functools.wraps(to_sqs)
    def put_and_count(spec: Any, payload: str, *more: Any) -> None:
        counter.request("sqs", "SendMessage", EVENTBRIDGE, spec.resource, len(payload.encode()))
        to_sqs(spec, payload, *more)

    eventbridge._dispatch_to_sqs = put_and_count


def count_invocations(worker: Any, counter: Counter) -> None:
    """Patch the emulator's environment of a native function: count its runs and how long each takes.

    After each answer the emulator waits for what the function may still print. That is no time of the function's.
    """
    invoke = worker.invoke
    drain = worker._drain_stderr_bounded
    waited = threading.local()

    @functools.wraps(drain)
    def drain_and_measure(self: Any, *args: Any, **options: Any) -> str:
        begun = time.monotonic()
        try:
            return str(drain(self, *args, **options))
        finally:
            waited.seconds = getattr(waited, "seconds", 0.0) + time.monotonic() - begun

    @functools.wraps(invoke)
    def invoke_and_count(self: Any, *args: Any, **options: Any) -> dict[str, Any]:
        waited.seconds = 0.0
        begun = time.monotonic()
        result: dict[str, Any] = invoke(self, *args, **options)
        seconds = time.monotonic() - begun - waited.seconds
        memory = int(self.config.get("MemorySize") or 128)
        counter.invocation(self.func_name, seconds, memory, bool(result.get("cold_start")), result.get("log") or "")
        return result

    worker._drain_stderr_bounded = drain_and_measure
    worker.invoke = invoke_and_count


def main() -> None:
    """Run the emulator as its own command does."""
    from ministack import app
    from ministack.app import main as run
    from ministack.core.lambda_runtime import ProvidedWorker
    from ministack.services import cloudwatch, eventbridge, scheduler, sqs

    if counts := os.environ.get(COUNTS):
        counter = Counter(Path(counts))
        count_requests(app, counter)
        count_polls(sqs, counter)
        count_events(eventbridge, counter)
        count_invocations(ProvidedWorker, counter)
        counter.write_on()
    if control := os.environ.get(CONTROL):
        deliver_twice(sqs, Redelivery(Path(control)))
    heed_dimensions(cloudwatch)
    eventbridge._put_events = functools.partial(eventbridge._put_events, allow_aws_source=True)
    scheduler._SCHEDULE_TICK_INTERVAL = SCHEDULER_SECONDS
    run()


if __name__ == "__main__":
    main()
