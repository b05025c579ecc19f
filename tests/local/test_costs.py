"""Counting and pricing: each figure against one worked out by hand, and the page against what it is made from."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import valkey
from ministack import app
from ministack.core.lambda_runtime import ProvidedWorker
from ministack.services import eventbridge, sqs

from tests.local import costs
from tests.local.costing import (
    ACCOUNTS,
    MILLION,
    Clock,
    Figures,
    Made,
    Stretch,
    batches,
    cache,
    fixed,
    memory_bytes,
    node,
    of_mail,
    parts,
    seed,
    waiting_seconds,
)
from tests.local.costs_page import money, tables, written
from tests.local.counting import (
    EVENTBRIDGE,
    FUNCTION,
    OTHER,
    PLATFORM_BYTES,
    POLLER,
    Counted,
    Counter,
    Invocations,
    Meter,
    Requests,
    billed_requests,
    metrics_in,
    sent,
)
from tests.local.emulator import count_events, count_invocations, count_polls, count_requests
from tests.local.errors import LocalError
from tests.local.processes import Processes
from tests.local.servers import start_valkey

PRICES = {
    "sqs_request": 0.4e-6,
    "sqs_fair_request_surcharge": 0.1e-6,
    "lambda_request": 0.2e-6,
    "lambda_gb_second": 0.0000133334,
    "ses_mail": 0.0001,
    "s3_put": 5e-6,
    "s3_get": 0.4e-6,
    "cloudwatch_request": 1e-5,
    "cloudwatch_logs_gb": 0.5,
    "cloudwatch_alarm_month": 0.1,
    "cloudwatch_metric_month": 0.3,
    "cloudwatch_dashboard_month": 3,
    "endpoint_gb": 0.01,
    "endpoint_hour": 0.01,
    "scheduler_invocation": 1e-6,
    "hours_month": 730,
    "cache_t4g_micro_hour": 0.0128,
    "cache_r7g_xlarge_hour": 0.35,
}
# What a thousand mails take in batches of ten.
PLAIN = Stretch(
    mails=1000,
    ses_requests=1000,
    ses_recipients=1000,
    requests=[
        ("sqs", "SendMessageBatch", OTHER, "intake", Requests(100, 100, 0, 400_000)),
        ("sqs", "ReceiveMessage", POLLER, "intake", Requests(100, 100, 0, 400_000)),
        ("sqs", "DeleteMessageBatch", POLLER, "intake", Requests(100, 100, 0, 0)),
        ("sqs", "SendMessageBatch", FUNCTION, "send", Requests(100, 100, 100, 500_000)),
        ("sqs", "ReceiveMessage", POLLER, "send", Requests(100, 100, 0, 500_000)),
        ("sqs", "DeleteMessageBatch", POLLER, "send", Requests(100, 100, 0, 0)),
        # By the clock, and so in no mail's bill.
        ("s3", "ListObjects", FUNCTION, "", Requests(7, 7, 0, 0)),
        ("sqs", "GetQueueAttributes", FUNCTION, "send", Requests(8, 8, 0, 0)),
        ("ssm", "GetParametersByPath", FUNCTION, "", Requests(1, 1, 0, 0)),
    ],
    invocations={
        "reserve": Invocations(100, 5, 10_000, 512, 100_000),
        "send": Invocations(100, 5, 100_000, 512, 500_000),
    },
    redis_calls=340,
)
EVENTS = dataclasses.replace(
    PLAIN,
    requests=[
        *PLAIN.requests,
        ("sqs", "SendMessage", EVENTBRIDGE, "feedback", Requests(2000, 2000, 0, 2_000_000)),
        ("sqs", "ReceiveMessage", POLLER, "feedback", Requests(200, 200, 0, 2_000_000)),
        ("sqs", "DeleteMessageBatch", POLLER, "feedback", Requests(200, 200, 0, 0)),
    ],
    invocations=PLAIN.invocations | {"feedback": Invocations(200, 2, 2_000, 512, 200_000)},
)
FIGURES = Figures(
    mails=1000,
    rate_per_second=100,
    clock=Clock(3.0, 0.1, 3000.0, 6.0, {"s3 ListObjects": 1.0, "ssm GetParametersByPath": 1.0, "sqs SendMessage": 0.5}),
    plain=PLAIN,
    events=EVENTS,
    custom_metrics=100,
    mark_bytes=200,
    trace_bytes=240,
    event_bytes=100,
)
MADE = Made(
    alarm_metrics=60, endpoints=2, zones=2, dashboards=1, schedules=2, polled_queues=5, cache_nodes=2
)  # fmt: skip


def test_what_a_mail_takes_is_what_was_counted_for_mail() -> None:
    assert PLAIN.sqs_requests() == pytest.approx(0.6)
    assert PLAIN.sqs(POLLER, "send") == pytest.approx(0.2)
    assert EVENTS.sqs_requests() == pytest.approx(3.0)
    assert PLAIN.lambda_requests() == pytest.approx(0.2)
    assert PLAIN.gb_seconds() == pytest.approx(0.055)
    assert PLAIN.gb_seconds("send") == pytest.approx(0.05)
    assert PLAIN.s3() == 0
    assert PLAIN.endpoint_bytes() == pytest.approx(1000)
    assert EVENTS.batch("send") == (10.0, 1000.0)


def test_a_million_mails_cost_what_a_pencil_says() -> None:
    # 600,000 requests, 100,000 with a group, 200,000 invocations, 55,000 GB-s, 0.6 GB of logs, 1 GB through endpoints.
    by_hand = 0.24 + 0.01 + 0.04 + 55_000 * 0.0000133334 + 0.30 + 0.01
    assert of_mail(PLAIN, PRICES) * MILLION == pytest.approx(by_hand)
    # 2,400,000 requests, 200,000 invocations, 1,000 GB-s and 0.2 GB of logs more.
    more = 0.96 + 0.04 + 1_000 * 0.0000133334 + 0.10
    assert of_mail(EVENTS, PRICES) * MILLION == pytest.approx(by_hand + more)
    assert not any("ListObjects" in part.name or part.amount == 0 for part in parts(PLAIN, PRICES))


def test_the_seeds_figure_is_what_its_assumptions_come_to() -> None:
    sqs_dollars, runs, seconds = seed(PRICES)
    assert sqs_dollars == pytest.approx(4.40)
    assert runs + seconds == pytest.approx(6.87, abs=0.005)
    assert sqs_dollars + runs + seconds == pytest.approx(11.27, abs=0.005)


def test_smaller_batches_cost_more() -> None:
    full = batches(FIGURES, PRICES, 10)
    # 0.1 + 5/10 requests; the last of ten waits 10/11 s of a second, half a GB, and reserve took 100 ms.
    assert full[0] == pytest.approx(0.24)
    assert full[1] == pytest.approx((10 / 11 + 0.1) / 10 * 0.5 * 13.3334)
    assert full[2] == pytest.approx(0.04)
    assert sum(batches(FIGURES, PRICES, 1)) > 5 * sum(full)


def test_send_waits_half_a_second_for_one_and_longer_for_the_last_of_ten() -> None:
    assert waiting_seconds(100, 1) == 0.5
    assert waiting_seconds(100, 10) == pytest.approx(0.545)


def test_a_month_without_mail() -> None:
    dollars = {part.name: part.dollars for part in fixed(FIGURES, MADE, PRICES)}
    assert dollars["interface endpoints, 2 in 2 zones each"] == pytest.approx(29.20)
    assert dollars["alarms"] == pytest.approx(6.00)
    # Five queues, five pollers each, three polls a minute: 75 a minute.
    assert dollars["Lambda's pollers at empty queues"] == pytest.approx(75 * 43_800 * 0.4e-6)
    assert dollars["schedules, one run a minute each"] == pytest.approx(0.0876)
    # A list of the bucket, half a message, and SSM for nothing.
    assert dollars["the same: requests to S3, CloudWatch and SQS"] == pytest.approx(43_800 * (5e-6 + 0.2e-6))


def test_the_cache_is_the_smallest_whose_alarm_is_silent() -> None:
    assert memory_bytes(FIGURES, 1000, 14) == pytest.approx(1000 * (200 * 15 + (240 + 2 * 100) * 26 / 24))
    edge = 0.5 * 2**30 * 0.5625
    assert [node(edge), node(edge + 1)] == ["t4g_micro", "t4g_small"]
    kind, part = cache(FIGURES, MADE, PRICES, ACCOUNTS[0].per_day, 14)
    assert (kind, part.dollars) == ("cache.t4g.micro", pytest.approx(2 * 730 * 0.0128))
    with pytest.raises(ValueError, match="no node"):
        node(1e15)


def test_figures_survive_their_file() -> None:
    told = json.loads(json.dumps(FIGURES.to_json()))
    assert Figures.of_json(told) == FIGURES
    assert told["sqs_requests"] == 3.0
    assert told["redis_calls"] == 0.34
    assert told["lambda_requests"] == 0.4
    assert told["redis_bytes"] == 640


def test_a_key_takes_its_name_its_value_and_more(tmp_path: Path) -> None:
    with Processes(tmp_path / "logs") as processes:
        server = valkey.Valkey.from_url(start_valkey(processes, "127.0.0.1", tmp_path))
        assert costs.key_bytes(server, []) == 0
        small, large = (costs.key_bytes(server, [(b"n" * 40, b"v" * size)]) for size in (60, 560))
        assert server.dbsize() == 0
    # Above its text a key has an entry in the table of keys and one in that of expiries, some 100 bytes.
    assert 100 < small < 300
    assert 450 < large - small < 650


@pytest.mark.parametrize(("size", "billed"), [(0, 1), (65_536, 1), (65_537, 2), (1_048_576, 16)])
def test_sqs_bills_64_kib(size: int, billed: int) -> None:
    assert billed_requests(size) == billed


def test_attributes_are_payload_too() -> None:
    attributes = {"Why": {"DataType": "String", "StringValue": "späte"}}
    entries = [{"MessageBody": "abc"}, {"MessageBody": "ü", "MessageGroupId": "acme", "MessageAttributes": attributes}]
    assert sent({"QueueUrl": "…", "Entries": entries}) == (3 + 2 + 3 + 6 + 6, True)
    assert sent({"MessageBody": "abc"}) == (3, False)


def test_a_metric_is_its_name_with_its_dimensions() -> None:
    names = [{"Name": "Sent"}, {"Name": "Left"}]
    directive = {"Namespace": "Sendslot", "Dimensions": [["service", "lane"]], "Metrics": names}
    line = json.dumps({"_aws": {"CloudWatchMetrics": [directive]}, "service": "send", "lane": "bulk", "Sent": 3})
    log = f"not JSON\n{line}\n{line}\n" + '{"level":"INFO","message":"_aws"}'
    assert sorted(metrics_in(log)) == sorted(
        2 * ["Sendslot Left lane=bulk,service=send", "Sendslot Sent lane=bulk,service=send"]
    )
    counter = Counter(Path("nowhere"))
    for _ in range(2):
        counter.invocation("send", 0.0101, 512, False, log)
    runs = counter.now().invocations["send"]
    assert len(counter.now().metrics) == 2
    assert (runs.count, runs.billed_ms) == (2, 22)
    assert runs.log_bytes == 2 * (len(log.encode()) + PLATFORM_BYTES)


def test_a_difference_is_what_came_between(tmp_path: Path) -> None:
    counter = Counter(tmp_path / "counts.json")
    counter.request("sqs", "SendMessage", FUNCTION, "q", 70_000)
    counter.invocation("send", 1, 512, True, "")
    before = counter.now()
    counter.request("sqs", "SendMessage", FUNCTION, "q", 10, grouped=True)
    counter.request("s3", "PutObject", FUNCTION, "", 200_000)
    counter.invocation("send", 2, 512, False, "")
    between = counter.now().since(before)
    assert between.requests["sqs", "SendMessage", FUNCTION, "q"] == Requests(1, 1, 1, 10)
    assert between.requests["s3", "PutObject", FUNCTION, ""].billed == 1
    assert (between.invocations["send"].count, between.invocations["send"].cold) == (1, 0)
    assert between.invocations["send"].gb_seconds == pytest.approx(1.0)


def test_the_file_says_what_was_counted(tmp_path: Path) -> None:
    counter = Counter(tmp_path / "counts.json")
    counter.write_on()
    meter = Meter(tmp_path / "counts.json")
    counter.request("sqs", "SendMessage", FUNCTION, "q", 70_000)
    counter.invocation("send", 1, 512, True, "")
    assert meter.read() == counter.now()
    assert isinstance(meter.read(), Counted)


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """A counter in a patched emulator."""
    for module, names in (
        (app, ["_dispatch_service_request"]),
        (sqs, ["_receive_messages_for_esm", "_delete_messages_for_esm"]),
        (eventbridge, ["_dispatch_to_sqs"]),
        (ProvidedWorker, ["invoke", "_drain_stderr_bounded"]),
    ):
        for name in names:
            monkeypatch.setattr(module, name, getattr(module, name))
    return Counter(Path("nowhere"))


@pytest.fixture
def queue() -> Any:
    """An empty queue of the emulator."""
    yield sqs._act_create_queue({"QueueName": "counted"}, "")["QueueUrl"]
    sqs.reset()


def ask(action: str, agent: str, **request: Any) -> int:
    headers = {"x-amz-target": f"AmazonSQS.{action}", "user-agent": agent, "content-type": "application/x-amz-json-1.0"}
    body = json.dumps(request).encode()
    status: int = asyncio.run(app._dispatch_service_request("POST", "/", headers, body, {}, "id"))[0]
    return status


def test_requests_are_counted_at_the_emulators_door_by_who_asks(counter: Counter, queue: str) -> None:
    count_requests(app, counter)
    entries = [{"Id": f"{n}", "MessageBody": "x" * 40_000, "MessageGroupId": "acme"} for n in range(2)]
    assert ask("SendMessageBatch", "aws-sdk-rust/1.3.10 os/linux", QueueUrl=queue, Entries=entries) == 200
    assert ask("SendMessage", "Boto3/1.40 md/Botocore", QueueUrl=queue, MessageBody="x") == 200
    assert counter.now().requests == {
        ("sqs", "SendMessageBatch", FUNCTION, "counted"): Requests(1, 2, 2, 80_000),
        ("sqs", "SendMessage", OTHER, "counted"): Requests(1, 1, 0, 1),
    }
    assert len(sqs._queues[queue]["messages"]) == 3


def test_what_a_mapping_takes_and_deletes_counts_as_lambdas_requests(counter: Counter, queue: str) -> None:
    for number in range(12):
        sqs._act_send_message({"QueueUrl": queue, "MessageBody": f"{number:05}"}, queue)
    count_polls(sqs, counter)
    while batch := sqs._receive_messages_for_esm(queue, 10):
        sqs._delete_messages_for_esm(queue, {message["receipt_handle"] for message in batch})
    assert counter.now().requests == {
        ("sqs", "ReceiveMessage", POLLER, "counted"): Requests(2, 2, 0, 60),
        ("sqs", "DeleteMessageBatch", POLLER, "counted"): Requests(2, 2, 0, 0),
    }
    assert sqs._queues[queue]["messages"] == []


def test_an_event_that_a_rule_puts_on_a_queue_is_a_request(counter: Counter, queue: str) -> None:
    count_events(eventbridge, counter)
    arn = sqs._queues[queue]["attributes"]["QueueArn"]

    class Spec(SimpleNamespace):
        def __str__(self) -> str:
            return str(arn)

    eventbridge._dispatch_to_sqs(Spec(resource="counted"), "{}", {})
    assert counter.now().requests == {("sqs", "SendMessage", EVENTBRIDGE, "counted"): Requests(1, 1, 0, 2)}
    assert len(sqs._queues[queue]["messages"]) == 1


def test_a_run_is_billed_without_the_emulators_wait_for_its_last_words() -> None:
    class Worker:
        func_name = "send"
        config = {"MemorySize": 512}  # noqa: RUF012

        def _drain_stderr_bounded(self) -> str:
            time.sleep(0.3)
            return "said"

        def invoke(self, _event: object) -> dict[str, Any]:
            time.sleep(0.1)
            return {"log": self._drain_stderr_bounded(), "cold_start": True}

    counter = Counter(Path("nowhere"))
    count_invocations(Worker, counter)
    assert Worker().invoke({})["log"] == "said"
    runs = counter.now().invocations["send"]
    assert (runs.count, runs.cold, runs.memory_mb) == (1, 1, 512)
    assert 100 <= runs.billed_ms < 250
    assert runs.log_bytes == len("said") + PLATFORM_BYTES


def test_the_emulator_has_what_is_counted() -> None:
    assert {"invoke", "_drain_stderr_bounded"} <= set(dir(ProvidedWorker))
    for name in ("detect_service", "_ct_event_name", "_routing_params", "_dispatch_service_request"):
        assert callable(getattr(app, name))


def test_an_endpoint_of_somebody_elses_is_refused() -> None:
    with pytest.raises(LocalError, match="AWS_ENDPOINT_URL"):
        costs.costs({"AWS_ENDPOINT_URL": "http://127.0.0.1:4566"})


def test_text_between_markers_is_replaced_and_nothing_else() -> None:
    assert written("a\n<!-- x -->\nold\n<!-- /x -->\nb", {"x": "new\n"}) == "a\n<!-- x -->\nnew\n<!-- /x -->\nb"
    with pytest.raises(ValueError, match="<!-- x -->"):
        written("nothing", {"x": "new\n"})


@pytest.mark.parametrize(
    ("dollars", "text"), [(1234.5, "1,234.50"), (0.1, "0.10"), (0.041, "0.041"), (0.0075, "0.0075"), (0, "0.00")]
)
def test_small_money_has_more_digits(dollars: float, text: str) -> None:
    assert money(dollars) == text


def test_the_page_says_what_figures_prices_and_template_come_to() -> None:
    figures = Figures.of_json(json.loads(costs.FIGURES.read_text()))
    page = costs.PAGE.read_text()
    assert written(page, tables(figures, json.loads(costs.PRICES.read_text()))) == page, "run `make docs`"


def test_the_kept_figures_are_of_a_whole_run() -> None:
    kept = json.loads(costs.FIGURES.read_text())
    figures = Figures.of_json(kept)
    assert kept == json.loads(json.dumps(figures.to_json()))
    for stretch in (figures.plain, figures.events):
        assert stretch.mails == stretch.ses_recipients >= 1000
        # Each mail is put, received and deleted twice, ten at a time at best.
        assert stretch.sqs_requests() >= 0.6
        assert stretch.lambda_requests() >= 0.2
    assert figures.events.sqs(EVENTBRIDGE) >= 1
    assert figures.mark_bytes > 100
    assert figures.trace_bytes > 100
    assert figures.event_bytes > 80
