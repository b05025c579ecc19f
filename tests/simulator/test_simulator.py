"""boto3 works against the simulator unchanged: calls, answers and exception classes.

SES_SIMULATOR names the binary.
"""

import json
import os
import subprocess
import urllib.request
from datetime import UTC, datetime, timedelta

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ConnectionClosedError

MAIL = {
    "FromEmailAddress": "shop@example.com",
    "Destination": {"ToAddresses": ["someone@example.com"]},
    "Content": {
        "Simple": {
            "Subject": {"Data": "a subject"},
            "Body": {"Text": {"Data": "a text"}},
        }
    },
}


@pytest.fixture
def url():
    binary = os.environ.get("SES_SIMULATOR")
    if not binary:
        pytest.fail("set SES_SIMULATOR to the path of the ses-simulator binary")
    flags = ["--rate=5", "--daily=1000", "--latency-median-ms=0", "--latency-p99-ms=0"]
    with subprocess.Popen([binary, *flags], stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("listening on "), f"not ready: {line!r}"
            yield line.split()[-1]
        finally:
            process.terminate()


@pytest.fixture
def ses(url):
    return boto3.client(
        "sesv2",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )


def control(url, method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{url}/_simulator/{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_send_email_in_every_form(ses, url):
    tags = [{"Name": "send_id", "Value": "order-1"}, {"Name": "slot_ms", "Value": "1790000000000"}]
    contents = [
        MAIL["Content"],
        {"Raw": {"Data": b"From: shop@example.com\r\n\r\nHello"}},
        {"Template": {"TemplateName": "welcome", "TemplateData": "{}"}},
    ]
    answers = [ses.send_email(**{**MAIL, "Content": c}, EmailTags=tags) for c in contents]
    record = control(url, "GET", "record")
    assert [line["message_id"] for line in record] == [a["MessageId"] for a in answers]
    assert {line["send_id"] for line in record} == {"order-1"}
    assert {line["slot_ms"] for line in record} == {1790000000000}
    assert answers[0]["ResponseMetadata"]["RequestId"]


def test_get_account(ses):
    ses.send_email(**MAIL)
    account = ses.get_account()
    assert account["SendQuota"] == {
        "MaxSendRate": 5.0,
        "Max24HourSend": 1000.0,
        "SentLast24Hours": 1.0,
    }
    assert account["SendingEnabled"] is True
    assert account["ProductionAccessEnabled"] is True


def test_throttle(ses):
    destination = {"ToAddresses": ["someone@example.com"] * 5}
    ses.send_email(**{**MAIL, "Destination": destination})
    with pytest.raises(ses.exceptions.TooManyRequestsException) as raised:
        ses.send_email(**{**MAIL, "Destination": destination})
    response = raised.value.response
    assert response["Error"]["Message"] == "Maximum sending rate exceeded."
    assert response["ResponseMetadata"]["HTTPStatusCode"] == 429


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("TooManyRequestsException", 429),
        ("LimitExceededException", 400),
        ("ThrottlingException", 400),
    ],
)
def test_daily_quota(ses, url, name, status):
    control(url, "PUT", "settings", {"daily": 0, "daily_error": name})
    with pytest.raises(ses.exceptions.ClientError) as raised:
        ses.send_email(**MAIL)
    response = raised.value.response
    assert response["Error"] == {"Code": name, "Message": "Daily message quota exceeded"}
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status


def test_configuration_sets(ses):
    name = "acme-set"
    with pytest.raises(ses.exceptions.NotFoundException):
        ses.send_email(**MAIL, ConfigurationSetName=name)
    ses.create_configuration_set(ConfigurationSetName=name)
    with pytest.raises(ses.exceptions.AlreadyExistsException):
        ses.create_configuration_set(ConfigurationSetName=name)
    assert ses.list_configuration_sets()["ConfigurationSets"] == [name]
    ses.send_email(**MAIL, ConfigurationSetName=name)

    ses.put_configuration_set_sending_options(ConfigurationSetName=name, SendingEnabled=False)
    options = ses.get_configuration_set(ConfigurationSetName=name)["SendingOptions"]
    assert options == {"SendingEnabled": False}
    with pytest.raises(ses.exceptions.SendingPausedException, match=name):
        ses.send_email(**MAIL, ConfigurationSetName=name)
    ses.send_email(**MAIL)

    ses.delete_configuration_set(ConfigurationSetName=name)
    with pytest.raises(ses.exceptions.NotFoundException):
        ses.get_configuration_set(ConfigurationSetName=name)


def test_account_switches(ses, url):
    ses.put_account_sending_attributes(SendingEnabled=False)
    assert ses.get_account()["SendingEnabled"] is False
    with pytest.raises(ses.exceptions.SendingPausedException):
        ses.send_email(**MAIL)
    ses.put_account_sending_attributes(SendingEnabled=True)
    ses.send_email(**MAIL)
    control(url, "PUT", "settings", {"enforcement": "SHUTDOWN"})
    with pytest.raises(ses.exceptions.AccountSuspendedException):
        ses.send_email(**MAIL)


def test_faults(ses, url):
    faults = [
        {"kind": "throttle", "count": 1, "retry_after_s": 2},
        {"kind": "error_after", "count": 1},
        {"kind": "reset_before", "count": 1},
        {"kind": "hang_after", "ms": 50, "count": 1},
    ]
    control(url, "PUT", "faults", {"faults": faults})
    with pytest.raises(ses.exceptions.TooManyRequestsException) as raised:
        ses.send_email(**MAIL)
    assert raised.value.response["ResponseMetadata"]["HTTPHeaders"]["retry-after"] == "2"
    with pytest.raises(ses.exceptions.ClientError) as raised:
        ses.send_email(**MAIL)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    for _ in range(2):
        with pytest.raises(ConnectionClosedError):
            ses.send_email(**MAIL)
    ses.send_email(**MAIL)
    record = control(url, "GET", "record")
    assert [(line["outcome"], line.get("fault")) for line in record] == [
        ("throttled", "throttle"),
        ("accepted", "error_after"),
        ("failed", "reset_before"),
        ("accepted", "hang_after"),
        ("accepted", None),
    ]


def test_control_plane(ses, url):
    control(url, "PUT", "settings", {"control_rate": 0.01})
    ses.get_account()
    with pytest.raises(ses.exceptions.TooManyRequestsException) as raised:
        ses.list_configuration_sets()
    assert raised.value.response["Error"]["Message"] == "Rate exceeded"
    control(url, "PUT", "settings", {"control_rate": -1, "sent_elsewhere": 40_000, "daily": -1})
    quota = ses.get_account()["SendQuota"]
    assert (quota["SentLast24Hours"], quota["Max24HourSend"]) == (40_000.0, -1.0)
    faults = [
        {"operation": "GetAccount", "kind": "denied", "count": 1},
        {"operation": "GetAccount", "kind": "error_before", "count": 1},
        {"operation": "GetAccount", "kind": "patch", "patch": {"SendQuota": {"MaxSendRate": None}}},
    ]
    control(url, "PUT", "faults", {"faults": faults})
    for code in ("AccessDeniedException", "InternalFailure"):
        with pytest.raises(ses.exceptions.ClientError) as raised:
            ses.get_account()
        assert raised.value.response["Error"]["Code"] == code
    assert "MaxSendRate" not in ses.get_account()["SendQuota"]
    calls = control(url, "GET", "calls")
    assert [(call["operation"], call["outcome"], call.get("fault")) for call in calls] == [
        ("GetAccount", "done", None),
        ("ListConfigurationSets", "throttled", None),
        ("GetAccount", "done", None),
        ("GetAccount", "failed", "denied"),
        ("GetAccount", "failed", "error_before"),
        ("GetAccount", "done", "patch"),
    ]


def test_suppression_list(ses, url):
    control(url, "PUT", "settings", {"rate": 100, "event_delay_ms": 0})
    began = datetime.now(UTC) - timedelta(seconds=1)
    to = ["bounce1@bounces.example", "complaint@bounces.example", "bounce@simulator.amazonses.com"]
    for address in to:
        ses.send_email(**{**MAIL, "Destination": {"ToAddresses": [address]}})
    ses.put_suppressed_destination(EmailAddress="zoe+news@example.com", Reason="BOUNCE")

    def listed(**query):
        return ses.list_suppressed_destinations(**query)["SuppressedDestinationSummaries"]

    assert [(one["EmailAddress"], one["Reason"]) for one in listed(StartDate=began)] == [
        ("bounce1@bounces.example", "BOUNCE"),
        ("complaint@bounces.example", "COMPLAINT"),
        ("zoe+news@example.com", "BOUNCE"),
    ]
    assert [one["EmailAddress"] for one in listed(Reasons=["COMPLAINT"])] == [to[1]]
    assert listed(EndDate=began) == []
    assert listed(StartDate=datetime.now(UTC) + timedelta(minutes=1)) == []
    page = ses.list_suppressed_destinations(PageSize=2)
    assert len(page["SuppressedDestinationSummaries"]) == 2
    rest = ses.list_suppressed_destinations(PageSize=2, NextToken=page["NextToken"])
    assert [one["EmailAddress"] for one in rest["SuppressedDestinationSummaries"]] == ["zoe+news@example.com"]
    assert "NextToken" not in rest
    with pytest.raises(ses.exceptions.InvalidNextTokenException):
        ses.list_suppressed_destinations(NextToken="!")

    one = ses.get_suppressed_destination(EmailAddress="zoe+news@example.com")["SuppressedDestination"]
    assert began < one["LastUpdateTime"] < datetime.now(UTC) + timedelta(seconds=1)
    ses.delete_suppressed_destination(EmailAddress="zoe+news@example.com")
    with pytest.raises(ses.exceptions.NotFoundException):
        ses.get_suppressed_destination(EmailAddress="zoe+news@example.com")


@pytest.mark.parametrize(
    "change",
    [
        {"Destination": {"ToAddresses": ["someone@example.com"] * 51}},
        {"Destination": {}},
        {"EmailTags": [{"Name": "a", "Value": "not legal"}]},
        {"Content": {}},
    ],
)
def test_bad_requests(ses, change):
    with pytest.raises(ses.exceptions.BadRequestException):
        ses.send_email(**{**MAIL, **change})
