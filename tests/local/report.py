"""What a run came to, computed from what arrived. Pure: no clock, no network, no files.

Duplicates, losses, throttles and the peak come from the provider's record of arrivals, never from
our own counters, so that a bug can't report itself as fine.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: A message's identity: send ids are scoped by tenant.
Key = tuple[str, str]

#: The longest that the other tenants' mail should take behind a big tenant's burst, in 99 of 100 cases.
REST_P99_MS = 4000.0


@dataclass(frozen=True)
class HandedIn:
    """A message that its intake queue took."""

    lane: str
    #: Unix time in ms at which the producer began to hand it in.
    at_ms: float


@dataclass(frozen=True)
class Arrival:
    """One SendEmail request, as the provider recorded it."""

    #: Unix time in ms at which the request was read, before any simulated latency.
    at_ms: float
    recipients: int
    outcome: str
    key: Key
    lane: str
    slot_ms: float | None
    grant_ms: float | None
    configuration_set: str | None
    #: How the provider was made to misbehave, if it was.
    fault: str | None = None

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Arrival:
        """Read one line of the simulator's record."""

        def number(name: str) -> float | None:
            value = line.get(name)
            return None if value in (None, "") else float(value)

        return cls(
            at_ms=float(line["at_ms"]),
            recipients=int(line["recipients"]),
            outcome=line["outcome"],
            key=(line.get("tenant") or "", line.get("send_id") or ""),
            lane=line.get("lane") or "",
            slot_ms=number("slot_ms"),
            grant_ms=number("grant_ms"),
            configuration_set=line.get("configuration_set"),
            fault=line.get("fault"),
        )

    @property
    def accepted(self) -> bool:
        """Whether the provider took the mail."""
        return self.outcome == "accepted"


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least `share` of the values don't exceed; null of nothing."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def peak_in_a_second(events: Iterable[tuple[float, int]]) -> int:
    """The most recipients in any sliding second, (t − 1 s, t], of (Unix ms, recipients)."""
    window: deque[tuple[float, int]] = deque()
    held = peak = 0
    for at_ms, recipients in sorted(events):
        window.append((at_ms, recipients))
        held += recipients
        while window[0][0] <= at_ms - 1000:
            held -= window.popleft()[1]
        peak = max(peak, held)
    return peak


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def p50_p99(values: Sequence[float]) -> dict[str, float | None]:
    """The two figures that tell how it usually is and how bad it gets, in ms."""
    return {"p50": _rounded(percentile(values, 0.50)), "p99": _rounded(percentile(values, 0.99))}


def p50_p99_max(values: Sequence[float]) -> dict[str, float | None]:
    """And the worst that happened."""
    return p50_p99(values) | {"max": _rounded(max(values, default=None))}


def report(
    *,
    mails: int,
    handed_in: Mapping[Key, HandedIn],
    arrivals: Sequence[Arrival],
    limit_per_second: float,
    budget_per_second: float,
    redis_calls: int,
    big: str | None = None,
) -> dict[str, Any]:
    """The fields of `report.json`, in its order. Those on tenants are there if one is `big`."""
    sent = Counter(arrival.key for arrival in arrivals if arrival.accepted)
    first: dict[Key, Arrival] = {}
    for arrival in sorted(arrivals, key=lambda arrival: arrival.at_ms):
        if arrival.accepted:
            first.setdefault(arrival.key, arrival)
    times = [arrival.at_ms for arrival in arrivals]
    drain = (max(times) - min(times)) / 1000 if times else 0.0
    ideal = sum(arrival.recipients for arrival in first.values()) / limit_per_second
    latency = {key: first[key].at_ms - message.at_ms for key, message in handed_in.items() if key in first}
    return {
        "mails": mails,
        "accepted": len(handed_in),
        "sent": len(sent),
        "duplicates": sum(sent.values()) - len(sent),
        "lost": sum(key not in sent for key in handed_in),
        "throttled": sum(arrival.outcome == "throttled" for arrival in arrivals),
        "limit_per_second": limit_per_second,
        "budget_per_second": round(budget_per_second, 6),
        "peak_arrivals_per_second": peak_in_a_second((a.at_ms, a.recipients) for a in arrivals),
        "peak_grants_per_second": peak_in_a_second(
            (a.grant_ms, a.recipients) for a in arrivals if a.grant_ms is not None
        ),
        "drain_seconds": round(drain, 3),
        "ideal_seconds": round(ideal, 3),
        "utilisation": round(ideal / drain, 4) if drain else None,
        "slot_error_ms": p50_p99([a.at_ms - a.slot_ms for a in arrivals if a.slot_ms is not None]),
        "priority_latency_ms": p50_p99([value for key, value in latency.items() if handed_in[key].lane == "priority"]),
        **(_by_tenant(handed_in, latency, big) if big else {}),
        "redis_calls_per_mail": round(redis_calls / len(sent), 4) if sent else None,
    }


def _by_tenant(handed_in: Mapping[Key, HandedIn], latency: Mapping[Key, float], big: str) -> dict[str, Any]:
    """How long the bulk mail took of the tenant that had more than the others, and theirs."""
    of: dict[str, list[float]] = {key[0]: [] for key, message in handed_in.items() if message.lane == "bulk"}
    for key, value in latency.items():
        if handed_in[key].lane == "bulk":
            of[key[0]].append(value)
    large = of.pop(big, [])
    return {
        "big_tenant_latency_ms": p50_p99_max(large),
        "rest_latency_ms": p50_p99_max([value for values in of.values() for value in values]),
        "rest_p99_ms": {tenant: _rounded(percentile(values, 0.99)) for tenant, values in of.items()},
    }


def rest_in_time(result: Mapping[str, Any]) -> tuple[bool, str] | None:
    """(whether each tenant beside a big one had its mail in time, the line that says so); None if none was big."""
    if "rest_p99_ms" not in result:
        return None
    asked = f"p99 of each of the rest <= {REST_P99_MS / 1000:g} s"
    missing = [tenant for tenant, p99 in result["rest_p99_ms"].items() if p99 is None]
    if missing or not result["rest_p99_ms"]:
        return False, f"{asked}: no, nothing arrived of {', '.join(missing) or 'any of them'}"
    tenant, worst = max(result["rest_p99_ms"].items(), key=lambda item: item[1])
    late = sum(p99 > REST_P99_MS for p99 in result["rest_p99_ms"].values())
    count = f", {late} of {len(result['rest_p99_ms'])} are later" if late else ""
    return not late, f"{asked}: {'no' if late else 'yes'}{count}, the highest is {worst / 1000:.2f} s ({tenant})"


def failures(result: Mapping[str, Any]) -> list[str]:
    """Why the run is not a success: empty when every mail went, once, without a throttle."""
    reasons = [f"{result[name]:,} {name}" for name in ("throttled", "duplicates", "lost") if result[name]]
    if result["accepted"] != result["mails"]:
        reasons.append(f"the intake queues took {result['accepted']:,} of {result['mails']:,} mails")
    return reasons
