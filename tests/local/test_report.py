"""The report on records made by hand, where every figure can be seen."""

from __future__ import annotations

import pytest

from tests.local.report import Arrival, HandedIn, failures, peak_in_a_second, percentile, report, rest_in_time


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


def run(
    arrivals: list[Arrival], handed_in: dict[tuple[str, str], HandedIn] | None = None, big: str | None = None
) -> dict[str, object]:
    taken = handed_in if handed_in is not None else {a.key: HandedIn("bulk", 0) for a in arrivals}
    return report(
        mails=len(taken),
        handed_in=taken,
        arrivals=arrivals,
        limit_per_second=10,
        budget_per_second=9.8,
        redis_calls=30,
        big=big,
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
    assert rest_in_time(result) is None


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


def beside_a_big_one(*more: Arrival, handed_in: dict[tuple[str, str], HandedIn] | None = None) -> dict[str, object]:
    """The big tenant's 200 mails handed in at 0, and at 10 s one of beta's and two of gamma's."""
    arrivals = [arrival(n, 100.0 * (n + 1), tenant="acme") for n in range(200)]
    arrivals += [arrival(300, 11_000, tenant="beta"), arrival(301, 14_000, tenant="gamma"), *more]
    taken = {a.key: HandedIn("bulk", 0 if a.key[0] == "acme" else 10_000) for a in arrivals}
    return run(arrivals, taken | (handed_in or {}), big="acme")


def test_a_big_tenant_and_the_rest_are_told_apart() -> None:
    result = beside_a_big_one(arrival(302, 12_500, tenant="gamma"))
    assert result["big_tenant_latency_ms"] == {"p50": 10_000.0, "p99": 19_800.0, "max": 20_000.0}
    assert result["rest_latency_ms"] == {"p50": 2500.0, "p99": 4000.0, "max": 4000.0}
    assert result["rest_p99_ms"] == {"beta": 1000.0, "gamma": 4000.0}
    line = "p99 of each of the rest <= 4 s: yes, the highest is 4.00 s (gamma)"
    assert rest_in_time(result) == (True, line)


def test_one_late_tenant_of_the_rest_is_enough() -> None:
    result = beside_a_big_one(arrival(302, 14_100, tenant="beta"))
    assert result["rest_p99_ms"] == {"beta": 4100.0, "gamma": 4000.0}
    line = "p99 of each of the rest <= 4 s: no, 1 of 2 are later, the highest is 4.10 s (beta)"
    assert rest_in_time(result) == (False, line)
    assert failures(result) == [], "it was sent all the same"


def test_of_the_rest_only_bulk_mail_counts_and_from_its_first_acceptance() -> None:
    urgent = {("gamma", "m400"): HandedIn("priority", 10_000)}
    again = [arrival(300, 10_500, "throttled", tenant="beta"), arrival(300, 30_000, tenant="beta")]
    result = beside_a_big_one(arrival(400, 30_000, tenant="gamma"), *again, handed_in=urgent)
    assert result["rest_p99_ms"] == {"beta": 1000.0, "gamma": 4000.0}
    assert result["priority_latency_ms"] == {"p50": 20_000.0, "p99": 20_000.0}


def test_a_tenant_of_which_nothing_arrived_was_not_in_time() -> None:
    result = beside_a_big_one(handed_in={("delta", "m0"): HandedIn("bulk", 0)})
    assert result["rest_p99_ms"] == {"beta": 1000.0, "gamma": 4000.0, "delta": None}
    assert rest_in_time(result) == (False, "p99 of each of the rest <= 4 s: no, nothing arrived of delta")
    nothing = run([], {("acme", "m0"): HandedIn("bulk", 0)}, big="acme")
    assert nothing["rest_latency_ms"] == {"p50": None, "p99": None, "max": None}
    assert rest_in_time(nothing) == (False, "p99 of each of the rest <= 4 s: no, nothing arrived of any of them")


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
