"""A service that invokes `reserve` learns its slot at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from tests.local.queues import LIVE
from tests.stack.desk import Desk, key, request, times_sent


def test_the_answer_holds_the_slot_that_the_mail_then_takes(desk: Desk, send_id: Callable[[], str]) -> None:
    good, bad = request(send_id(), lane="priority"), request(send_id(), to=[])
    before = time.time() * 1000
    booked, refused = desk.invoke_reserve(good, bad)

    assert (booked["send_id"], booked["status"]) == (good["send_id"], "booked")
    assert (refused["send_id"], refused["status"]) == (bad["send_id"], "refused")
    assert refused["reason"]
    assert refused["message"]
    assert before - 1000 <= booked["slot_ms"] <= before + 30_000
    shown = datetime.fromisoformat(booked["slot"].replace("Z", "+00:00")).timestamp() * 1000
    assert abs(shown - booked["slot_ms"]) < 1
    arrivals = desk.settled([key(good)])
    assert times_sent(arrivals) == {key(good): 1}
    assert arrivals[0].at_ms >= booked["slot_ms"]
    assert desk.arrivals([key(bad)]) == []


def test_answers_come_in_the_order_of_the_questions(desk: Desk, send_id: Callable[[], str]) -> None:
    made = [request(send_id()) for _ in range(20)]
    results = desk.invoke_reserve(*made)
    assert [result["send_id"] for result in results] == [each["send_id"] for each in made]
    slots = [result["slot_ms"] for result in results if result["status"] == "booked"]
    assert len(slots) == 20
    assert slots == sorted(slots)
    assert times_sent(desk.settled(map(key, made))) == dict.fromkeys(map(key, made), 1)


def test_a_service_that_sends_by_itself_gets_slots_and_nothing_else_happens(
    desk: Desk, send_id: Callable[[], str]
) -> None:
    good, bad = {"tenant": "tenant-1", "recipients": 3, "send_id": send_id()}, {"tenant": "nobody"}
    before = time.time() * 1000
    bulk, refused, priority = desk.invoke_reserve(good, bad, good | {"lane": "priority"}, enqueue=False)
    assert {output: desk.queues.depth(output) for output in LIVE} == dict.fromkeys(LIVE, 0)

    for slot in (bulk, priority):
        assert (slot["send_id"], slot["status"]) == (good["send_id"], "slot")
        assert before - 1000 <= slot["slot_ms"] <= before + 30_000
        assert 0 <= slot["wait_ms"] <= 30_000
    assert (refused["status"], refused["reason"]) == ("refused", "unknown_tenant")
    assert desk.arrivals([("tenant-1", good["send_id"])]) == []
