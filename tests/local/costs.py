"""`make costs`: what a mail takes on the local stack, counted from outside, and what AWS would ask for it.

Three stretches on one stack: two minutes in which nothing is sent, then mails without SES's events, then as many with
them. What happens by the clock is told by the first. Some mails go before, so that the functions' processes are there.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import valkey

from .costing import Clock, Figures, Request, Stretch
from .costs_page import tables, written
from .counting import FUNCTION, OTHER, Counted, Kind, Meter, Requests
from .demo import send
from .emulator import COUNTS
from .errors import LocalError
from .knobs import Knobs
from .mails import Plan, made_up
from .paths import LUA, OUT, ROOT, shown
from .processes import Processes
from .producer import Producer
from .queues import Queues
from .record import Record
from .redis_calls import RedisCalls
from .say import console, step
from .stack import Stack, start

FIGURES = ROOT / "docs" / "costs.json"
PRICES = ROOT / "docs" / "prices.json"
PAGE = ROOT / "docs" / "costs.md"

#: Ticks of the clock that are waited for without mail. Each has quota-refresh run, and control twice.
TICKS = 2
#: One mail in so many is urgent, so that both lanes are there.
URGENT_EVERY = 50
#: Sent before, uncounted: processes that start all at once are late, and their mails wait for that from then on.
WARM_UP = 500
#: Events and what is done about them come after the mail.
EVENTS_SECONDS = 3.0
#: So many marks, and traces, are copied so many times in all to see what one takes.
SAMPLE, COPIES = 200, 50_000
TRACE = b"1|bulk|1|booked,1796135941000,1796135970123,1796135970.1"

_NAMES = {
    "reserve": "ReserveFunctionName",
    "send": "SendFunctionName",
    "feedback": "FeedbackFunctionName",
    "control": "ControlFunctionName",
    "quota-refresh": "QuotaRefreshFunctionName",
    "auto-pause": "AutoPauseFunctionName",
}
#: Those that run for mail. The others run by the clock.
_OF_MAIL = ("reserve", "send", "feedback")


def costs(env: Mapping[str, str]) -> int:
    """Run it and write `out/costs.json`, `docs/costs.json` and the tables of `docs/costs.md`; the exit code."""
    knobs = Knobs.read(dict(env) | {"MAILS": env.get("COSTS_MAILS", "") or "3000"})
    if knobs.aws_endpoint_url or knobs.ses_endpoint or knobs.file:
        raise LocalError(
            "make costs counts in the emulator and the simulator that it starts, and sends mails of its own: leave out "
            "AWS_ENDPOINT_URL, SES_ENDPOINT and FILE"
        )
    out = OUT / "costs"
    out.mkdir(parents=True, exist_ok=True)
    counts = out / "counts.json"
    counts.unlink(missing_ok=True)
    with Processes(out / "logs") as processes:
        stack = start(processes, knobs, out, knobs.tenant_names(), emulator={COUNTS: str(counts)})
        figures = _Run(stack, knobs, Meter(counts)).figures()
    (OUT / "costs.json").write_text(json.dumps(figures.to_json(), indent=2) + "\n")
    _keep(figures)
    return 0


def write_page() -> None:
    """Write the tables anew from the figures that were counted, the prices and the template."""
    figures = Figures.of_json(json.loads(FIGURES.read_text()))
    PAGE.write_text(written(PAGE.read_text(), tables(figures, json.loads(PRICES.read_text()))))
    console.print(f"wrote the tables of {shown(PAGE)}")


def _keep(figures: Figures) -> None:
    FIGURES.write_text(json.dumps(figures.to_json(), indent=2) + "\n")
    write_page()
    console.print(f"wrote {shown(OUT / 'costs.json')}, {shown(FIGURES)}")


class _Run:
    """One stack and what is counted on it."""

    def __init__(self, stack: Stack, knobs: Knobs, meter: Meter) -> None:
        self._stack, self._knobs, self._meter = stack, knobs, meter
        self._redis = stack.redis()
        self._calls = RedisCalls(self._redis, LUA)
        self._record = Record(Path(stack.record or ""))
        self._made_up = 0

    def figures(self) -> Figures:
        """Run the stretches."""
        begun = self._meter.read()
        clock = self._clock()
        self._events(self._stack.endpoint_url)
        self._stretch(WARM_UP)
        self._events("")
        plain = self._stretch(self._knobs.mails)
        self._events(self._stack.endpoint_url)
        events = self._stretch(self._knobs.mails)
        self._events("")
        return Figures(
            mails=plain.mails,
            rate_per_second=self._knobs.rate.per_second,
            clock=clock,
            plain=plain,
            events=events,
            custom_metrics=len(self._meter.read().since(begun).metrics | begun.metrics),
            mark_bytes=self._bytes("claim"),
            trace_bytes=self._bytes("trace"),
            event_bytes=self._bytes("event"),
        )

    def _clock(self) -> Clock:
        """What happens each minute without mail."""
        name = self._stack.outputs[_NAMES["quota-refresh"]]

        def ticks() -> int:
            return self._meter.read().invocations[name].count

        with step(f"counting {TICKS} minutes without mail"):
            begun = ticks()
            _until(lambda: ticks() > begun, 90)
            time.sleep(5)  # what it sets going
            before, calls = self._meter.read(), self._calls.count()
            begun = ticks()
            _until(lambda: ticks() >= begun + TICKS, 60 * TICKS + 30)
            time.sleep(5)
            counted, calls = self._meter.read().since(before), self._calls.count() - calls
        runs = _of_functions(counted, self._stack)
        return Clock(
            lambda_requests=sum(run.count for run in runs.values()) / TICKS,
            lambda_gb_seconds=sum(run.gb_seconds for run in runs.values()) / TICKS,
            log_bytes=sum(run.log_bytes for run in runs.values()) / TICKS,
            redis_calls=calls / TICKS,
            requests={
                f"{service} {action}": requests.billed / TICKS
                for (service, action), requests in _by_action(counted, FUNCTION).items()
            },
        )

    def _stretch(self, count: int) -> Stretch:
        """Send so many mails and count what they take."""
        plan = Plan.of(self._knobs)
        names = plan.tenants
        # Other send ids each time, else nothing would be sent again.
        mails = [
            made_up("bulk" if n % URGENT_EVERY else "priority", n, names[n % len(names)])
            for n in range(self._made_up, self._made_up + count)
        ]
        plan = dataclasses.replace(plan, burst=mails)
        self._made_up += count
        arrived, before, calls = len(self._record.arrivals), self._meter.read(), self._calls.count()
        producer = Producer(self._stack, plan)
        send(self._knobs, self._stack, plan, producer, self._record, OUT / "costs" / "logs")
        self._settle()
        calls = self._calls.count() - calls
        counted = self._meter.read().since(before)
        new = self._record.arrivals[arrived:]
        accepted = {arrival.key for arrival in new if arrival.accepted}
        if accepted != set(producer.handed_in) or len(accepted) != len(mails):
            raise LocalError(
                f"{len(accepted):,} of {len(mails):,} mails arrived: there is no cost of one to be had of this; "
                f"logs are in {shown(OUT / 'costs' / 'logs')}/"
            )
        runs = _of_functions(counted, self._stack)
        return Stretch(
            mails=len(mails),
            ses_requests=len(new),
            ses_recipients=sum(arrival.recipients for arrival in new if arrival.accepted),
            requests=_of_roles(counted, self._stack),
            invocations={name: run for name, run in runs.items() if name in _OF_MAIL},
            redis_calls=calls,
        )

    def _settle(self) -> None:
        """Wait until the events are dealt with, too."""
        time.sleep(EVENTS_SECONDS)
        queues = Queues(self._stack)
        _until(lambda: queues.empty() and not self._waiting(), 60)

    def _waiting(self) -> int:
        """Events that the simulator still has, and messages in the queue of events."""
        with urllib.request.urlopen(f"{self._stack.ses_endpoint}/_simulator/events", timeout=10) as answer:
            told = json.load(answer)
        sqs = self._stack.client("sqs")
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        left = 0
        for url in sqs.list_queues().get("QueueUrls", []):
            if "feedback" in url.lower() and "dlq" not in url.lower():
                found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
                left += sum(int(found[name]) for name in names)
        return int(told["waiting"]) + left

    def _events(self, endpoint: str) -> None:
        request = urllib.request.Request(
            f"{self._stack.ses_endpoint}/_simulator/settings",
            data=json.dumps({"events_endpoint": endpoint}).encode(),
            method="PUT",
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    def _bytes(self, what: str) -> int:
        """What one mark (`claim`), one trace or one event takes in Redis."""
        found = self._kept(what)
        if not found and what == "trace":
            # Nobody has noted the mails' ways: then it is one of a mail that was booked and went, as trace.lua has it.
            found = [(name.replace(b"claim:", b"trace:"), TRACE) for name, _ in self._kept("claim")]
        return key_bytes(self._redis, found)

    def _kept(self, what: str) -> list[tuple[bytes, bytes]]:
        names = list(self._redis.scan_iter(f"sendslot:{{*}}:{what}:*", count=1000))[:SAMPLE]
        values: Any = self._redis.mget(names) if names else []
        return [(name, value) for name, value in zip(names, values, strict=True) if value]


def key_bytes(redis: valkey.Valkey, samples: Sequence[tuple[bytes, bytes]]) -> int:
    """What a key like these takes with all that is due to it, when there are many: names, values, tables, expiry."""
    if not samples:
        return 0

    def held() -> int:
        told: Any = redis.info("memory")
        return int(told["used_memory"]) - int(told["mem_clients_normal"])  # connections come and go

    before = held()
    names = [b"%0*d" % (len(samples[n % len(samples)][0]), n) for n in range(COPIES)]
    for first in range(0, COPIES, 1000):
        with redis.pipeline(transaction=False) as pipe:
            for n in range(first, first + 1000):
                pipe.set(names[n], samples[n % len(samples)][1], px=86_400_000)
            pipe.execute()
    taken = held() - before
    redis.delete(*names)
    return round(taken / COPIES)


def _of_functions(counted: Counted, stack: Stack) -> dict[str, Any]:
    names = {stack.outputs[output]: name for name, output in _NAMES.items() if output in stack.outputs}
    return {names.get(name, name): runs for name, runs in counted.invocations.items() if runs.count}


def _of_roles(counted: Counted, stack: Stack) -> list[Request]:
    """Requests by what their queue is for, both lanes together. What this program asked for isn't among them."""
    found: defaultdict[Kind, Requests] = defaultdict(Requests)
    for (service, action, by, queue), requests in sorted(counted.requests.items()):
        if requests.count and (by != OTHER or action == "SendMessageBatch"):
            found[service, action, by, _role(queue, stack)].add(requests)
    return [(*kind, requests) for kind, requests in found.items()]


def _by_action(counted: Counted, by: str) -> dict[tuple[str, str], Any]:
    return {
        (service, action): requests
        for (service, action, who, _), requests in sorted(counted.requests.items())
        if who == by and requests.count
    }


def _role(queue: str, stack: Stack) -> str:
    """Which queue it is: `intake`, `send`, `feedback`, or its name. CloudFormation puts what it is into its name."""
    for role in ("Intake", "Send", "Feedback"):
        if re.search(rf"-{role}(Queue|Dlq)-", queue):
            return role.lower() + ("-dlq" if f"-{role}Dlq-" in queue else "")
    return queue


def _until(reached: Any, seconds: float) -> None:
    bound = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > bound:
            raise LocalError(f"waited {seconds:.0f} s in vain; logs are in {shown(OUT / 'costs' / 'logs')}/")
        time.sleep(0.5)


if __name__ == "__main__":
    write_page()
