"""Alarms that can fire: on metrics that exist, with the dimensions they are published with."""

import re

import pytest
from cloudformation import ROOT, Stack

QUEUE = ("QueueName", "AWS::SQS::Queue", ["{%s.QueueName}"])
FUNCTION = ("FunctionName", "AWS::Serverless::Function", ["{%s}"])
# Members of a replication group are named after it, from -001 on.
CACHE = ("CacheClusterId", "AWS::ElastiCache::ReplicationGroup", ["{%s}-001", "{%s}-002"])

# What AWS publishes: (namespace, metric) -> its one dimension, the type of resource that names, and how.
PUBLISHED = {
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible"): QUEUE,
    ("AWS/SQS", "ApproximateAgeOfOldestMessage"): QUEUE,
    ("AWS/Lambda", "Errors"): FUNCTION,
    ("AWS/Lambda", "Throttles"): FUNCTION,
    ("AWS/ElastiCache", "DatabaseMemoryUsagePercentage"): CACHE,
    ("AWS/ElastiCache", "Evictions"): CACHE,
}
# What the functions emit themselves, per service and lane: metric -> the function.
EMITTED = {"EnqueueFailed": "ReserveFunction", "ClaimFailed": "SendFunction"}


def emitted(stack, properties):
    """`service/lane` of an alarm on a metric of our own."""
    dimensions = {one["Name"]: one["Value"] for one in properties["Dimensions"]}
    assert dimensions.keys() == {"service", "lane"}
    variables = stack.resources[EMITTED[properties["MetricName"]]]["Properties"]["Environment"]["Variables"]
    assert dimensions["service"] == variables["POWERTOOLS_SERVICE_NAME"]
    assert properties["Namespace"] == variables["POWERTOOLS_METRICS_NAMESPACE"]
    return f"{dimensions['service']}/{dimensions['lane']}"


def watched(stack):
    """(metric, resource) of every alarm."""
    seen = []
    for path, alarm in stack.all("AWS::CloudWatch::Alarm").items():
        properties = alarm["Properties"]
        if properties["MetricName"] in EMITTED:
            seen.append((properties["MetricName"], emitted(stack, properties)))
            continue
        (dimension,) = properties["Dimensions"]
        name, kind, forms = PUBLISHED[properties["Namespace"], properties["MetricName"]]
        assert dimension["Name"] == name, path
        assert dimension["Value"] in [form % resource for form in forms for resource in stack.all(kind)], path
        seen.append((properties["MetricName"], dimension["Value"]))
    return seen


def test_every_alarm_watches_what_is_published_of_what_is_made(stack):
    assert watched(stack)


def test_nothing_is_watched_twice_or_forgotten(made):
    seen = watched(made)
    assert len(seen) == len(set(seen))
    queues = made.all("AWS::SQS::Queue")
    expected = {("ApproximateNumberOfMessagesVisible", f"{{{q}.QueueName}}") for q in queues if q.endswith("Dlq")}
    expected |= {("ApproximateAgeOfOldestMessage", f"{{{q}.QueueName}}") for q in queues if not q.endswith("Dlq")}
    expected |= {(m, f"{{{f}}}") for m in ("Errors", "Throttles") for f in made.all("AWS::Serverless::Function")}
    expected |= {("EnqueueFailed", f"reserve/{lane}") for lane in ("priority", "bulk")}
    expected |= {("ClaimFailed", f"send/{lane}") for lane in ("priority", "bulk")}
    group = "{Cache/ReplicationGroup}"
    expected |= {
        ("DatabaseMemoryUsagePercentage", f"{group}-001"),
        ("Evictions", f"{group}-001"),
        ("Evictions", f"{group}-002"),
    }
    assert set(seen) == expected


def test_alarms_say_what_is_too_high_and_what_to_do(stack):
    for path, alarm in stack.all("AWS::CloudWatch::Alarm").items():
        assert re.fullmatch(r"(\w+/)*[A-Z]\w+TooHighAlarm", path)
        assert " - " in alarm["Properties"]["AlarmDescription"], path
        assert alarm["Properties"]["ComparisonOperator"] == "GreaterThanThreshold", path
        # Silence is no news, but for the cache, whose node speaks every minute while it lives.
        expected = "missing" if path == "Cache/MemoryTooHighAlarm" else "notBreaching"
        assert alarm["Properties"]["TreatMissingData"] == expected, path


@pytest.mark.parametrize(("metric", "function"), EMITTED.items())
def test_the_functions_emit_what_the_alarms_watch(made, metric, function):
    folder = ROOT / made.resources[function]["Properties"]["CodeUri"] / "src"
    assert any(f'"{metric}"' in path.read_text() for path in folder.rglob("*.rs")), f"{folder} has no {metric}"


@pytest.mark.parametrize("timeout", ["20", "30", "60"])
def test_a_failing_lane_is_known_before_its_mail_is_dead_lettered(timeout):
    fewest = {"ReserveTimeoutSeconds": timeout, "SendTimeoutSeconds": timeout, "MaxReceiveCount": "5"}
    stack = Stack(fewest)
    queues = stack.all("AWS::SQS::Queue")
    for path, alarm in stack.all("AWS::CloudWatch::Alarm").items():
        properties = alarm["Properties"]
        if properties["MetricName"] not in EMITTED:
            continue
        lane = path.split("/")[0]
        kind = {"EnqueueFailed": "IntakeQueue", "ClaimFailed": "SendQueue"}[properties["MetricName"]]
        queue = queues[f"{lane}/{kind}"]["Properties"]
        # A lone message is seen again once per visibility timeout, so no period may be shorter.
        period = int(properties["Period"])
        assert period >= int(queue["VisibilityTimeout"])
        assert period % 60 == 0
        assert (properties["Statistic"], properties["Threshold"]) == ("Sum", 0)
        fires = period * properties["DatapointsToAlarm"]
        redriven = int(queue["VisibilityTimeout"]) * int(queue["RedrivePolicy"]["maxReceiveCount"])
        assert fires <= redriven / 2, path


def test_one_dead_letter_is_one_too_many(made):
    for path, alarm in made.all("AWS::CloudWatch::Alarm").items():
        if "DeadLetters" in path:
            assert (alarm["Properties"]["Threshold"], alarm["Properties"]["Statistic"]) == (0, "Maximum")


def test_lanes_have_their_own_patience():
    alarms = Stack({"PriorityAgeTooHighSeconds": "61", "BulkAgeTooHighSeconds": "3601"}).all("AWS::CloudWatch::Alarm")
    ages = {path: a["Properties"]["Threshold"] for path, a in alarms.items() if "AgeTooHigh" in path}
    assert ages == {
        "PriorityLane/IntakeAgeTooHighAlarm": "61",
        "PriorityLane/SendAgeTooHighAlarm": "61",
        "BulkLane/IntakeAgeTooHighAlarm": "3601",
        "BulkLane/SendAgeTooHighAlarm": "3601",
    }
