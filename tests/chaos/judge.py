"""What a burst came to while something failed. Pure: no clock, no network, no files.

Everything is computed from what others saw: the provider's record of arrivals, the queues and the bucket of parked
mail, never from the functions' own counters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.local.report import Arrival, Key, peak_in_a_second

#: The rate is back once a second brings this part of the budget.
RECOVERED = 0.9
#: Seconds with throttles that a cut of the limit may cost.
MOST_THROTTLED_SECONDS = 2
#: The drain after a cut of the limit, to what the new limit alone would take.
MOST_DRAIN = 1.1
#: What was granted just before Redis went is still on its way.
GRANTED_MS = 1000.0


@dataclass(frozen=True)
class Span:
    """When something was wrong, in Unix ms; without an end it was so until all was over."""

    start_ms: float
    end_ms: float | None = None

    def holds(self, at_ms: float) -> bool:
        """Whether a moment is in it."""
        return self.start_ms <= at_ms and (self.end_ms is None or at_ms <= self.end_ms)


@dataclass(frozen=True)
class Evidence:
    """What was seen of one burst."""

    #: What the intake queues took.
    accepted: frozenset[Key]
    #: The provider's record, of this burst's mails.
    arrivals: Sequence[Arrival]
    #: Dead letters and why.
    dead: Mapping[Key, str] = field(default_factory=dict)
    #: What lies in the bucket and why.
    parked: Mapping[Key, str] = field(default_factory=dict)
    #: Messages in the queues at the end.
    waiting: int = 0
    #: What the emulator handed out twice.
    redelivered: frozenset[Key] = frozenset()
    #: When the fault lasted; none if there is none with a beginning.
    fault: Span | None = None
    #: When Redis lost what it knew: killed, or flushed.
    losses: Sequence[Span] = ()
    #: A tenant that was paused, and when.
    paused: tuple[str, Span] | None = None
    #: What was parked at some time, also if it has been released since.
    was_parked: int = 0
    #: The mails whose `Send` event came.
    confirmed: frozenset[Key] = frozenset()


@dataclass(frozen=True)
class Duplicate:
    """A mail that the provider accepted more than once."""

    key: Key
    at_ms: tuple[float, ...]
    #: Why that may be; none if it may not.
    why: str | None


#: Says why a mail may have been accepted at these times, or nothing if it may not.
Allowance = Callable[[Evidence, Key, Sequence[float]], str | None]
#: Says what else is wrong with a row.
Check = Callable[[Evidence, Mapping[str, Any]], list[str]]


def never(_evidence: Evidence, _key: Key, _at_ms: Sequence[float]) -> str | None:
    """No mail may be accepted twice."""
    return None


def over_loss(evidence: Evidence, key: Key, at_ms: Sequence[float]) -> str | None:
    """Delivered twice by SQS, and Redis lost between each send and the next that it was sent."""
    between = [
        next(
            (loss for loss in evidence.losses if loss.end_ms and before <= loss.end_ms and after >= loss.start_ms), None
        )
        for before, after in itertools.pairwise(at_ms)
    ]
    if key not in evidence.redelivered or None in between:
        return None
    seconds = [(after - before) / 1000 for before, after in itertools.pairwise(at_ms)]
    return (
        "SQS delivered it twice, and Redis lost in between that it was sent; no event told, so policy sent it again, "
        + ", ".join(f"{after:.1f} s after" for after in seconds)
    )


def while_away(evidence: Evidence, _key: Key, at_ms: Sequence[float]) -> str | None:
    """Sent unclaimed while Redis couldn't be used."""
    fault = evidence.fault
    if fault and any(fault.holds(at) for at in at_ms):
        return "sent without a claim while Redis was away, as RedisDownPolicy capped says"
    return None


@dataclass(frozen=True)
class Rules:
    """What is asked of a row."""

    limit_per_second: float
    budget_per_second: float
    allowance: Allowance = never
    #: What the fault cut the limit to, if it did.
    lower_limit: float | None = None
    checks: Sequence[Check] = ()


def accepted_times(arrivals: Collection[Arrival]) -> dict[Key, list[float]]:
    """When the provider accepted each mail, in order, answered or not."""
    times: dict[Key, list[float]] = {}
    for arrival in sorted(arrivals, key=lambda arrival: arrival.at_ms):
        if arrival.accepted:
            times.setdefault(arrival.key, []).append(arrival.at_ms)
    return times


def duplicates(evidence: Evidence, allowance: Allowance) -> list[Duplicate]:
    """The mails that were accepted more than once, each with what explains it."""
    return [
        Duplicate(key=key, at_ms=tuple(at_ms), why=allowance(evidence, key, at_ms))
        for key, at_ms in accepted_times(evidence.arrivals).items()
        if len(at_ms) > 1
    ]


def recovered_seconds(arrivals: Collection[Arrival], end_ms: float, needed_per_second: float) -> float:
    """From the end of a fault to the first second that brings what is needed, or to the last mail if that is sooner."""
    first: dict[Key, Arrival] = {}
    for arrival in sorted(arrivals, key=lambda arrival: arrival.at_ms):
        if arrival.accepted:
            first.setdefault(arrival.key, arrival)
    after = [(arrival.at_ms, arrival.recipients) for arrival in first.values() if arrival.at_ms >= end_ms]
    if not after:
        return 0.0
    upto = 0
    recipients = 0
    for at_ms, own in after:
        while upto < len(after) and after[upto][0] < at_ms + 1000:
            recipients += after[upto][1]
            upto += 1
        if recipients >= needed_per_second:
            return round((at_ms - end_ms) / 1000, 3)
        recipients -= own
    return round((after[-1][0] - end_ms) / 1000, 3)


def throttled_seconds(arrivals: Collection[Arrival]) -> list[int]:
    """The seconds with throttles, counted from the first throttle on."""
    times = [arrival.at_ms for arrival in arrivals if arrival.outcome == "throttled"]
    return sorted({math.floor((at - min(times)) / 1000) for at in times})


def row(fault: str, evidence: Evidence, rules: Rules) -> dict[str, Any]:
    """One line of `chaos.json`: the figures asked for, then what explains them, then what is wrong with it."""
    times = accepted_times(evidence.arrivals)
    sent = set(times) & evidence.accepted
    rejected = {arrival.key for arrival in evidence.arrivals if arrival.outcome == "invalid"} & evidence.accepted - sent
    parked = evidence.parked.keys() & evidence.accepted
    dead = evidence.dead.keys() & evidence.accepted
    more = duplicates(evidence, rules.allowance)
    throttles = [arrival.at_ms for arrival in evidence.arrivals if arrival.outcome == "throttled"]
    ended = evidence.fault.end_ms if evidence.fault else None
    result: dict[str, Any] = {
        "fault": fault,
        "accepted": len(evidence.accepted),
        "sent": len(sent),
        "duplicates": sum(len(duplicate.at_ms) - 1 for duplicate in more),
        "duplicates_allowed": sum(len(duplicate.at_ms) - 1 for duplicate in more if duplicate.why),
        "lost": len(evidence.accepted - sent - rejected - parked - dead),
        "dead_lettered": len(dead - sent - rejected - parked),
        "parked": len(parked - sent - rejected),
        "throttled": len(throttles),
        "throttled_after_first_second": sum(at > min(throttles) + 1000 for at in throttles),
        "recovered_seconds": None
        if ended is None
        else recovered_seconds(evidence.arrivals, ended, RECOVERED * rules.budget_per_second),
        "rejected": len(rejected),
        "waiting": evidence.waiting,
        "parked_and_released": max(0, evidence.was_parked - len(parked)),
        "parked_though_sent": _named(parked & sent),
        "dead_lettered_though_sent": _named(dead & (sent | rejected | parked)),
        "dead_letter_reasons": {_name(key): reason for key, reason in sorted(evidence.dead.items())},
        "throttled_seconds": throttled_seconds(evidence.arrivals),
        "not_accepted_but_sent": _named(times.keys() - evidence.accepted),
        "lost_mails": _named(evidence.accepted - sent - rejected - parked - dead),
        "duplicate_mails": [
            {"mail": _name(duplicate.key), "at_ms": list(duplicate.at_ms), "why": duplicate.why} for duplicate in more
        ],
    }
    if rules.lower_limit:
        result |= drain(evidence, rules.lower_limit)
    result["failures"] = _failures(result)
    for check in rules.checks:
        result["failures"] += check(evidence, result)
    return result


def _name(key: Key) -> str:
    return "/".join(key)


def _named(keys: Collection[Key]) -> list[str]:
    return sorted(map(_name, keys))


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


def _failures(result: Mapping[str, Any]) -> list[str]:
    """What no row may show."""
    reasons: list[str] = []
    if result["lost"]:
        reasons.append(f"{result['lost']} lost ({_few(result['lost_mails'])})")
    if result["waiting"]:
        reasons.append(f"unfinished: {result['waiting']} messages still wait in the queues")
    if (more := result["duplicates"] - result["duplicates_allowed"]) > 0:
        unexplained = [duplicate["mail"] for duplicate in result["duplicate_mails"] if not duplicate["why"]]
        reasons.append(f"{more} duplicates more than allowed ({_few(unexplained)})")
    if result["dead_letter_reasons"]:
        why = sorted(set(result["dead_letter_reasons"].values()))
        reasons.append(f"{len(result['dead_letter_reasons'])} dead letters ({', '.join(why)})")
    if result["not_accepted_but_sent"]:
        reasons.append(f"sent although no queue took it: {_few(result['not_accepted_but_sent'])}")
    ends = result["sent"] + result["dead_lettered"] + result["parked"] + result["rejected"] + result["lost"]
    if ends != result["accepted"]:
        reasons.append(f"the ends add up to {ends} of {result['accepted']} accepted")
    return reasons


def all_sent(_evidence: Evidence, result: Mapping[str, Any]) -> list[str]:
    """In the end each mail went out: nothing may stay parked."""
    missing = result["accepted"] - result["sent"]
    return [f"{missing} were not sent in the end"] if missing else []


def events_came(evidence: Evidence, _result: Mapping[str, Any]) -> list[str]:
    """Of each mail that was accepted an event must have come, else the row shows nothing."""
    missing = accepted_times(evidence.arrivals).keys() - evidence.confirmed
    return [f"no event came of {len(missing)} that were accepted ({_few(_named(missing))})"] if missing else []


def nothing_sent_stays_parked(_evidence: Evidence, result: Mapping[str, Any]) -> list[str]:
    """Where SES's events come, whatever was accepted is known to be sent."""
    kept = result["parked_though_sent"]
    return [f"{len(kept)} parked although they were accepted ({_few(kept)})"] if kept else []


def something_was_parked(evidence: Evidence, _result: Mapping[str, Any]) -> list[str]:
    """The pause must have been felt, else the row shows nothing."""
    return [] if evidence.was_parked else ["nothing was parked: the pause was not felt"]


def nothing_while_paused(evidence: Evidence, _result: Mapping[str, Any]) -> list[str]:
    """Of a paused tenant nothing arrives until it may send again."""
    if not evidence.paused:
        return []
    tenant, span = evidence.paused
    sent = [a for a in evidence.arrivals if a.accepted and a.key[0] == tenant and span.holds(a.at_ms)]
    return [f"{len(sent)} of {tenant} were sent while it was paused"] if sent else []


def few_throttles(_evidence: Evidence, result: Mapping[str, Any]) -> list[str]:
    """A limit that was cut is felt for two seconds at most."""
    seconds = result["throttled_seconds"]
    if len(seconds) <= MOST_THROTTLED_SECONDS:
        return []
    return [f"throttles in {len(seconds)} seconds after the cut, {MOST_THROTTLED_SECONDS} are allowed: {seconds}"]


def drain(evidence: Evidence, limit_per_second: float) -> dict[str, float]:
    """How long the mail took that arrived under a lower limit, from the cut on, and how long the limit alone takes."""
    cut = evidence.fault
    arrived = [a for a in evidence.arrivals if a.accepted and cut and cut.holds(a.at_ms)]
    if not cut or not arrived:
        return {"drain_seconds": 0.0, "drain_ideal_seconds": 0.0}
    took = (max(a.at_ms for a in arrived) - cut.start_ms) / 1000
    ideal = sum(a.recipients for a in arrived) / limit_per_second
    return {"drain_seconds": round(took, 3), "drain_ideal_seconds": round(ideal, 3)}


def drains(_evidence: Evidence, result: Mapping[str, Any]) -> list[str]:
    """Mail leaves nearly as fast as the lower limit allows."""
    took, ideal = result["drain_seconds"], result["drain_ideal_seconds"]
    if not ideal:
        return ["nothing arrived under the lower limit"]
    if took <= MOST_DRAIN * ideal:
        return []
    return [f"draining took {took:.1f} s, {took / ideal:.2f} of the ideal {ideal:.1f} s"]


def capped_at(limit_per_second: float) -> Check:
    """While Redis was away mail went on, and never more than the limit in any one second."""

    def check(evidence: Evidence, _result: Mapping[str, Any]) -> list[str]:
        if not evidence.fault:
            return ["Redis was never away"]
        away = Span(evidence.fault.start_ms + GRANTED_MS, evidence.fault.end_ms)
        arrived = [(a.at_ms, a.recipients) for a in evidence.arrivals if away.holds(a.at_ms)]
        if not arrived:
            return ["nothing was sent while Redis was away"]
        peak = peak_in_a_second(arrived)
        return [f"{peak} in a second while Redis was away"] if peak > limit_per_second else []

    return check
