"""The report on records made by hand, where every figure can be seen."""

from __future__ import annotations

import pytest

from tests.local.report import Arrival, HandedIn, failures, peak_in_a_second, percentile, report


def arrival(number: int, at_ms: float, outcome: str = "accepted", **more: object) -> Arrival:
    line = {
        "at_ms": at_ms,
        "recipients": 1,
        "outcome": outcome,
        "send_id": f"m{number}",
        "tenant": "acme",
        "lane": "bulk",
    }
    return Arrival.of(line | more)


def run(arrivals: list[Arrival], handed_in: dict[tuple[str, str], HandedIn] | None = None) -> dict[str, object]:
    taken = handed_in if handed_in is not None else {a.key: HandedIn("bulk", 0) for a in arrivals}
    return report(
        mails=len(taken),
        handed_in=taken,
        arrivals=arrivals,
        limit_per_second=10,
        budget_per_second=9.8,
        redis_calls=30,
    )


def test_a_clean_run() -> None:
    arrivals = [arrival(n, 1000 + 100 * n, slot_ms=990 + 100 * n, grant_ms=str(995 + 100 * n)) for n in range(101)]
    result = run(arrivals)
    assert list(result) == [
        "mails", "accepted", "sent", "duplicates", "lost", "throttled", "limit_per_second", "budget_per_second",
        "peak_arrivals_per_second", "peak_grants_per_second", "drain_seconds", "ideal_seconds", "utilisation",
        "slot_error_ms", "priority_latency_ms", "redis_calls_per_mail",
    ]  # fmt: skip
    assert result == {
        "mails": 101,
        "accepted": 101,
        "sent": 101,
        "duplicates": 0,
        "lost": 0,
        "throttled": 0,
        "limit_per_second": 10,
        "budget_per_second": 9.8,
        "peak_arrivals_per_second": 10,
        "peak_grants_per_second": 10,
        "drain_seconds": 10.0,
        "ideal_seconds": 10.1,
        "utilisation": 1.01,
        "slot_error_ms": {"p50": 10.0, "p99": 10.0},
        "priority_latency_ms": {"p50": None, "p99": None},
        "redis_calls_per_mail": 0.297,
    }
    assert failures(result) == []


def test_a_second_acceptance_is_a_duplicate_whoever_else_uses_the_id() -> None:
    other_tenant = arrival(1, 1200, tenant="beta")
    result = run([arrival(1, 1000), other_tenant, arrival(1, 1300), arrival(1, 1400)])
    assert (result["sent"], result["duplicates"]) == (2, 2)
    assert failures(result) == ["2 duplicates"]


def test_what_only_met_throttles_is_lost_and_what_came_through_later_is_not() -> None:
    taken = {("acme", f"m{n}"): HandedIn("bulk", 0) for n in range(3)}
    result = run([arrival(0, 1000, "throttled"), arrival(1, 1100, "throttled"), arrival(1, 1900)], taken)
    assert (result["sent"], result["lost"], result["throttled"], result["duplicates"]) == (1, 2, 2, 0)
    assert failures(result) == ["2 throttled", "2 lost"]


def test_mail_that_no_queue_took_is_a_failure_but_not_lost() -> None:
    result = report(mails=2, handed_in={("acme", "m0"): HandedIn("bulk", 0)}, arrivals=[arrival(0, 5)],
                    limit_per_second=10, budget_per_second=9, redis_calls=0)  # fmt: skip
    assert result["lost"] == 0
    assert failures(result) == ["the intake queues took 1 of 2 mails"]


def test_priority_latency_runs_from_hand_in_to_the_first_acceptance() -> None:
    taken = {("acme", "m0"): HandedIn("priority", 500), ("acme", "m1"): HandedIn("bulk", 0)}
    result = run([arrival(0, 700, "throttled"), arrival(0, 900), arrival(0, 1500), arrival(1, 9000)], taken)
    assert result["priority_latency_ms"] == {"p50": 400.0, "p99": 400.0}


def test_recipients_not_requests_are_counted() -> None:
    result = run([arrival(0, 0, recipients=50), arrival(1, 5000, recipients=50)])
    assert (result["peak_arrivals_per_second"], result["ideal_seconds"]) == (50, 10.0)


def test_nothing_arrived() -> None:
    result = run([], {("acme", "m0"): HandedIn("bulk", 0)})
    assert (result["lost"], result["drain_seconds"], result["utilisation"]) == (1, 0.0, None)
    assert result["redis_calls_per_mail"] is None


@pytest.mark.parametrize(
    ("times", "peak"),
    [([], 0), ([0], 1), ([0, 999.9], 2), ([0, 1000], 1), ([0, 500, 1000, 1400], 3), ([1400, 0, 1000, 500], 3)],
)
def test_a_sliding_second_is_open_at_its_start(times: list[float], peak: int) -> None:
    assert peak_in_a_second((time, 1) for time in times) == peak


def test_percentiles_are_values_that_occurred() -> None:
    values = list(range(1, 101))
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7], 0.99)) == (50, 99, 7)
    assert percentile([], 0.5) is None
