"""Alarms that can fire: on metrics that exist, with the dimensions they are published with."""

import re

import pytest
from cloudformation import ROOT, Stack

QUEUE = ("QueueName", "AWS::SQS::Queue", ["{%s.QueueName}"])
FUNCTION = ("FunctionName", "AWS::Serverless::Function", ["{%s}"])
BUCKET = ("BucketName", "AWS::S3::Bucket", ["{%s}"])
# Members of a replication group are named after it, from -001 on.
CACHE = ("CacheClusterId", "AWS::ElastiCache::ReplicationGroup", ["{%s}-001", "{%s}-002"])

# What AWS publishes: (namespace, metric) -> the dimension, the type of resource that names, and how.
PUBLISHED = {
    ("AWS/SQS", "ApproximateNumberOfMessagesVisible"): QUEUE,
    ("AWS/SQS", "ApproximateAgeOfOldestMessage"): QUEUE,
    ("AWS/Lambda", "Errors"): FUNCTION,
    ("AWS/Lambda", "Throttles"): FUNCTION,
    ("AWS/Lambda", "AsyncEventsDropped"): FUNCTION,
    ("AWS/ElastiCache", "DatabaseMemoryUsagePercentage"): CACHE,
    ("AWS/ElastiCache", "Evictions"): CACHE,
    ("AWS/S3", "NumberOfObjects"): BUCKET,
}
# SES publishes these of the account, without a dimension, and of each configuration set that asks for it.
REPUTATION = {"Reputation.BounceRate", "Reputation.ComplaintRate"}
# A further dimension that some have, always the same.
FURTHER = {"NumberOfObjects": {"StorageType": "AllStorageTypes"}}
LANES = ("priority", "bulk")
# Who pauses tenants.
PAUSING = ("ControlFunction", "FeedbackFunction", "AutoPauseFunction")
# Whom Lambda gives an event once, and tries again by itself.
ASYNCHRONOUS = {"AutoPauseFunction"}
# What the functions emit themselves and is watched, per service and lane or per service alone.
OF_LANES = [
    ("EnqueueFailed", "ReserveFunction"),
    ("RedisDown", "ReserveFunction"),
    ("RedisDown", "SendFunction"),
    ("Throttled", "SendFunction"),
    ("Blocked", "SendFunction"),
    ("Denied", "SendFunction"),
    ("Parked", "SendFunction"),
    ("SentUnclaimed", "SendFunction"),
]
OF_SERVICES = [
    ("RefreshFailed", "QuotaRefreshFunction"),
    ("BudgetKept", "ControlFunction"),
    ("QuotaUsedPercent", "ControlFunction"),
    ("UnscheduledSends", "ControlFunction"),
    ("RedisGenerationChanged", "ControlFunction"),
    ("TenantsInvalid", "ControlFunction"),
    ("TenantsFailed", "QuotaRefreshFunction"),
    ("ConcurrencyFailed", "QuotaRefreshFunction"),
    ("OldestParkedSeconds", "ControlFunction"),
    ("TenantsWarned", "FeedbackFunction"),
    *((metric, of) for metric in ("TenantsPaused", "NotSwitched") for of in PAUSING),
]
# Watched at several heights.
TWICE = {
    "QuotaUsedPercent": [80, 95],
    "Reputation.BounceRate": [0.025, 0.05],
    "Reputation.ComplaintRate": [0.0005, 0.001],
}
# What is heard each minute, so that silence is bad news, or none at all.
SILENCE = {"Cache/MemoryTooHighAlarm": "missing", "BudgetAlarms/RefreshFailedTooHighAlarm": "breaching"}
# Whose crashes and throttled invocations RefreshFailed tells of, as every refresh goes through both.
OF_REFRESH = {"QuotaRefreshFunction", "ControlFunction"}
# Counts of messages that come again after their queue's visibility timeout, and lose a receive.
FAILED = {"EnqueueFailed": "IntakeQueue"}
# Counts of messages that are put off, and come again after this long at most.
PUT_OFF = {"RedisDown", "Blocked", "Denied"}
LONGEST_HOP = 900


def service_of(function):
    """`QuotaRefreshFunction` is `quota-refresh`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", function.removesuffix("Function")).lower()


def emitted(stack, properties):
    """`service/lane`, or `service`, of an alarm on a metric of our own."""
    dimensions = {one["Name"]: one["Value"] for one in properties["Dimensions"]}
    (function,) = (
        name
        for name, resource in stack.all("AWS::Serverless::Function").items()
        if resource["Properties"]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == dimensions["service"]
    )
    if "lane" in dimensions:
        assert dimensions.keys() == {"service", "lane"}
        assert dimensions["lane"] in LANES
        assert (properties["MetricName"], function) in OF_LANES
    else:
        assert dimensions.keys() == {"service"}
        assert (properties["MetricName"], function) in OF_SERVICES
    variables = stack.resources[function]["Properties"]["Environment"]["Variables"]
    assert properties["Namespace"] == variables["POWERTOOLS_METRICS_NAMESPACE"]
    return "/".join(dimensions[name] for name in ("service", "lane") if name in dimensions)


def told_of(stack, dimensions):
    """The configuration set, or the account, whose reputation has these dimensions."""
    if not dimensions:
        return "account"
    assert dimensions.keys() == {"ses:configuration-set"}
    sets = {f"{{{path}}}": one for path, one in stack.all("AWS::SES::ConfigurationSet").items()}
    named = dimensions["ses:configuration-set"]
    assert sets[named]["Properties"]["ReputationOptions"] == {"ReputationMetricsEnabled": True}
    return named


def watched(stack):
    """(metric, resource) of every alarm."""
    seen = []
    for path, alarm in stack.all("AWS::CloudWatch::Alarm").items():
        properties = alarm["Properties"]
        if properties["Namespace"] == "Sendslot":
            seen.append((properties["MetricName"], emitted(stack, properties)))
            continue
        dimensions = {one["Name"]: one["Value"] for one in properties.get("Dimensions", [])}
        if properties["Namespace"] == "AWS/SES":
            assert properties["MetricName"] in REPUTATION, path
            seen.append((properties["MetricName"], told_of(stack, dimensions)))
            continue
        name, kind, forms = PUBLISHED[properties["Namespace"], properties["MetricName"]]
        value = dimensions.pop(name)
        assert dimensions == FURTHER.get(properties["MetricName"], {}), path
        assert value in [form % resource for form in forms for resource in stack.all(kind)], path
        seen.append((properties["MetricName"], value))
    return seen


def test_every_alarm_watches_what_is_published_of_what_is_made(stack):
    assert watched(stack)


def test_nothing_is_watched_twice_or_forgotten():
    made = Stack({"TenantAlarms": "true"})
    seen = watched(made)
    sets = {"account", "{TransactionalTenant/ConfigurationSet}", "{MarketingTenant/ConfigurationSet}"}
    heights = {}
    for one, alarm in zip(list(seen), made.all("AWS::CloudWatch::Alarm").values(), strict=True):
        if one[0] in TWICE:
            heights.setdefault(one, []).append(float(alarm["Properties"]["Threshold"]))
    twice = {("QuotaUsedPercent", "control")} | {(metric, of) for metric in REPUTATION for of in sets}
    assert {one: sorted(found) for one, found in heights.items()} == {one: TWICE[one[0]] for one in twice}
    for one in twice:
        seen.remove(one)
    assert len(seen) == len(set(seen))
    queues = made.all("AWS::SQS::Queue")
    expected = {("ApproximateNumberOfMessagesVisible", f"{{{q}.QueueName}}") for q in queues if q.endswith("Dlq")}
    expected |= {("ApproximateAgeOfOldestMessage", f"{{{q}.QueueName}}") for q in queues if not q.endswith("Dlq")}
    functions = made.all("AWS::Serverless::Function").keys() - OF_REFRESH
    expected |= {(metric, f"{{{function}}}") for metric in ("Errors", "Throttles") for function in functions}
    expected |= {(metric, f"{service_of(function)}/{lane}") for metric, function in OF_LANES for lane in LANES}
    expected |= {("AsyncEventsDropped", f"{{{function}}}") for function in ASYNCHRONOUS}
    expected |= {(metric, service_of(function)) for metric, function in OF_SERVICES} | twice
    expected |= {("NumberOfObjects", f"{{{bucket}}}") for bucket in made.all("AWS::S3::Bucket")}
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
        # A percentage may be exactly what it is compared with.
        or_equal = "OrEqualTo" if alarm["Properties"]["MetricName"] in TWICE else ""
        assert alarm["Properties"]["ComparisonOperator"] == f"GreaterThan{or_equal}Threshold", path
        assert alarm["Properties"]["TreatMissingData"] == SILENCE.get(path, "notBreaching"), path
        assert len(alarm["Properties"]["AlarmDescription"]) <= 1024, path  # CloudWatch takes no more


def code(folder):
    """The Rust sources of functions/`folder` without their tests."""
    sources = sorted((ROOT / "functions" / folder / "src").rglob("*.rs"))
    return "\n".join(path.read_text().partition("\nmod tests")[0] for path in sources)


@pytest.mark.parametrize(("metric", "function"), [*OF_LANES, *OF_SERVICES])
def test_the_functions_emit_what_the_alarms_watch_with_its_dimensions(metric, function):
    text = code(service_of(function))
    assert f'"{metric}"' in text, f"{function} has no {metric}"
    lanes = set(re.findall(r"Metrics::new\([^;]*?(Some\(lane\)|None)\)", text))
    assert lanes == {"Some(lane)" if (metric, function) in OF_LANES else "None"}, function


@pytest.mark.parametrize("function", sorted(OF_REFRESH))
def test_the_names_of_a_refreshs_metrics_are_what_it_counts_and_nothing_else(function):
    """Not a word that happens to be in a log line."""
    metered = set(re.findall(r'metrics\s*\.(?:count|gauge|longest)\(\s*"(\w+)"', code(service_of(function))))
    assert {metric for metric, of in OF_SERVICES if of == function} <= metered


def test_the_dimensions_are_those_of_the_metrics():
    text = code("shared/runtime")
    assert 'let mut dimensions = vec!["service"];' in text
    assert 'dimensions.push("lane");' in text


@pytest.mark.parametrize("timeout", ["20", "30", "60"])
def test_a_failing_lane_is_known_before_its_mail_is_dead_lettered(timeout):
    fewest = {"ReserveTimeoutSeconds": timeout, "SendTimeoutSeconds": timeout, "MaxReceiveCount": "5"}
    stack = Stack(fewest)
    queues = stack.all("AWS::SQS::Queue")
    for path, alarm in stack.all("AWS::CloudWatch::Alarm").items():
        properties = alarm["Properties"]
        if properties["MetricName"] not in FAILED:
            continue
        lane = path.split("/")[0]
        queue = queues[f"{lane}/{FAILED[properties['MetricName']]}"]["Properties"]
        # A lone message is seen again once per visibility timeout, so no period may be shorter.
        period = int(properties["Period"])
        assert period >= int(queue["VisibilityTimeout"])
        assert period % 60 == 0
        assert (properties["Statistic"], properties["Threshold"]) == ("Sum", 0)
        fires = period * properties["DatapointsToAlarm"]
        redriven = int(queue["VisibilityTimeout"]) * int(queue["RedrivePolicy"]["maxReceiveCount"])
        assert fires <= redriven / 2, path


def test_a_single_message_that_is_put_off_fires_its_alarm_soon_and_keeps_it_on(made):
    seen = set()
    for path, alarm in made.all("AWS::CloudWatch::Alarm").items():
        properties = alarm["Properties"]
        if properties["MetricName"] not in PUT_OFF:
            continue
        seen.add(properties["MetricName"])
        assert (properties["Statistic"], properties["Threshold"]) == ("Sum", 0), path
        period, needed = properties["Period"], properties["DatapointsToAlarm"]
        # The pauses begin at seconds, so the first counts are in the first periods.
        assert period * needed <= 600, path
        # So many periods always hold as many of its visits, the period that has just begun not counted.
        assert period * (properties["EvaluationPeriods"] - 1) >= needed * LONGEST_HOP, path
    assert seen == PUT_OFF


@pytest.mark.parametrize("metric", ["Parked", "SentUnclaimed"])
def test_what_has_happened_to_one_mail_is_news(made, metric):
    alarms = [a["Properties"] for a in made.all("AWS::CloudWatch::Alarm").values()]
    alarms = [alarm for alarm in alarms if alarm["MetricName"] == metric]
    assert len(alarms) == 2
    for alarm in alarms:
        assert (alarm["Statistic"], alarm["Threshold"], alarm["DatapointsToAlarm"]) == ("Sum", 0, 1)
        assert alarm["Period"] <= 300


def test_parked_mail_is_remembered_before_it_is_deleted(made):
    alarms = [a["Properties"] for a in made.nested["Parking"].all("AWS::CloudWatch::Alarm").values()]
    (alarm,) = (alarm for alarm in alarms if alarm["Namespace"] == "AWS/S3")
    # S3 publishes it once a day, as an average.
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["Statistic"]) == (86400, 1, "Average")
    assert alarm["Threshold"] == 0


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


def alarms_on(stack, metric):
    return {
        p: a["Properties"]
        for p, a in stack.all("AWS::CloudWatch::Alarm").items()
        if a["Properties"]["MetricName"] == metric
    }


@pytest.mark.parametrize(
    ("metric", "of"), [("TenantsPaused", len(PAUSING)), ("NotSwitched", len(PAUSING)), ("TenantsWarned", 1)]
)
def test_a_pause_or_a_warning_of_one_is_news_for_an_hour(made, metric, of):
    found = alarms_on(made, metric)
    assert len(found) == of
    for alarm in found.values():
        assert (alarm["Statistic"], alarm["Threshold"], alarm["DatapointsToAlarm"]) == ("Sum", 0, 1)
        assert alarm["Period"] * alarm["EvaluationPeriods"] == 3600


def test_an_event_that_is_given_up_is_one_too_many(made):
    functions = made.all("AWS::Serverless::Function")
    for path, alarm in alarms_on(made, "AsyncEventsDropped").items():
        assert (alarm["Statistic"], alarm["Threshold"], alarm["EvaluationPeriods"]) == ("Sum", 0, 1), path
    # Those with a schedule are made up for by the next minute, and the others have queues.
    for name, function in functions.items():
        sources = {event["Type"] for event in function["Properties"].get("Events", {}).values()}
        assert (name in ASYNCHRONOUS) == ("SNS" in sources), name


@pytest.mark.parametrize("metric", ["TenantsFailed", "ConcurrencyFailed"])
def test_what_a_refresh_could_not_do_fires_after_five_minutes_of_it(made, metric):
    (alarm,) = alarms_on(made, metric).values()
    assert (alarm["Statistic"], alarm["Threshold"]) == ("Minimum", 0)
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (60, 5, 5)


def test_the_oldest_parked_mail_and_the_lag_of_feedback_have_the_operators_heights():
    given = {"ParkedTooOldSeconds": "3601", "FeedbackLagTooHighSeconds": "61"}
    stack = Stack(given)
    ((path, alarm),) = alarms_on(stack, "OldestParkedSeconds").items()
    assert path.startswith("Parking/")
    assert (alarm["Threshold"], alarm["Statistic"], alarm["EvaluationPeriods"]) == ("3601", "Maximum", 1)
    lag = stack.nested["Feedback"].resources["FeedbackLagTooHighAlarm"]["Properties"]
    assert (lag["Threshold"], lag["Statistic"], lag["Period"]) == ("61", "Maximum", 60)
    # Mail waits for events so long, and then is sent again or parked.
    assert float(Stack().parameters["FeedbackLagTooHighSeconds"]) < float(Stack().parameters["ConfirmationSeconds"])
