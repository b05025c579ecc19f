"""The budget follows the account: a stack of its own, whose account changes under it. The tests go by order."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.breaking import Provider
from tests.local.knobs import Knobs
from tests.local.paths import OUT, ROOT
from tests.local.processes import end_cleanly_on_signals
from tests.local.report import Arrival
from tests.local.stack import Stack, deploy_command, mend_types, parameters, running
from tests.local.tools import aws_environment
from tests.stack.desk import Desk, key, request, times_sent, wait_until

KNOBS = {"RATE": "14", "HEADROOM": "0.9", "GUARD": "0.95", "RESERVE": "0", "TENANTS": "2"}
HEADROOM = 0.9
#: Not given, so that it follows the budget.
MORE = {"SendMaximumConcurrency": ""}
WARM_CAP = 20
#: What went within two minutes, counted by whole minutes, may not be in SES's count yet; nobody knows others' mail from
#: it before.
SETTLED_SECONDS = 190


class Account:
    """The account that the stack sends through, and those who keep the budget by it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.provider = Provider(stack)
        self.learnt_at = time.monotonic()
        self._lambda: Any = stack.client("lambda")

    def refresh(self) -> dict[str, Any]:
        """Refresh by hand, as the schedule does each minute."""
        return self._invoke("QuotaRefreshFunctionName", {})

    def control(self, action: str, **more: Any) -> dict[str, Any]:
        """Ask `control`."""
        return self._invoke("ControlFunctionName", {"action": action, "caller": "test"} | more)

    def limit(self) -> str:
        """The limit that Redis holds, as Redis itself says it."""
        with self.stack.redis() as redis:
            limit = redis.hget("sendslot:{ses}:budget", "limit")
        return limit.decode() if limit else ""

    def concurrency(self) -> set[int]:
        """How many batches of each send queue are worked on at once."""
        mappings = self._lambda.list_event_source_mappings(FunctionName=self.stack.outputs["SendFunctionName"])
        return {int(mapping["ScalingConfig"]["MaximumConcurrency"]) for mapping in mappings["EventSourceMappings"]}

    def _invoke(self, output: str, payload: dict[str, Any]) -> dict[str, Any]:
        answer = self._lambda.invoke(FunctionName=self.stack.outputs[output], Payload=json.dumps(payload).encode())
        said = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, said
        return said


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    """A fresh stack: what it knows of its account, it knows from its deployment."""
    end_cleanly_on_signals()
    knobs = Knobs.read(KNOBS)
    with running(knobs, OUT / "account", knobs.tenant_names(), MORE) as stack:
        yield Account(stack)


@pytest.fixture(scope="module")
def desk(account: Account) -> Desk:
    return Desk(account.stack)


def rate(arrivals: list[Arrival]) -> float:
    """Mails a second."""
    times = sorted(arrival.at_ms for arrival in arrivals)
    return (len(times) - 1) * 1000 / (times[-1] - times[0])


def burst(desk: Desk, send_id: Callable[[], str], count: int, tenant: str = "tenant-1") -> list[Arrival]:
    """Send so many mails at once; what arrived of them."""
    mails = [request(send_id(), tenant) for _ in range(count)]
    desk.hand_in("bulk", mails)
    arrivals = desk.settled(map(key, mails))
    assert times_sent(arrivals) == dict.fromkeys(map(key, mails), 1)
    assert {arrival.outcome for arrival in arrivals} == {"accepted"}, "nothing is refused"
    return arrivals


def test_the_deployment_itself_finds_the_limit(account: Account) -> None:
    assert account.limit() == "14/s"
    status = account.control("status")
    assert (status["budget"]["limit"], status["budget"]["source"]) == ("14/s", "account")


def test_a_rise_is_used_within_one_refresh(account: Account, desk: Desk, send_id: Callable[[], str]) -> None:
    before = account.concurrency()
    account.provider.settings(rate=50)
    account.refresh()
    assert account.limit() == "50/s"
    seen = rate(burst(desk, send_id, 250))
    assert 50 * HEADROOM * 0.9 <= seen <= 50, seen
    account.refresh()
    assert min(account.concurrency()) > max(before)


def test_a_cut_is_kept_to_within_one_refresh(account: Account, desk: Desk, send_id: Callable[[], str]) -> None:
    before = account.concurrency()
    account.provider.settings(rate=5)
    account.refresh()
    assert account.limit() == "5/s"
    assert rate(burst(desk, send_id, 25)) <= 5
    assert max(account.concurrency()) < min(before)


def test_an_unlimited_quota_and_the_sandbox(account: Account) -> None:
    # An unlimited account that is back in the sandbox at once is hard to believe: it has to say so three times.
    account.provider.settings(rate=1, daily=200, production_access=False)
    kept = [account.refresh()["control"]["kept"] for _ in range(3)]
    assert (kept, account.limit()) == (["below_tenth", "below_tenth", None], "1/s")
    with account.stack.redis() as redis:
        assert redis.hget("sendslot:{ses}:budget", "daily_quota") != b"none"
    account.provider.settings(rate=50, daily=-1, production_access=True)
    account.refresh()
    with account.stack.redis() as redis:
        assert redis.hget("sendslot:{ses}:budget", "daily_quota") == b"none"
    assert account.limit() == "50/s"


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"SendQuota": {"MaxSendRate": 0}}, "zero"),
        ({"SendQuota": None}, "missing"),
        ({"SendQuota": {"MaxSendRate": 4.9}}, "below_tenth"),
        ({"SendQuota": {"MaxSendRate": -7}}, "absurd"),
    ],
)
def test_nonsense_is_not_believed(account: Account, patch: dict[str, Any], why: str) -> None:
    account.provider.faults({"operation": "GetAccount", "kind": "patch", "count": 1, "patch": patch})
    refreshed = account.refresh()
    assert (refreshed["control"]["kept"], account.limit()) == (why, "50/s"), refreshed


def test_an_account_that_cannot_be_asked_changes_nothing(
    account: Account, desk: Desk, send_id: Callable[[], str]
) -> None:
    account.provider.faults({"operation": "GetAccount", "kind": "error_before"})
    for _ in range(5):
        account.refresh()
    assert account.limit() == "50/s"
    burst(desk, send_id, 20)
    account.provider.faults()
    account.refresh()


def test_an_empty_redis_is_filled_within_one_refresh(account: Account, desk: Desk, send_id: Callable[[], str]) -> None:
    path = account.stack.outputs["TenantsPath"]
    ses = account.stack.ses()
    ses.create_configuration_set(ConfigurationSetName="warm-set")
    today = time.strftime("%Y-%m-%d", time.gmtime())
    warm_up = {"start": today, "schedule": [{"day": 1, "cap": WARM_CAP, "per": "hour"}]}
    settings = {"version": 1, "configuration_set": "warm-set", "warm_up": warm_up}
    account.stack.client("ssm").put_parameter(Name=f"{path}/warm", Value=json.dumps(settings), Type="String")
    account.refresh()
    account.control("pause", tenant="tenant-2", reason="test")
    account.provider.let_tenant_send("tenant-2", enabled=False)

    mails = {
        tenant: [request(send_id(), tenant) for _ in range(count)]
        for tenant, count in (("tenant-1", 200), ("tenant-2", 40), ("warm", WARM_CAP + 30))
    }
    for tenant, theirs in mails.items():
        desk.hand_in("bulk", theirs[: len(theirs) // 2])
        assert tenant
    some = list(map(key, mails["tenant-1"]))
    wait_until(lambda: len(desk.arrivals(some)) >= 20, lambda: "nothing flows")
    with account.stack.redis() as redis:
        redis.flushall()
        redis.script_flush()
    for theirs in mails.values():
        desk.hand_in("bulk", theirs[len(theirs) // 2 :])
    time.sleep(2)
    refreshed = account.refresh()
    account.learnt_at = time.monotonic()
    assert account.limit() == "50/s", refreshed

    everything = [key(mail) for mail in mails["tenant-1"]]
    wait_until(
        lambda: set(everything) <= {a.key for a in desk.arrivals(everything) if a.accepted},
        lambda: f"{len(desk.arrivals(everything))} of {len(everything)} arrived",
    )
    # A mail that was claimed when Redis lost it may have been sent: it isn't sent again before that is known.
    assert set(times_sent(desk.arrivals(everything)).values()) == {1}
    assert not times_sent(desk.arrivals(map(key, mails["tenant-2"]))), "its configuration set is paused"
    # What had gone of the hour before Redis lost everything isn't known any more.
    warm = times_sent(desk.arrivals(map(key, mails["warm"])))
    assert 0 < len(warm) <= 2 * WARM_CAP
    assert set(warm.values()) == {1}
    paused = account.control("status")["paused"]
    assert [tenant["tenant"] for tenant in paused] == ["tenant-2"], paused


def test_mail_that_goes_around_the_schedule_is_noticed(account: Account) -> None:
    # The schedule refreshes by itself meanwhile.
    last = account.control("status")["last_refresh"]
    time.sleep(max(account.learnt_at + SETTLED_SECONDS - time.monotonic(), 70))
    assert account.control("status")["last_refresh"] != last
    account.refresh()
    ses = account.stack.ses()
    for _ in range(50):
        ses.send_email(
            FromEmailAddress="other@example.com",
            Destination={"ToAddresses": ["reader@example.com"]},
            Content={"Simple": {"Subject": {"Data": "x"}, "Body": {"Text": {"Data": "x"}}}},
        )
        time.sleep(0.03)
    assert account.refresh()["control"]["unscheduled"] == 50
    assert account.control("status")["unscheduled"] == 50


def deploy(template: Path, parameters: dict[str, str], endpoint_url: str) -> int:
    """Deploy as `make demo` does; sam's answer to the shell."""
    environ = aws_environment(AWS_ENDPOINT_URL=endpoint_url)
    command = deploy_command(template, parameters)
    return subprocess.run(command, env=environ, cwd=ROOT, capture_output=True, timeout=240, check=False).returncode


def test_a_deploy_that_fails_is_taken_back_and_loses_no_mail(
    account: Account, desk: Desk, send_id: Callable[[], str]
) -> None:
    # Mail that waits, and none that is just being sent: the emulator ends workers when their function changes.
    account.provider.let_account_send(enabled=False)
    account.refresh()
    assert account.control("status")["blocked"]
    waiting = [request(send_id(), "tenant-1") for _ in range(15)]
    desk.hand_in("bulk", waiting)

    template = OUT / "account" / "package" / "template.yaml"
    broken = template.with_name("broken.yaml")
    # A custom resource that nobody answers for, once the budget was refreshed with the new number.
    text, count = re.subn(
        r"^Resources:$",
        "Resources:\n  Broken: {Type: Custom::Broken, DependsOn: Refresh, "
        "Properties: {ServiceToken: !GetAtt SendFunction.Arn, ServiceTimeout: 3}}",
        template.read_text(),
        flags=re.MULTILINE,
    )
    assert count == 1
    broken.write_text(text)
    knobs = Knobs.read(KNOBS)
    changed = parameters(knobs, knobs.tenant_names(), account.stack.redis_url) | MORE
    assert deploy(broken, changed | {"Headroom": "0.5"}, account.stack.endpoint_url) != 0

    formation = account.stack.client("cloudformation")
    status = lambda: formation.describe_stacks(StackName=account.stack.stack_name)["Stacks"][0]["StackStatus"]  # noqa: E731
    wait_until(lambda: not status().endswith("IN_PROGRESS"), status)
    assert status() == "UPDATE_ROLLBACK_COMPLETE"
    mend_types(account.stack.endpoint_url, account.stack.outputs, {})
    with account.stack.redis() as redis:
        assert redis.hget("sendslot:{ses}:budget", "headroom") == b"0.9"
    account.provider.let_account_send(enabled=True)
    account.refresh()
    # What was told that nobody may send for two minutes comes back within a minute after that.
    keys = set(map(key, waiting))
    arrived = lambda: {arrival.key for arrival in desk.arrivals(keys) if arrival.accepted}  # noqa: E731
    # Not until the queues are empty: the warming tenant's mail waits for its next hour.
    wait_until(lambda: arrived() == keys, lambda: f"{len(arrived())} of {len(keys)} arrived", seconds=240)
    assert times_sent(desk.arrivals(keys)) == dict.fromkeys(keys, 1)


def test_the_stack_can_be_deleted(account: Account) -> None:
    # Even though nobody answers for the account any more.
    account.provider.faults({"operation": "GetAccount", "kind": "hang_before", "ms": 60_000})
    formation = account.stack.client("cloudformation")
    begun = time.monotonic()
    formation.delete_stack(StackName=account.stack.stack_name)

    def there() -> list[str]:
        stacks = formation.list_stacks()["StackSummaries"]
        ours = [stack for stack in stacks if stack["StackName"].startswith(account.stack.stack_name)]
        return [stack["StackStatus"] for stack in ours if stack["StackStatus"] != "DELETE_COMPLETE"]

    wait_until(lambda: not there(), lambda: str(there()))
    assert time.monotonic() - begun < 60
