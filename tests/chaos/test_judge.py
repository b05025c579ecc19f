"""The judge: from what was seen to a line of the table."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos import judge
from tests.chaos.judge import Evidence, Rules, Span, row
from tests.local.report import Arrival, Key

A, B, C, D = (("tenant-1", name) for name in "abcd")
RULES = Rules(limit_per_second=100, budget_per_second=98)


def arrival(key: Key, at_ms: float, outcome: str = "accepted", fault: str | None = None) -> Arrival:
    return Arrival(
        at_ms=at_ms,
        recipients=1,
        outcome=outcome,
        key=key,
        lane="bulk",
        slot_ms=None,
        grant_ms=None,
        configuration_set=key[0],
        fault=fault,
    )


def evenly(per_second: float, start_ms: float, seconds: float, name: str = "m") -> list[Arrival]:
    """Mails that arrive at a rate."""
    count = round(per_second * seconds)
    return [arrival(("tenant-1", f"{name}{n}"), start_ms + n * 1000 / per_second) for n in range(count)]


def keys(arrivals: Sequence[Arrival]) -> frozenset[Key]:
    return frozenset(a.key for a in arrivals)


def test_all_sent_once_is_fine() -> None:
    sent = evenly(98, 0, 3)
    result = row("nothing", Evidence(accepted=keys(sent), arrivals=sent), RULES)
    assert result["failures"] == []
    assert (result["accepted"], result["sent"], result["lost"], result["duplicates"]) == (294, 294, 0, 0)
    assert result["recovered_seconds"] is None


def test_each_end_is_counted_once_and_the_equation_is_exact() -> None:
    evidence = Evidence(
        accepted=frozenset({A, B, C, D}),
        arrivals=[arrival(A, 1, fault="error_after"), arrival(B, 2, "set_paused")],
        parked={A: "uncertain", B: "paused"},
        dead={C: "send_id_conflict", A: "uncertain"},
    )
    result = row("all at once", evidence, RULES)
    assert [result[name] for name in ("sent", "parked", "dead_lettered", "lost")] == [1, 1, 1, 1]
    assert result["parked_though_sent"] == ["tenant-1/a"]
    assert result["dead_lettered_though_sent"] == ["tenant-1/a"]
    assert result["lost_mails"] == ["tenant-1/d"]
    assert result["failures"] == ["1 lost (tenant-1/d)", "2 dead letters (send_id_conflict, uncertain)"]


def test_a_refused_mail_is_rejected_not_lost() -> None:
    result = row("bad", Evidence(accepted=frozenset({A}), arrivals=[arrival(A, 1, "invalid")]), RULES)
    assert (result["rejected"], result["lost"], result["failures"]) == (1, 0, [])


def test_accepted_with_a_fault_is_accepted() -> None:
    twice = [arrival(A, 1, fault="error_after"), arrival(A, 5000)]
    result = row("fails after", Evidence(accepted=frozenset({A}), arrivals=twice), RULES)
    assert (result["sent"], result["duplicates"], result["duplicates_allowed"]) == (1, 1, 0)
    assert result["failures"] == ["1 duplicates more than allowed (tenant-1/a)"]


def test_what_still_waits_is_unfinished() -> None:
    result = row("slow", Evidence(accepted=frozenset({A}), arrivals=[], waiting=1), RULES)
    assert result["failures"] == ["1 lost (tenant-1/a)", "unfinished: 1 messages still wait in the queues"]


def test_mail_that_nobody_took_must_not_arrive() -> None:
    result = row("odd", Evidence(accepted=frozenset({A}), arrivals=[arrival(A, 1), arrival(B, 2)]), RULES)
    assert result["failures"] == ["sent although no queue took it: tenant-1/b"]


def test_recovery_is_the_first_second_at_nine_tenths_of_the_budget() -> None:
    arrivals = [*evenly(98, 0, 2, "before"), *evenly(30, 5000, 3, "slow"), *evenly(98, 8000, 3, "fast")]
    assert judge.recovered_seconds(arrivals, 4000, 0.9 * 98) == pytest.approx(4.0, abs=0.15)


def test_recovery_is_the_last_mail_if_too_few_are_left() -> None:
    arrivals = [*evenly(98, 0, 2, "before"), *evenly(10, 5000, 2, "rest")]
    assert judge.recovered_seconds(arrivals, 4000, 0.9 * 98) == pytest.approx(2.9)
    assert judge.recovered_seconds(arrivals, 9000, 0.9 * 98) == 0


def test_a_resent_mail_doesnt_count_as_recovery() -> None:
    arrivals = [*evenly(98, 0, 1), *evenly(98, 5000, 1)]
    assert judge.recovered_seconds(arrivals, 4000, 0.9 * 98) == 0


def test_throttles_are_counted_from_the_first() -> None:
    times = (1500, 1900, 2499, 2501, 9000)
    arrivals = [*(arrival(A, at, "throttled") for at in times), arrival(A, 9100)]
    result = row("cut", Evidence(accepted=frozenset({A}), arrivals=arrivals), RULES)
    assert (result["throttled"], result["throttled_after_first_second"]) == (5, 2)
    assert result["throttled_seconds"] == [0, 1, 7]
    assert judge.few_throttles(Evidence(frozenset(), []), result) == [
        "throttles in 3 seconds after the cut, 2 are allowed: [0, 1, 7]"
    ]
    assert judge.few_throttles(Evidence(frozenset(), []), result | {"throttled_seconds": [0, 1]}) == []


def test_a_duplicate_over_a_loss_is_explained() -> None:
    evidence = Evidence(
        accepted=frozenset({A, B, C}),
        arrivals=[
            *(arrival(A, at) for at in (900, 30_000)),
            *(arrival(B, at) for at in (900, 30_000)),
            *(arrival(C, at) for at in (100, 200)),
        ],
        redelivered=frozenset({A, C}),
        losses=(Span(1000, 3000), Span(99_000, 99_001)),
    )
    result = row("killed", evidence, Rules(100, 98, allowance=judge.over_loss))
    assert (result["duplicates"], result["duplicates_allowed"]) == (3, 1)
    [explained] = [each for each in result["duplicate_mails"] if each["why"]]
    assert explained["mail"] == "tenant-1/a"
    assert explained["why"].endswith("so policy sent it again, 29.1 s after")
    assert result["failures"] == ["2 duplicates more than allowed (tenant-1/c, tenant-1/b)"]


def test_a_duplicate_while_redis_was_away_is_explained() -> None:
    evidence = Evidence(
        accepted=frozenset({A, B}),
        arrivals=[*(arrival(A, at) for at in (2000, 9000)), *(arrival(B, at) for at in (5000, 9000))],
        fault=Span(1000, 3000),
    )
    result = row("capped", evidence, Rules(100, 98, allowance=judge.while_away))
    assert (result["duplicates"], result["duplicates_allowed"]) == (2, 1)


def test_the_drain_is_judged_from_the_cut_on() -> None:
    rules = Rules(100, 98, lower_limit=60, checks=(judge.drains,))
    good = [*evenly(98, 0, 5, "before"), *evenly(57, 5000, 10, "after")]
    bad = [*evenly(98, 0, 5, "before"), *evenly(50, 5000, 10, "after")]
    cut = Span(5000, 20_000)
    assert row("cut", Evidence(keys(good), good, fault=cut), rules)["failures"] == []
    result = row("cut", Evidence(keys(bad), bad, fault=cut), rules)
    assert result["failures"] == ["draining took 10.0 s, 1.20 of the ideal 8.3 s"]
    assert (result["drain_seconds"], result["drain_ideal_seconds"]) == (9.98, 8.333)
    early = Evidence(keys(good), good, fault=Span(90_000, 91_000))
    assert row("cut", early, rules)["failures"] == ["nothing arrived under the lower limit"]


def test_capped_sends_and_stays_below_the_limit() -> None:
    check = judge.capped_at(100)
    away = Span(0, 10_000)
    for per_second, reasons in ((80, []), (125, ["125 in a second while Redis was away"])):
        arrivals = evenly(per_second, 0, 5)
        assert check(Evidence(keys(arrivals), arrivals, fault=away), {}) == reasons
    assert check(Evidence(frozenset(), [], fault=away), {}) == ["nothing was sent while Redis was away"]


def test_a_paused_tenant_sends_nothing_until_it_may() -> None:
    paused = ("tenant-1", Span(1000, 5000))
    refused = [arrival(A, 500), arrival(B, 2000, "set_paused"), arrival(("tenant-2", "a"), 2000), arrival(B, 6000)]
    evidence = Evidence(frozenset({A, B}), refused, paused=paused)
    assert judge.nothing_while_paused(evidence, {}) == []
    evidence = Evidence(frozenset({A, B}), [*refused, arrival(C, 3000)], paused=paused)
    assert judge.nothing_while_paused(evidence, {}) == ["1 of tenant-1 were sent while it was paused"]
    assert judge.something_was_parked(evidence, {}) == ["nothing was parked: the pause was not felt"]


def test_where_events_come_nothing_sent_stays_parked() -> None:
    evidence = Evidence(
        accepted=frozenset({A, B}),
        arrivals=[arrival(A, 1, fault="hang_after")],
        parked={A: "uncertain", B: "uncertain"},
        confirmed=frozenset({A}),
    )
    rules = Rules(100, 98, checks=(judge.events_came, judge.nothing_sent_stays_parked))
    assert row("hangs", evidence, rules)["failures"] == ["1 parked although they were accepted (tenant-1/a)"]
    unconfirmed = Evidence(accepted=frozenset({A}), arrivals=[arrival(A, 1)])
    assert judge.events_came(unconfirmed, {}) == ["no event came of 1 that were accepted (tenant-1/a)"]


def test_the_rest_must_not_stay_parked_where_all_must_be_sent() -> None:
    evidence = Evidence(accepted=frozenset({A}), arrivals=[], parked={A: "paused"})
    assert row("paused", evidence, Rules(100, 98, checks=(judge.all_sent,)))["failures"] == [
        "1 were not sent in the end"
    ]
