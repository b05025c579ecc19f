"""One tenant can't hurt another: a stack of its own, with three tenants that have more mail than the horizon holds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.chaos.bed import parked_mail
from tests.chaos.breaking import Provider
from tests.local.knobs import Knobs
from tests.local.paths import OUT, ROOT
from tests.local.processes import end_cleanly_on_signals
from tests.local.report import Key
from tests.local.stack import Stack, running
from tests.stack.desk import Desk, key, request, times_sent, wait_until

RATE = 40
HEADROOM = 0.98
KNOBS = {"RATE": str(RATE), "HEADROOM": str(HEADROOM), "GUARD": "0.99", "RESERVE": "0", "TENANTS": "3", "HORIZON": "6"}
BAD, GOOD = "tenant-1", ("tenant-2", "tenant-3")
#: At least so many must have been sent to, and so many of them bounced, and 10 %.
SENT, BOUNCED = 60, 6
#: More than the horizon holds of each.
BACKLOG = 400
#: What was granted before the pause may still go, two seconds later at most; and some for the request itself.
GRANTED_MS = 2300


class Tenants:
    """The stack, its account and its tenants."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.provider = Provider(stack)
        self.cloudformation: Any = stack.client("cloudformation")
        self._lambda: Any = stack.client("lambda")
        self._ssm: Any = stack.client("ssm")
        self._s3: Any = stack.client("s3")

    def settle(self, tenant: str, **settings: Any) -> None:
        """Give a tenant settings of its own."""
        name = f"{self.stack.outputs['TenantsPath']}/{tenant}"
        value = json.dumps({"version": 1, "configuration_set": tenant} | settings)
        self._ssm.put_parameter(Name=name, Value=value, Type="String", Overwrite=True)

    def control(self, action: str, **more: Any) -> dict[str, Any]:
        """Ask `control`."""
        payload = json.dumps({"action": action, "caller": "test"} | more).encode()
        answer = self._lambda.invoke(FunctionName=self.stack.outputs["ControlFunctionName"], Payload=payload)
        said = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, said
        assert "error" not in said, said
        return said

    def paused(self) -> dict[str, tuple[int, str]]:
        """Who is paused until resumed, since when and why, as Redis itself says it."""
        with self.stack.redis() as redis:
            held = redis.hgetall("sendslot:{ses}:paused")
        values = {name.decode(): value.decode().split("|", 3) for name, value in held.items()}
        return {name: (int(since), reason) for name, (_, until, since, reason) in values.items() if until == "0"}

    def parked(self) -> set[Key]:
        """What lies in the bucket."""
        pages = self._s3.get_paginator("list_objects_v2").paginate(
            Bucket=self.stack.outputs["ParkingBucketName"], Prefix="parked/"
        )
        return {parked_mail(found["Key"])[0] for page in pages for found in page.get("Contents", [])}

    def sends(self, configuration_set: str) -> bool:
        """The sending switch of a configuration set, as SES says it."""
        answer = self.stack.ses().get_configuration_set(ConfigurationSetName=configuration_set)
        return bool(answer["SendingOptions"]["SendingEnabled"])

    def feedback(self, on: bool) -> None:
        """Have `feedback` take SES's events in, or not."""
        [mapping] = self._lambda.list_event_source_mappings(FunctionName=self.stack.outputs["FeedbackFunctionName"])[
            "EventSourceMappings"
        ]
        self._lambda.update_event_source_mapping(UUID=mapping["UUID"], Enabled=on)

    def deploy_tenant(self, tenant: str, **more: str) -> str:
        """Deploy a tenant of its own; the stack's name. SES is the simulator, so the set is made there, too."""
        name = f"{self.stack.stack_name}-tenant-{tenant}"
        self.stack.ses().create_configuration_set(ConfigurationSetName=f"{self.stack.stack_name}-{tenant}")
        given = {
            "Tenant": tenant,
            "Stack": self.stack.stack_name,
            "ReputationTopicArn": self.stack.outputs["ReputationTopicArn"],
        } | more
        self.cloudformation.create_stack(
            StackName=name,
            TemplateBody=(ROOT / "infra" / "tenant.yaml").read_text(),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in given.items()],
        )
        return name

    def deployed(self, name: str) -> None:
        """Wait until a stack is there."""
        [stack] = self.cloudformation.describe_stacks(StackName=name)["Stacks"]
        assert stack["StackStatus"] in ("CREATE_IN_PROGRESS", "CREATE_COMPLETE"), stack
        self.cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})


@pytest.fixture(scope="module")
def tenants() -> Iterator[Tenants]:
    """A fresh stack."""
    end_cleanly_on_signals()
    knobs = Knobs.read(KNOBS)
    with running(knobs, OUT / "tenants", knobs.tenant_names()) as stack:
        yield Tenants(stack)


@pytest.fixture(scope="module")
def desk(tenants: Tenants) -> Desk:
    return Desk(tenants.stack)


def per_second(times_ms: list[float], since_ms: float, until_ms: float) -> float:
    """Mails a second within a time."""
    return sum(since_ms <= at_ms < until_ms for at_ms in times_ms) * 1000 / (until_ms - since_ms)


def test_a_bad_list_pauses_its_own_tenant_and_nobody_else_notices(
    tenants: Tenants, desk: Desk, send_id: Callable[[], str]
) -> None:
    limit = {"percent": 10, "sent": SENT, "events": BOUNCED}
    tenants.settle(BAD, thresholds={"bounce_hour": limit, "bounce_day": limit})
    tenants.stack.refresh()
    tenants.provider.settings(events_endpoint=tenants.stack.endpoint_url)
    mails = {
        tenant: [
            request(send_id(), tenant, to=[f"{'bounce' if tenant == BAD else 'success'}@simulator.amazonses.com"])
            for _ in range(BACKLOG)
        ]
        for tenant in (BAD, *GOOD)
    }
    # By turns, so that none of them is there first.
    desk.hand_in("bulk", [mail for row in zip(*mails.values(), strict=True) for mail in row])
    keys = {tenant: set(map(key, theirs)) for tenant, theirs in mails.items()}
    wait_until(lambda: BAD in tenants.paused(), lambda: f"{len(desk.arrivals(keys[BAD]))} of the bad list sent", 60)
    since_ms, reason = tenants.paused()[BAD]
    assert reason.startswith("bounces")
    assert reason.endswith("(feedback)")
    wait_until(
        lambda: all(len(desk.arrivals(keys[tenant])) == BACKLOG for tenant in GOOD) and desk.queues.empty(),
        lambda: f"{[len(desk.arrivals(keys[tenant])) for tenant in keys]} arrived",
        120,
    )
    assert set(tenants.paused()) == {BAD}
    assert not tenants.sends(BAD)
    assert all(map(tenants.sends, GOOD))

    bad = desk.arrivals(keys[BAD])
    crossed_ms = bad[SENT - 1].at_ms  # all of it bounces, so this is where both gates and the share are reached
    took = (since_ms - crossed_ms) / 1000
    late = [arrival.at_ms - since_ms for arrival in bad if arrival.at_ms > since_ms + GRANTED_MS]
    sent = sum(arrival.accepted for arrival in bad)
    print(f"paused {took:.1f} s after it crossed its threshold: {sent} of {BACKLOG} sent, {len(bad) - sent} refused")
    assert 0 <= took <= 10
    assert late == [], "what is sent after the pause was granted before it"
    # parked = accepted - sent
    assert tenants.parked() == keys[BAD] - {arrival.key for arrival in bad if arrival.accepted}

    # The others are never behind what they would have sent by now at the rate that they had, and with the freed cells
    # they are ahead of it. (Seconds say little: mail that sleeps can't be woken, and surfaces when it was told to.)
    begun_ms = min(arrival.at_ms for arrival in bad) + 1000
    for tenant in GOOD:
        own = [arrival.at_ms for arrival in desk.arrivals(keys[tenant])]
        before = per_second(own, begun_ms, since_ms)
        later = [at_ms for at_ms in own if at_ms >= since_ms]
        for number, at_ms in enumerate(later):
            assert number + 1 >= 0.95 * before * (at_ms - since_ms) / 1000 - 1, f"{tenant} falls behind"
        after = len(later) * 1000 / (later[-1] - since_ms)
        print(f"{tenant}: {before:.1f}/s before the pause, {after:.1f}/s after it")
        assert after >= 0.95 * before
    # What they book next takes the freed cells: past those that had begun, nothing idles.
    both = [arrival.at_ms for tenant in GOOD for arrival in desk.arrivals(keys[tenant])]
    freed = per_second(both, since_ms + 2000, since_ms + 6000)
    print(f"both: {freed:.1f}/s in the freed cells, of {HEADROOM * RATE:g}")
    assert freed >= 0.95 * HEADROOM * RATE

    # Nobody would know whether it bounces: the list was cleaned.
    tenants.provider.settings(events_endpoint="")
    resumed = tenants.control("resume", tenant=BAD, rate="20/s")
    assert resumed["was_paused"]
    assert tenants.sends(BAD)
    resumed_ms = time.time() * 1000
    wait_until(
        lambda: keys[BAD] <= {arrival.key for arrival in desk.arrivals(keys[BAD]) if arrival.accepted},
        lambda: f"{len(tenants.parked())} are still parked",
        150,
    )
    wait_until(lambda: desk.queues.empty() and not tenants.parked(), lambda: "something is left")
    everything = [each for theirs in keys.values() for each in theirs]
    assert times_sent(desk.arrivals(everything)) == dict.fromkeys(everything, 1)
    replayed = [arrival for arrival in desk.arrivals(keys[BAD]) if arrival.at_ms >= resumed_ms]
    first_ms, last_ms = replayed[0].at_ms, replayed[-1].at_ms
    rate = (len(replayed) - 1) * 1000 / (last_ms - first_ms)
    print(f"replayed {len(replayed)} at {rate:.1f}/s")
    assert rate <= 21
    assert tenants.parked() == set()
    assert desk.queues.dead_letters() == {}


def test_what_bounced_is_not_mailed_again(tenants: Tenants, desk: Desk, send_id: Callable[[], str]) -> None:
    tenants.provider.settings(events_endpoint=tenants.stack.endpoint_url)
    first = request(send_id(), GOOD[0], to=["bounce-1@bounces.example", "reader@example.com"])
    desk.hand_in("bulk", [first])
    desk.settled([key(first)])

    def told() -> bool:
        with tenants.stack.redis() as redis:
            return bool(redis.exists("sendslot:{ses}:suppressed"))

    wait_until(told, lambda: "the bounce isn't known", 30)
    partly = request(send_id(), GOOD[0], to=["reader@example.com"], cc=["Bounce-1@bounces.example"])
    wholly = request(send_id(), GOOD[1], to=["bounce-1@bounces.example"])
    [of_two, of_one] = desk.invoke_reserve(partly, wholly)
    assert (of_two["status"], of_two["suppressed"]) == ("booked", ["/cc/0"])
    assert (of_one["status"], of_one["suppressed"]) == ("suppressed", ["/to/0"])
    [arrival] = desk.settled([key(partly)])
    assert arrival.recipients == 1
    assert desk.arrivals([key(wholly)]) == []


def test_an_alarm_alone_pauses_too(tenants: Tenants, desk: Desk, send_id: Callable[[], str]) -> None:
    tenants.feedback(on=False)
    try:
        tenants.deployed(tenants.deploy_tenant("alarmed", ReputationAlarms="true"))
        tenants.stack.refresh()
        the_set = f"{tenants.stack.stack_name}-alarmed"
        sent = request(send_id(), "alarmed")
        desk.hand_in("bulk", [sent])
        desk.settled([key(sent)])
        assert tenants.sends(the_set)
        tenants.stack.client("cloudwatch").put_metric_data(
            Namespace="AWS/SES",
            MetricData=[
                {
                    "MetricName": "Reputation.BounceRate",
                    "Dimensions": [{"Name": "ses:configuration-set", "Value": the_set}],
                    "Value": 0.072,
                }
            ],
        )
        wait_until(lambda: "alarmed" in tenants.paused(), lambda: "not paused", 120)
        _, reason = tenants.paused()["alarmed"]
        assert "BounceRate" in reason
        assert reason.endswith("(auto-pause)")
        assert not tenants.sends(the_set)
        assert set(tenants.paused()) == {"alarmed"}
        held = request(send_id(), "alarmed")
        [result] = desk.invoke_reserve(held)
        assert result["status"] == "parked"
        assert key(held) in tenants.parked()
    finally:
        tenants.feedback(on=True)


def test_an_emptied_redis_knows_again_who_is_paused_and_whom_not_to_mail(
    tenants: Tenants, desk: Desk, send_id: Callable[[], str]
) -> None:
    tenants.stack.ses().put_suppressed_destination(EmailAddress="Listed@example.com", Reason="COMPLAINT")
    with tenants.stack.redis() as redis:
        redis.flushall()
    tenants.stack.refresh()
    assert set(tenants.paused()) == {"alarmed"}, "its set is off"
    listed = request(send_id(), GOOD[0], to=["listed@example.com", "reader@example.com"])
    held = request(send_id(), "alarmed")
    [of_listed, of_held] = desk.invoke_reserve(listed, held)
    assert (of_listed["status"], of_listed["suppressed"]) == ("booked", ["/to/0"])
    assert of_held["status"] == "parked"
    desk.settled([key(listed)])


def test_fifty_tenants_and_one_leaves(tenants: Tenants, desk: Desk, send_id: Callable[[], str]) -> None:
    names = [f"many-{number:02}" for number in range(50)]
    stacks = [tenants.deploy_tenant(name) for name in names]
    for stack in stacks:
        tenants.deployed(stack)
    tenants.stack.refresh()
    first = {name: request(send_id(), name) for name in names}
    desk.hand_in("bulk", first.values())
    arrived = desk.settled(map(key, first.values()))
    assert {arrival.configuration_set for arrival in arrived} == {
        f"{tenants.stack.stack_name}-{name}" for name in names
    }

    gone, *left = names
    ssm = tenants.stack.client("ssm")
    path = tenants.stack.outputs["TenantsPath"]
    before = {name: ssm.get_parameter(Name=f"{path}/{name}")["Parameter"]["Value"] for name in left}
    tenants.cloudformation.delete_stack(StackName=stacks[0])
    tenants.cloudformation.get_waiter("stack_delete_complete").wait(StackName=stacks[0], WaiterConfig={"Delay": 1})
    tenants.stack.refresh()
    assert {name: ssm.get_parameter(Name=f"{path}/{name}")["Parameter"]["Value"] for name in left} == before
    again = {name: request(send_id(), name) for name in names}
    results = dict(zip(names, desk.invoke_reserve(*again.values()), strict=True))
    refused = results.pop(gone)
    assert (refused["status"], refused["reason"]) == ("refused", "unknown_tenant")
    assert gone in refused["message"]
    assert {result["status"] for result in results.values()} == {"booked"}
    desk.settled(key(again[name]) for name in left)
