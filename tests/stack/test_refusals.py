"""What can't be sent goes to the intake's dead-letter queue with its reason, and holds nothing up."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.local.queues import DEAD
from tests.stack.desk import Desk, key, request, times_sent


def reason(message: dict[str, Any]) -> str:
    return message["MessageAttributes"]["SendslotReason"]["StringValue"]


def test_bad_requests_are_dead_lettered_and_their_neighbours_go(desk: Desk, send_id: Callable[[], str]) -> None:
    many = [f"someone-{n}@example.org" for n in range(51)]
    bad = {
        "malformed": '{"send_id": "',
        "lane": json.dumps(request(send_id(), lane="slow")),
        "recipients": json.dumps(request(send_id(), to=many)),
        "tenant": json.dumps(request(send_id(), tenant="nobody")),
        "no send id": json.dumps({"tenant": "tenant-1"}),
    }
    good = [request(send_id()) for _ in range(5)]
    # One SendMessageBatch, so that they meet in one batch of the function.
    desk.hand_in("bulk", [*bad.values(), *good])

    arrivals = desk.settled(map(key, good))
    dead = desk.dead_letters("BulkIntakeDlqUrl", lambda message: message["Body"] in bad.values(), len(bad))

    assert times_sent(arrivals) == dict.fromkeys(map(key, good), 1)
    assert sorted(message["Body"] for message in dead) == sorted(bad.values()), "each as it was handed in"
    assert all(reason(message) for message in dead)
    by_body = {message["Body"]: reason(message) for message in dead}
    assert len({by_body[bad[name]] for name in ("malformed", "lane", "recipients", "tenant")}) >= 3, by_body
    details = [message["MessageAttributes"]["SendslotDetail"]["StringValue"] for message in dead]
    assert not any("example.org" in detail for detail in details), "no addresses in what operators read"


def test_the_queue_decides_the_lane(desk: Desk, send_id: Callable[[], str]) -> None:
    contradiction = json.dumps(request(send_id(), lane="priority"))
    desk.hand_in("bulk", [contradiction])
    [dead] = desk.dead_letters("BulkIntakeDlqUrl", lambda message: message["Body"] == contradiction, 1)
    assert reason(dead)


def test_nothing_else_was_dead_lettered(desk: Desk) -> None:
    # Counted, not received: a letter that a test saw and didn't expect is hidden for a while, and still in flight.
    depths = {output: desk.queues.depth(output) for output in DEAD}
    assert depths == dict.fromkeys(DEAD, 0), desk.queues.dead_letters()
