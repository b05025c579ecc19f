"""Redis may lose everything: the functions load their scripts and seed the budget again."""

from __future__ import annotations

from collections.abc import Callable

from tests.stack.desk import Desk, key, request, times_sent


def test_mail_goes_on_after_redis_lost_everything(desk: Desk, send_id: Callable[[], str]) -> None:
    with desk.stack.redis() as redis:
        # Environments that know the scripts and the budget, so that both are missed.
        before = [request(send_id()) for _ in range(3)]
        desk.hand_in("bulk", before)
        desk.settled(map(key, before))
        redis.flushall()
        redis.script_flush()

    after = [request(send_id(), f"tenant-{n % 2 + 1}") for n in range(12)]
    desk.hand_in("bulk", after[:8])
    desk.hand_in("priority", after[8:])

    assert times_sent(desk.settled(map(key, after))) == dict.fromkeys(map(key, after), 1)
