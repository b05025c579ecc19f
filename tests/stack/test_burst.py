"""A burst over both lanes and two tenants, judged by what reached the provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.stack.conftest import KNOBS
from tests.stack.desk import Desk, key, request, times_sent

CAPACITY = -(-float(KNOBS["RATE"]) * float(KNOBS["HEADROOM"]) // 1)


def test_every_mail_arrives_once_at_its_slot_and_nothing_is_throttled(desk: Desk, send_id: Callable[[], str]) -> None:
    bulk = [request(send_id(), f"tenant-{n % 2 + 1}") for n in range(160)]
    priority = [request(send_id(), f"tenant-{n % 2 + 1}") for n in range(40)]
    desk.hand_in("bulk", bulk)
    desk.hand_in("priority", priority)
    keys = [key(made) for made in bulk + priority]

    arrivals = desk.settled(keys)

    assert times_sent(arrivals) == dict.fromkeys(keys, 1)
    assert [a for a in arrivals if not a.accepted] == []
    lanes = {key(made): "bulk" for made in bulk} | {key(made): "priority" for made in priority}
    assert {a.key: a.lane for a in arrivals} == lanes
    early = [a for a in arrivals if a.slot_ms is None or a.at_ms < a.slot_ms]
    assert early == [], "nothing may arrive before its slot"
    cells = Counter(int(a.slot_ms or 0) // 1000 for a in arrivals)
    assert max(cells.values()) <= CAPACITY, "no second may be booked beyond the budget"


def test_the_provider_sees_whose_mail_it_is(desk: Desk, send_id: Callable[[], str]) -> None:
    made = [request(send_id(), f"tenant-{number}") for number in (1, 2)]
    desk.hand_in("bulk", made)
    arrivals = desk.settled(map(key, made))
    assert {a.configuration_set for a in arrivals} == {"tenant-1", "tenant-2"}
    assert all(a.configuration_set == a.key[0] for a in arrivals)


def test_a_send_id_is_sent_once_however_often_it_is_handed_in(desk: Desk, send_id: Callable[[], str]) -> None:
    twice, others = request(send_id()), [request(send_id()) for _ in range(5)]
    desk.hand_in("bulk", [twice, *others, twice])
    keys = [key(made) for made in (twice, *others)]
    desk.settled(keys)
    desk.hand_in("bulk", [twice])
    assert times_sent(desk.settled(keys)) == dict.fromkeys(keys, 1)


def test_two_tenants_may_use_the_same_send_id(desk: Desk, send_id: Callable[[], str]) -> None:
    shared = send_id()
    made = [request(shared, "tenant-1"), request(shared, "tenant-2")]
    desk.hand_in("bulk", made)
    assert times_sent(desk.settled(map(key, made))) == dict.fromkeys(map(key, made), 1)
