"""A small consumer of SES's events: what tells the functions that an uncertain mail was sent.

A rule on EventBridge's default bus puts `Email Sent` on a queue; each event ends its mail's claim by `commit.lua`, as
the owner "event". The functions' own consumer will do the same.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from typing import Any

import valkey

from tests.local.paths import LUA
from tests.local.report import Key
from tests.local.stack import Stack

NAME = "chaos-events"
# Longer than any mail of a run lives; a mark is as old as MaxMessageAge and a day in production.
LIFE_MS = 15 * 86_400_000


def mail_of(detail: dict[str, Any]) -> Key | None:
    """The mail that an event is about; none if it isn't ours."""
    tags = detail.get("mail", {}).get("tags", {})
    tenant, send_id = tags.get("tenant"), tags.get("send_id")
    return (tenant[0], send_id[0]) if tenant and send_id else None


def claim_key(budget: str, mail: Key) -> str:
    """The key in Redis of the claim that a mail was sent under."""
    return f"sendslot:{{{budget}}}:claim:{mail[0]}:{mail[1]}"


class Events:
    """The rule, the queue and the consumer of one stack."""

    def __init__(self, stack: Stack, budget: str = "ses") -> None:
        self._stack = stack
        self._budget = budget
        self._sqs = stack.client("sqs")
        self._queue = self._subscribe()
        self._commit = (LUA / "src" / "lua" / "commit.lua").read_text()
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
    def consumed(self) -> Iterator[None]:
        """Set marks while the block runs; an error of the consumer is raised at its end."""
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
            with self._stack.redis() as redis:
                while not self._stop.is_set():
                    self._take(redis)
        except Exception as error:
            self._failure = error

    def _take(self, redis: valkey.Valkey) -> None:
        answer = self._sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        messages = answer.get("Messages", [])
        if not messages:
            return
        found = [mail_of(json.loads(message["Body"])["detail"]) for message in messages]
        mails = [mail for mail in found if mail]
        if mails:
            keys = [claim_key(self._budget, mail) for mail in mails]
            ends = ["sent", 1] * len(keys)
            guard = f"sendslot:{{{self._budget}}}:guard"
            redis.eval(self._commit, 1 + len(keys), guard, *keys, "event", LIFE_MS, *ends)
        self._confirmed.update(mails)
        entries = [{"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]} for n, message in enumerate(messages)]
        self._sqs.delete_message_batch(QueueUrl=self._queue, Entries=entries)
