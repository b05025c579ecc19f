"""The bed that the rows run on: one stack, bursts through it, and what can be seen of them from outside."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.local.emulator import CONTROL
from tests.local.errors import LocalError
from tests.local.knobs import Knobs
from tests.local.mails import Mail, Plan, of_request
from tests.local.processes import Processes
from tests.local.producer import Producer
from tests.local.queues import DEAD, LIVE, Queues
from tests.local.record import Record
from tests.local.report import Key
from tests.local.servers import failed_start
from tests.local.stack import Stack, set_environment, start

from .breaking import Delivery, Provider, Redis
from .events import Events

KNOBS = {"RATE": "100", "TENANTS": "2", "RESERVE": "2"}
#: The least that the template takes; and the rate that a row without Redis goes by, as nobody can be asked for it then.
PARAMETERS = {
    "SendTimeoutSeconds": "20",
    "ReserveTimeoutSeconds": "10",
    "ConfirmationSeconds": "8",
    "SendRate": f"{KNOBS['RATE']}/s",
}
#: Shorter than the template's, so that a row is over soon: timeout < lease < visibility still holds.
LEASE_SECONDS = 22
VISIBILITY_SECONDS = {"Send": 25, "Intake": 15}
#: One mail in ten is urgent.
URGENT_EVERY = 10
#: Nothing is later: the longest is a provider that is paused, which is asked again after 60 s and then 120 s.
PATIENCE_SECONDS = 200.0
#: Empty queues must stay so: the emulator hides what it moves for a moment.
QUIET_SECONDS = 1.0

_PARKED = re.compile(r"parked/(?P<tenant>[^/]+)/\d{13}-(?P<reason>[a-z]+)-(?P<lane>[a-z]+)-(?P<send_id>.+)\.json")


def parked_mail(key: str) -> tuple[Key, str]:
    """Whose mail lies under a key of the bucket, and why."""
    found = _PARKED.fullmatch(key)
    if not found:
        raise LocalError(f"the parking bucket holds {key!r}: not a key of a parked mail")
    return (found["tenant"], found["send_id"]), found["reason"]


class Burst:
    """The mails of one row."""

    def __init__(self, bed: Bed, mails: list[Mail]) -> None:
        self._bed = bed
        plan = Plan(burst=mails, urgent=[], trickle=[], trickle_seconds=0.0, tenants=bed.tenants, big=None)
        self._producer = Producer(bed.stack, plan)
        self.keys = frozenset(mail.key for mail in mails)
        self.was_parked: set[Key] = set()

    def hand_in(self) -> None:
        """Put all of them on the intake queues, as fast as these take them."""
        self._producer.hand_in_burst(lambda _: None)

    @property
    def accepted(self) -> frozenset[Key]:
        """What the queues took."""
        return frozenset(self._producer.handed_in)

    def arrived(self) -> set[Key]:
        """What the provider accepted so far."""
        return {arrival.key for arrival in self._bed.arrivals(self.keys) if arrival.accepted}

    def flowing(self, share: float) -> None:
        """Wait until this share of it arrived."""
        count = round(share * len(self.keys))
        self._bed.wait(lambda: len(self.arrived()) >= count, lambda: f"{len(self.arrived())} of {count} arrived", 60)


class Bed:
    """One stack and everything around it."""

    def __init__(self, processes: Processes, out: Path, seed: int) -> None:
        self.knobs = Knobs.read(KNOBS)
        self.tenants = self.knobs.tenant_names()
        self.random = random.Random(seed)
        self.seed = seed
        self._out = out
        control = out / "control.json"
        self.delivery = Delivery(control)
        self.stack: Stack = start(
            processes, self.knobs, out, self.tenants, more=PARAMETERS, emulator={CONTROL: str(control)}
        )
        self.redis = Redis(processes, self.stack, out)
        self.provider = Provider(self.stack)
        self._events: Events | None = None
        self.queues = Queues(self.stack)
        self._sqs: Any = self.stack.client("sqs")
        self._s3: Any = self.stack.client("s3")
        self._lambda: Any = self.stack.client("lambda")
        assert self.stack.record
        self._record = Record(Path(self.stack.record))
        self._dead: dict[Key, str] = {}
        self._policies: dict[str, str] = {}
        self._fresh = 0
        self._shorten()

    def _shorten(self) -> None:
        for lane in ("Priority", "Bulk"):
            for queue, seconds in VISIBILITY_SECONDS.items():
                url = self.stack.outputs[f"{lane}{queue}QueueUrl"]
                self._sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": str(seconds)})

    @property
    def send_function(self) -> str:
        """The name of the worker."""
        return self.stack.outputs["SendFunctionName"]

    @property
    def events(self) -> Events:
        """The consumer of SES's events, set up when it is first needed."""
        self._events = self._events or Events(self.stack)
        return self._events

    def policies(self, redis_down: str, uncertain: str) -> None:
        """Have the functions follow these. They start anew if that is a change."""
        wanted = {
            "SENDSLOT_REDIS_DOWN": redis_down,
            "SENDSLOT_PRIORITY_UNCERTAIN": uncertain,
            "SENDSLOT_BULK_UNCERTAIN": uncertain,
            "SENDSLOT_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        if wanted == self._policies:
            return
        for name in ("ReserveFunctionName", "SendFunctionName"):
            set_environment(self._lambda, self.stack.outputs[name], wanted)
        self._policies = wanted

    def fresh(self) -> None:
        """Nothing is left of earlier rows but the mail set aside, and the functions have started."""
        self.delivery.twice(0, 0)
        self.provider.faults()
        self.redis.flush()
        self.stack.refresh()
        self._fresh += 1
        warm = self.burst(f"warm-{self._fresh}", 40)
        warm.hand_in()
        self.wait(lambda: warm.arrived() == warm.keys and self.queues.empty(), lambda: "the stack doesn't send", 60)

    def burst(self, name: str, count: int) -> Burst:
        """Mails that nobody has handed in before, of both tenants and lanes."""
        return Burst(self, [self._mail(name, number) for number in range(count)])

    def _mail(self, name: str, number: int) -> Mail:
        return of_request(
            {
                "send_id": f"{name}-{self.seed}-{number:05}",
                "tenant": self.tenants[number % len(self.tenants)],
                # Not the same tenant's every time.
                "lane": "priority" if number // len(self.tenants) % URGENT_EVERY == 0 else "bulk",
                "from": "Sendslot chaos <chaos@example.com>",
                "to": [f"reader-{number}@example.com"],
                "content": {"simple": {"subject": f"Mail {number}", "text": f"This is mail {number} of {name}.\n"}},
            }
        )

    def arrivals(self, keys: Iterable[Key]) -> list[Any]:
        """All that reached the provider of these mails."""
        self._record.follow()
        wanted = frozenset(keys)
        return [arrival for arrival in self._record.arrivals if arrival.key in wanted]

    def dead(self) -> dict[Key, str]:
        """All dead letters so far, and why. They are taken off their queues."""
        for output in DEAD:
            for message in self.queues.receive_all(output):
                body = json.loads(message["Body"])
                reason = message.get("MessageAttributes", {}).get("SendslotReason", {})
                key = (str(body.get("tenant")), str(body.get("send_id")))
                self._dead[key] = reason.get("StringValue", "received too often")
                self._sqs.delete_message(QueueUrl=self.stack.outputs[output], ReceiptHandle=message["ReceiptHandle"])
        return self._dead

    def parked(self) -> dict[Key, str]:
        """What lies in the bucket, and why."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.stack.outputs["ParkingBucketName"], Prefix="parked/"
        )
        return dict(parked_mail(found["Key"]) for page in pages for found in page.get("Contents", []))

    def resume(self, tenant: str, burst: Burst, seconds: float = 150.0) -> None:
        """Resume a tenant as an operator does, which switches its set on, and replay until all of its mail arrived."""
        missing = {key for key in burst.accepted if key[0] == tenant}
        deadline = time.monotonic() + seconds
        self.control("resume", tenant=tenant, rate=self.knobs.rate.text)
        while not missing <= burst.arrived() and time.monotonic() < deadline:
            burst.was_parked |= self.parked().keys() & burst.keys
            self.control("replay", tenant=tenant, seconds=5)

    def control(self, action: str, **more: Any) -> dict[str, Any]:
        """Invoke `control`; its answer."""
        payload = json.dumps({"action": action, "caller": "chaos"} | more)
        answer = self._lambda.invoke(FunctionName=self.stack.outputs["ControlFunctionName"], Payload=payload.encode())
        said = json.loads(answer["Payload"].read())
        if "FunctionError" in answer or "error" in said:
            raise LocalError(f"control refused {payload}: {json.dumps(said)}")
        return dict(said)

    def settle(self) -> int:
        """Wait until nothing is under way any more; the messages that wait even so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        quiet_since = None
        while time.monotonic() < deadline:
            if not self.queues.empty():
                quiet_since = None
            elif quiet_since is None:
                quiet_since = time.monotonic()
            elif time.monotonic() - quiet_since >= QUIET_SECONDS:
                return 0
            time.sleep(0.25)
        return sum(self.queues.depth(output) for output in LIVE)

    def wait(self, done: Callable[[], bool], otherwise: Callable[[], str], seconds: float, every: float = 0.1) -> None:
        """Wait for it, or end the run saying how far it came."""
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                log = self._out / "logs" / "emulator.log"
                failed = failed_start(log.read_text(errors="replace"))
                raise LocalError(f"{failed or otherwise()} within {seconds:g} s")
            time.sleep(every)
