"""The dashboard shows what is published, and its queries ask for what is logged."""

import json
import re

import pytest
from cloudformation import ROOT, Stack
from conftest import CHOICES
from test_alarms import LANES, PUBLISHED, REPUTATION, code

CACHE = PUBLISHED["AWS/ElastiCache", "Evictions"]
# What AWS publishes beside what alarms watch.
FURTHER = {
    ("AWS/Lambda", "Duration"): PUBLISHED["AWS/Lambda", "Errors"],
    ("AWS/ElastiCache", "EngineCPUUtilization"): CACHE,
    ("AWS/ElastiCache", "CurrConnections"): CACHE,
}
# The services whose metrics are by lane.
OF_LANES = {"reserve", "send"}


def body(stack):
    """The dashboard, as CloudWatch gets it."""
    return json.loads(stack.nested["Overview"].resources["Dashboard"]["Properties"]["DashboardBody"])


def lines(stack):
    """(namespace, metric, dimensions) of every line of every graph, and every expression."""
    metrics, expressions = [], []
    for widget in body(stack)["widgets"]:
        for line in widget["properties"]["metrics"]:
            texts = [part for part in line if isinstance(part, str)]
            if not texts:
                expressions.append(line[0]["expression"])
                continue
            namespace, metric, *pairs = texts
            metrics.append((namespace, metric, dict(zip(pairs[::2], pairs[1::2], strict=True))))
    return metrics, expressions


@pytest.mark.parametrize("choice", CHOICES)
def test_it_is_there_unless_told_otherwise(choice):
    stack = Stack(CHOICES[choice])
    assert ("Overview" in stack.resources) == (choice != "no dashboard")
    if choice != "no dashboard":
        assert stack.nested["Overview"].resources["Dashboard"]["Properties"]["DashboardName"] == "stack"


@pytest.mark.parametrize("choice", [choice for choice in CHOICES if choice != "no dashboard"])
def test_every_line_is_of_something_that_is_made(choice):
    stack = Stack(CHOICES[choice])
    for namespace, metric, dimensions in lines(stack)[0]:
        if namespace == "Sendslot":
            continue
        name, kind, forms = (PUBLISHED | FURTHER)[namespace, metric]
        named = [form % path for form in forms for path in stack.all(kind)]
        assert dimensions.keys() == {name}
        assert dimensions[name] in named, metric
    namespaces = {namespace for namespace, *_ in lines(stack)[0]}
    assert ("AWS/ElastiCache" in namespaces) == ("Cache" in stack.resources)


def emitted():
    """(service, metric) of every line of our own."""
    return sorted({(d["service"], metric) for namespace, metric, d in lines(Stack())[0] if namespace == "Sendslot"})


@pytest.mark.parametrize(("service", "metric"), emitted())
def test_the_functions_emit_what_is_shown(service, metric):
    """As it is metered, or listed as what is; not as a word of a log line."""
    text = code(service)
    metered = set(re.findall(r'metrics\s*\.(?:count|gauge|longest)\(\s*"(\w+)"', text))
    for listed in re.findall(r"const COUNTS: \[&str; \d+\] = \[(.*?)\];", text, re.S):
        metered |= set(re.findall(r'"(\w+)"', listed))
    assert metric in metered


def test_metrics_are_shown_with_the_dimensions_they_have(made):
    shown = {}
    for namespace, metric, dimensions in lines(made)[0]:
        if namespace == "Sendslot":
            assert dimensions.keys() == ({"service", "lane"} if dimensions["service"] in OF_LANES else {"service"})
            shown.setdefault((dimensions["service"], metric), []).append(dimensions.get("lane"))
    for (service, metric), lanes in shown.items():
        if service in OF_LANES:
            # Sent once more, for the rate.
            assert set(lanes) == set(LANES), metric
    for service in {service for service, _ in shown}:
        found = set(re.findall(r"Metrics::new\([^;]*?(Some\(lane\)|None)\)", code(service)))
        assert found == {"Some(lane)" if service in OF_LANES else "None"}, service


def test_reputation_is_searched_for_by_configuration_set(made):
    searches = [text for text in lines(made)[1] if text.startswith("SEARCH")]
    found = set()
    for text in searches:
        match = re.fullmatch(
            r"SEARCH\('\{AWS/SES,\"ses:configuration-set\"\} MetricName=\"([\w.]+)\"', 'Maximum', 300\)", text
        )
        found.add(match[1])
    assert found == REPUTATION


def test_all_queues_and_functions_are_shown(made):
    shown = {value for namespace, _, d in lines(made)[0] if namespace.startswith("AWS/") for value in d.values()}
    assert {f"{{{queue}.QueueName}}" for queue in made.all("AWS::SQS::Queue")} <= shown
    assert {f"{{{function}}}" for function in made.all("AWS::Serverless::Function")} <= shown


@pytest.mark.parametrize("choice", ["all made", "own Redis"])
def test_graphs_lie_side_by_side(choice):
    places = set()
    for widget in body(Stack(CHOICES[choice]))["widgets"]:
        assert (widget["width"], widget["height"]) == (12, 6)
        assert widget["x"] in (0, 12)
        assert widget["y"] % 6 == 0
        places.add((widget["x"], widget["y"]))
        properties = widget["properties"]
        assert properties["region"] == "eu-west-1"
        assert properties["title"]
    assert len(places) == len(body(Stack(CHOICES[choice]))["widgets"])


def queries(stack):
    found = stack.nested["Overview"].all("AWS::Logs::QueryDefinition")
    return {path.partition("/")[2]: one["Properties"] for path, one in found.items()}


def test_queries_read_the_logs_of_this_stack(made):
    groups = {group["Properties"]["LogGroupName"] for group in made.all("AWS::Logs::LogGroup").values()}
    assert queries(made).keys() == {"WayOfOneMail", "BouncesOfATenant", "PausesAndResumes"}
    for name, query in queries(made).items():
        assert set(query["LogGroupNames"]) <= groups, name
        assert query["Name"].startswith("stack/"), name
    way = {name.rpartition("-")[2] for name in queries(made)["WayOfOneMail"]["LogGroupNames"]}
    assert way == {"reserve", "send", "control", "feedback"}


def logged(query):
    """The code whose logs a query reads, and the fields it names."""
    services = [name.removeprefix("/aws/lambda/stack-") for name in query["LogGroupNames"]]
    words = re.sub(r'"[^"]*"', "", query["QueryString"])
    fields = set(re.findall(r"(?<![@\w])[a-z_]+\b(?!\()", words))
    syntax = {
        "fields",
        "filter",
        "sort",
        "asc",
        "desc",
        "limit",
        "stats",
        "by",
        "as",
        "and",
        "in",
        "told",
        "last",
        "message",
    }
    return "\n".join(code(service) for service in services), fields - syntax


@pytest.mark.parametrize("name", ["WayOfOneMail", "BouncesOfATenant", "PausesAndResumes"])
def test_queries_ask_for_fields_that_are_logged(made, name):
    text, fields = logged(queries(made)[name])
    events = "\n".join(re.findall(r"(?:info|warn|error)!\((.*?)\);", text, re.S))
    assert fields
    for field in fields:
        assert re.search(rf"\b{field}\b", events), field


def test_pauses_and_resumes_are_logged_in_the_words_that_are_asked_for(made):
    query = queries(made)["PausesAndResumes"]
    text, _ = logged(query)
    for word in re.findall(r'"([^"]+)"', query["QueryString"]):
        assert f'"{word}"' in text, word


def test_bounces_are_logged_in_the_words_that_are_asked_for(made):
    query = queries(made)["BouncesOfATenant"]
    text, _ = logged(query)
    for word in set(re.findall(r'"(\w+)"', query["QueryString"])) - {"acme"}:
        assert f'"{word}"' in text, word


def test_fields_lie_where_the_queries_look():
    """At the top of a line, and not below a word of their own."""
    assert ".flatten_event(true)" in (ROOT / "functions/shared/runtime/src/logs.rs").read_text()
