"""Alarms that can fire: on metrics that exist, with the dimensions they are published with."""

import re

from cloudformation import Stack

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


def watched(stack):
    """(metric, resource) of every alarm."""
    seen = []
    for path, alarm in stack.all("AWS::CloudWatch::Alarm").items():
        properties = alarm["Properties"]
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
