"""When what is handed in, seen by a queue that only takes notes."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from tests.local.mails import Mail, Plan, made_up
from tests.local.producer import Producer


class Notes:
    """In the place of a stack and of its SQS."""

    outputs = {"BulkIntakeQueueUrl": "bulk", "PriorityIntakeQueueUrl": "priority"}  # noqa: RUF012

    def __init__(self) -> None:
        self.calls: list[tuple[float, str, list[str]]] = []
        self._lock = threading.Lock()

    def client(self, _service: str, **_options: Any) -> Notes:
        return self

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
        ids = [json.loads(entry["MessageBody"])["send_id"] for entry in Entries]
        with self._lock:
            self.calls.append((time.monotonic(), QueueUrl, ids))
        return {"Successful": Entries}

    def of(self, mails: list[Mail]) -> list[tuple[float, str, list[str]]]:
        """The calls that held any of these."""
        wanted = {mail.key[1] for mail in mails}
        return [call for call in self.calls if wanted & set(call[2])]


def plan(trickle: int, seconds: float) -> Plan:
    return Plan(
        burst=[made_up("bulk", n, "big") for n in range(95)],
        urgent=[],
        trickle=[made_up("bulk", 1000 + n, ("a", "b")[n % 2]) for n in range(trickle)],
        trickle_seconds=seconds,
        tenants=["big", "a", "b"],
        big="big",
    )


def wait_for(producer: Producer) -> None:
    deadline = time.monotonic() + 20
    while not producer.finished():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_burst_goes_at_once_and_the_trickle_one_by_one_in_its_order() -> None:
    notes, made = Notes(), plan(20, 0.02)
    producer = Producer(notes, made)
    begun, taken = time.monotonic(), []
    producer.hand_in_burst(taken.append)
    assert sum(taken) == 95
    wait_for(producer)
    assert sorted(len(ids) for _, _, ids in notes.of(made.burst)) == [5] + [10] * 9
    trickle = notes.of(made.trickle)
    assert [ids for _, _, ids in trickle] == [[mail.key[1]] for mail in made.trickle]
    assert {queue for _, queue, _ in notes.calls} == {"bulk"}
    early = [number for number, (at, _, _) in enumerate(trickle, 1) if at < begun + number * made.trickle_seconds]
    assert early == []
    assert producer.handed_in.keys() == {mail.key for mail in made.burst + made.trickle}


def test_a_trickle_that_was_held_up_hands_in_what_is_due() -> None:
    notes, made = Notes(), plan(20, 0.03)
    take = notes.send_message_batch
    held = iter([True])

    def slow_once(**call: Any) -> dict[str, Any]:
        if threading.current_thread().name == "trickle" and next(held, False):
            time.sleep(20 * made.trickle_seconds)
        return take(**call)

    notes.send_message_batch = slow_once
    producer = Producer(notes, made)
    producer.hand_in_burst(lambda _: None)
    wait_for(producer)
    times = [at for at, _, _ in notes.of(made.trickle)]
    assert times[-1] - times[0] < 10 * made.trickle_seconds, "all were due by then"


def test_stopping_ends_the_trickle() -> None:
    notes, made = Notes(), plan(20, 60)
    producer = Producer(notes, made)
    producer.hand_in_burst(lambda _: None)
    assert not producer.finished()
    producer.stop()
    wait_for(producer)
    assert notes.of(made.trickle) == []
