"""Looks at the stack's queues."""

from __future__ import annotations

from collections import Counter
from typing import Any

from .stack import Stack

LIVE = ("PriorityIntakeQueueUrl", "BulkIntakeQueueUrl", "PrioritySendQueueUrl", "BulkSendQueueUrl")
DEAD = ("PriorityIntakeDlqUrl", "BulkIntakeDlqUrl", "PrioritySendDlqUrl", "BulkSendDlqUrl")
_COUNTS = tuple(f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed"))


class Queues:
    """The queues of one stack, by the names of its outputs."""

    def __init__(self, stack: Stack) -> None:
        self._sqs: Any = stack.client("sqs")
        self._outputs = stack.outputs

    def depth(self, output: str) -> int:
        """Messages in the queue: visible, received and delayed."""
        url = self._outputs[output]
        answer = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=list(_COUNTS))
        return sum(int(answer["Attributes"][name]) for name in _COUNTS)

    def empty(self) -> bool:
        """Whether nothing is under way any more."""
        return not any(self.depth(output) for output in LIVE)

    def receive_all(self, output: str) -> list[dict[str, Any]]:
        """Every message that can be received now. They are hidden for a while, not deleted."""
        messages: list[dict[str, Any]] = []
        while True:
            answer = self._sqs.receive_message(
                QueueUrl=self._outputs[output],
                MaxNumberOfMessages=10,
                WaitTimeSeconds=0,
                VisibilityTimeout=60,
                MessageAttributeNames=["All"],
            )
            if not answer.get("Messages"):
                return messages
            messages += answer["Messages"]

    def dead_letters(self) -> Counter[str]:
        """What is in the dead-letter queues, by reason."""
        reasons: Counter[str] = Counter()
        for output in DEAD:
            for message in self.receive_all(output):
                attribute = message.get("MessageAttributes", {}).get("SendslotReason", {})
                reasons[attribute.get("StringValue", "received too often")] += 1
        return reasons
