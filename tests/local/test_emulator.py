"""Delivery at least once: what our launcher changes in the emulator's SQS."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ministack.services import cloudwatch, scheduler, sqs

from tests.local.emulator import (
    LAG_SECONDS,
    NOTES,
    SCHEDULER_SECONDS,
    Redelivery,
    deliver_twice,
    heed_dimensions,
)


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The control file of a patched SQS."""
    for name in ("_receive_messages_for_esm", "_dispatch", "_delete_messages_for_esm"):
        monkeypatch.setattr(sqs, name, getattr(sqs, name))
    path = tmp_path / "control.json"
    deliver_twice(sqs, Redelivery(path))
    yield path
    sqs.reset()


@pytest.fixture
def queue(control: Path) -> str:
    """A queue with one mail."""
    url: str = sqs._act_create_queue({"QueueName": control.parent.name}, "")["QueueUrl"]
    body = json.dumps({"tenant": "acme", "send_id": "order-1"})
    sqs._act_send_message({"QueueUrl": url, "MessageBody": body}, url)
    return url


def call(action: str, **request: Any) -> Any:
    return asyncio.run(sqs._dispatch(action, request, request["QueueUrl"]))


def receive_twice(queue: str) -> tuple[dict[str, Any], dict[str, Any]]:
    [first] = sqs._receive_messages_for_esm(queue, 10)
    time.sleep(LAG_SECONDS)
    [second] = sqs._receive_messages_for_esm(queue, 10)
    return first, second


def left(queue: str) -> int:
    return len(sqs._queues[queue]["messages"])


def test_without_a_file_a_message_comes_once(queue: str) -> None:
    assert len(sqs._receive_messages_for_esm(queue, 10)) == 1
    time.sleep(LAG_SECONDS)
    assert sqs._receive_messages_for_esm(queue, 10) == []


def test_a_message_comes_twice_while_the_first_worker_has_it_and_no_more(queue: str, control: Path) -> None:
    control.write_text('{"twice": 1}')
    first, second = receive_twice(queue)
    assert first["id"] == second["id"]
    assert first["receipt_handle"] != second["receipt_handle"]
    assert [first["receive_count"], second["receive_count"]] == [1, 2]
    time.sleep(LAG_SECONDS)
    assert sqs._receive_messages_for_esm(queue, 10) == []
    [note] = [json.loads(line) for line in control.with_name(NOTES).read_text().splitlines()]
    assert (note["tenant"], note["send_id"]) == ("acme", "order-1")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("batch", [False, True])
def test_either_handle_deletes_it(queue: str, control: Path, which: int, batch: bool) -> None:
    control.write_text('{"twice": 1}')
    handle = receive_twice(queue)[which]["receipt_handle"]
    if batch:
        answer = call("DeleteMessageBatch", QueueUrl=queue, Entries=[{"Id": "0", "ReceiptHandle": handle}])
        assert len(answer["Successful"]) == 1
    else:
        call("DeleteMessage", QueueUrl=queue, ReceiptHandle=handle)
    assert left(queue) == 0


@pytest.mark.parametrize("which", [0, 1])
def test_a_mapping_deletes_by_the_handle_it_received(queue: str, control: Path, which: int) -> None:
    control.write_text('{"twice": 1}')
    sqs._delete_messages_for_esm(queue, {receive_twice(queue)[which]["receipt_handle"]})
    assert left(queue) == 0


def test_the_older_handle_changes_the_visibility(queue: str, control: Path) -> None:
    control.write_text('{"twice": 1}')
    first, _ = receive_twice(queue)
    call("ChangeMessageVisibility", QueueUrl=queue, ReceiptHandle=first["receipt_handle"], VisibilityTimeout=0)
    [third] = sqs._receive_messages_for_esm(queue, 10)
    assert third["receive_count"] == 3


def test_the_share_can_change_while_it_runs(queue: str, control: Path) -> None:
    control.write_text('{"twice": 0}')
    [once] = sqs._receive_messages_for_esm(queue, 10)
    sqs._delete_messages_for_esm(queue, {once["receipt_handle"]})
    for number in range(200):
        sqs._act_send_message({"QueueUrl": queue, "MessageBody": f"no mail {number}"}, queue)
    fresh = control.with_suffix(".new")
    fresh.write_text('{"twice": 0.2, "seed": 7}')
    fresh.replace(control)
    for _ in range(20):
        sqs._receive_messages_for_esm(queue, 10)
    time.sleep(LAG_SECONDS)
    again = sum(len(sqs._receive_messages_for_esm(queue, 10)) for _ in range(20))
    assert 20 <= again <= 60


def test_the_emulator_has_the_interval_that_its_launcher_sets() -> None:
    assert scheduler._SCHEDULE_TICK_INTERVAL >= SCHEDULER_SECONDS


def test_a_metric_sets_off_the_alarms_of_its_own_dimensions_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloudwatch, "_evaluate_alarm", cloudwatch._evaluate_alarm)
    heed_dimensions(cloudwatch)
    watched: dict[str, list[dict[str, str]]] = {
        "acme": [{"Name": "set", "Value": "acme"}],
        "other": [{"Name": "set", "Value": "other"}],
        "account": [],
    }
    try:
        for name, dimensions in watched.items():
            cloudwatch._alarms[name] = {
                "AlarmName": name,
                "AlarmArn": f"arn:aws:cloudwatch:us-east-1:000000000000:alarm:{name}",
                "Namespace": "AWS/SES",
                "MetricName": "Reputation.BounceRate",
                "Dimensions": dimensions,
                "Statistic": "Maximum",
                "Threshold": 0.05,
                "ComparisonOperator": "GreaterThanOrEqualToThreshold",
                "StateValue": "INSUFFICIENT_DATA",
            }
        bounces = ("AWS/SES", "Reputation.BounceRate", {"set": "acme"}, time.time(), "None", 0.07, None, None, None)
        cloudwatch._store_datum(*bounces)
        cloudwatch._evaluate_all_alarms()
        states = {name: cloudwatch._alarms[name]["StateValue"] for name in watched}
        assert states == {"acme": "ALARM", "other": "INSUFFICIENT_DATA", "account": "INSUFFICIENT_DATA"}
    finally:
        cloudwatch.reset()
