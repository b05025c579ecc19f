"""An observer of SES's events, beside the functions' own consumer: which mails' `Email Sent` came.

A rule of its own on EventBridge's default bus puts them on a queue of its own, so that what it says doesn't depend
on the function that is tested.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

from tests.local.report import Key
from tests.local.stack import Stack

NAME = "chaos-events"


def mail_of(detail: dict[str, Any]) -> Key | None:
    """The mail that an event is about; none if it isn't ours."""
    tags = detail.get("mail", {}).get("tags", {})
    tenant, send_id = tags.get("tenant"), tags.get("send_id")
    return (tenant[0], send_id[0]) if tenant and send_id else None


class Events:
    """The rule, the queue and the observer of one stack."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._sqs = stack.client("sqs")
        self._queue = self._subscribe()
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._confirmed: set[Key] = set()

    def _subscribe(self) -> str:
        queue: str = self._sqs.create_queue(QueueName=NAME)["QueueUrl"]
        arn = self._sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Principal": {"Service": "events.amazonaws.com"},
                    "Action": "sqs:SendMessage",
                    "Resource": arn,
                }
            ],
        }
        self._sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": json.dumps(policy)})
        events = self._stack.client("events")
        pattern = {"source": ["aws.ses"], "detail-type": ["Email Sent"]}
        events.put_rule(Name=NAME, EventPattern=json.dumps(pattern))
        answer = events.put_targets(Rule=NAME, Targets=[{"Id": "queue", "Arn": arn}])
        assert not answer["FailedEntryCount"], answer
        return queue

    @property
    def confirmed(self) -> frozenset[Key]:
        """The mails whose event came."""
        return frozenset(self._confirmed)

    @contextlib.contextmanager
    def observed(self) -> Iterator[None]:
        """Take them in while the block runs; an error is raised at its end."""
        self._stop.clear()
        thread = threading.Thread(target=self._consume, name=NAME, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(timeout=30)
        if self._failure:
            raise self._failure

    def _consume(self) -> None:
        try:
            while not self._stop.is_set():
                self._take()
        except Exception as error:
            self._failure = error

    def _take(self) -> None:
        answer = self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        messages = answer.get("Messages", [])
        if not messages:
            return
        found = [mail_of(json.loads(message["Body"])["detail"]) for message in messages]
        self._confirmed.update(mail for mail in found if mail)
        entries = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(messages)]
        self._sqs.delete_message_batch(QueueUrl=self._queue, Entries=entries)
