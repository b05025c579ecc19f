"""What was deployed is what the template declares."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.local.queues import DEAD, LIVE
from tests.local.stack import Stack

FOURTEEN_DAYS = "1209600"
READERS = {"Intake": "ReserveFunctionName", "Send": "SendFunctionName"}
SOURCES = [(lane, kind) for lane in ("Priority", "Bulk") for kind in READERS]


def attributes(stack: Stack, output: str) -> dict[str, str]:
    answer = stack.client("sqs").get_queue_attributes(QueueUrl=stack.outputs[output], AttributeNames=["All"])
    return answer["Attributes"]


def mapping(stack: Stack, lane: str, kind: str) -> dict[str, Any]:
    arn = attributes(stack, f"{lane}{kind}QueueUrl")["QueueArn"]
    found = stack.client("lambda").list_event_source_mappings(FunctionName=stack.outputs[READERS[kind]])
    [one] = [each for each in found["EventSourceMappings"] if each["EventSourceArn"] == arn]
    return one


def test_the_outputs_are_there(stack: Stack) -> None:
    assert {*LIVE, *DEAD, *READERS.values()} <= stack.outputs.keys()
    assert len({stack.outputs[output] for output in (*LIVE, *DEAD)}) == 8


@pytest.mark.parametrize(("lane", "kind"), SOURCES)
def test_a_queue_waits_for_its_function_and_gives_up_late(stack: Stack, lane: str, kind: str) -> None:
    queue = attributes(stack, f"{lane}{kind}QueueUrl")
    redrive = json.loads(queue["RedrivePolicy"])
    function = stack.client("lambda").get_function_configuration(FunctionName=stack.outputs[READERS[kind]])
    window = mapping(stack, lane, kind).get("MaximumBatchingWindowInSeconds", 0)
    assert int(queue["VisibilityTimeout"]) == 6 * function["Timeout"] + int(window)
    assert int(redrive["maxReceiveCount"]) >= 5
    assert redrive["deadLetterTargetArn"] == attributes(stack, f"{lane}{kind}DlqUrl")["QueueArn"]
    assert queue["MessageRetentionPeriod"] == FOURTEEN_DAYS


@pytest.mark.parametrize(("lane", "kind"), SOURCES)
def test_a_mapping_reports_single_failures_and_is_bounded(stack: Stack, lane: str, kind: str) -> None:
    source = mapping(stack, lane, kind)
    assert source["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert 2 <= int(source["ScalingConfig"]["MaximumConcurrency"]) <= 1000


def test_a_dead_letter_queue_keeps_what_it_gets(stack: Stack) -> None:
    for output in DEAD:
        assert attributes(stack, output)["MessageRetentionPeriod"] == FOURTEEN_DAYS
