"""Parameters explain themselves, refuse nonsense, and are all used."""

import json
import re
import time

import parameters
import pytest
from cloudformation import ROOT, Refused, Stack, load

TEMPLATES = ["template.yaml", *(f"infra/{p.name}" for p in sorted((ROOT / "infra").glob("*.yaml")))]
README = next(ROOT / name for name in ("README.md", "docs/parameters.md") if (ROOT / name).exists())


def declared():
    return [(path, name, p) for path in TEMPLATES for name, p in load(path).get("Parameters", {}).items()]


@pytest.mark.parametrize(("path", "name", "parameter"), declared(), ids=lambda v: v if isinstance(v, str) else "")
def test_every_parameter_explains_itself_and_has_its_bounds(path, name, parameter):
    assert parameter["Description"].strip().endswith(".")
    if parameter["Type"].startswith(("AWS::", "List<AWS::")):
        return  # CloudFormation checks that it exists
    bounds = (
        "AllowedValues" in parameter
        or {
            "String": "AllowedPattern" in parameter,
            "Number": {"MinValue", "MaxValue"} <= parameter.keys(),
        }[parameter["Type"]]
    )
    assert bounds, "has no bounds"
    if "AllowedPattern" in parameter:
        assert parameter["AllowedPattern"].startswith("^")
        assert parameter["AllowedPattern"].endswith("$")
        assert parameter["ConstraintDescription"].startswith("must be")
    if path == "template.yaml":
        assert "Default" in parameter, "a first deploy should ask for nothing"
        if {"MinValue", "AllowedPattern"} & parameter.keys():
            assert parameter["ConstraintDescription"].startswith("must ")
    if parameter.get("Default") == "" and not parameter["Description"].startswith("The same "):
        assert "mpty" in parameter["Description"], "doesn't say what empty means"


@pytest.mark.parametrize("path", TEMPLATES)
def test_no_parameter_is_unused(path):
    template = load(path)
    text = str({k: v for k, v in template.items() if k not in ("Parameters", "Metadata", "Rules")})
    for name in template.get("Parameters", {}):
        assert f"'Ref': '{name}'" in text or f"${{{name}}}" in text, name


def test_nested_stacks_leave_no_parameter_to_its_default():
    for path in TEMPLATES[1:]:
        if path in ("infra/tenant.yaml", "infra/only-door.yaml"):
            continue  # they are deployed by themselves, where few of them are given
        defaults = {name for name, p in load(path).get("Parameters", {}).items() if "Default" in p}
        assert defaults <= ({"CidrBlock"} if path == "infra/network.yaml" else set()), path


def test_every_parameter_is_in_one_group():
    template = load("template.yaml")
    groups = template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(template["Parameters"])


# What the functions' settings are made of. The test `the_parser_takes_what_the_template_takes` in
# functions/shared/runtime/src/settings.rs reads the same list, so that no deploy ends in functions that don't start.
SETTINGS = json.loads((ROOT / "tests/template/values.json").read_text())


FUNCTIONS = [n for n, r in load("template.yaml")["Resources"].items() if r["Type"] == "AWS::Serverless::Function"]


def variables(function):
    """The variables that the template writes down for a function, beside those that all have."""
    return load("template.yaml")["Resources"][function]["Properties"]["Environment"]["Variables"]


def readers(variable):
    """The functions that get it."""
    return [name for name in FUNCTIONS if variable in variables(name)]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting["parameter"])
def test_settings_reach_the_functions_as_given_and_nothing_else_is_taken(setting):
    name, others = setting["parameter"], setting.get("with", {})
    for value in setting["good"]:
        stack = Stack(others | {name: value})
        assert readers(setting["variable"])
        for function in readers(setting["variable"]):
            variables = stack.resources[function]["Properties"]["Environment"]["Variables"]
            assert variables[setting["variable"]] == value
    for value in setting["bad"]:
        with pytest.raises(Refused, match=name):
            Stack(others | {name: value})


def test_no_setting_is_forgotten():
    passed = {("RedisUrl", "SENDSLOT_REDIS_URL"), ("SendMaximumConcurrency", "SENDSLOT_SEND_CONCURRENCY")}
    for function in FUNCTIONS:
        for name, value in variables(function).items():
            parameter = value.get("Ref") if isinstance(value, dict) else None
            if name.startswith("SENDSLOT_") and parameter in load("template.yaml")["Parameters"]:
                passed.add((parameter, name))
    assert {(setting["parameter"], setting["variable"]) for setting in SETTINGS} == passed


def test_many_tenants_are_checked_in_no_time():
    names = ",".join(f"{n}=x" for n in range(350))
    assert len(names) <= 2048
    began = time.monotonic()
    assert Stack({"Tenants": names})
    with pytest.raises(Refused, match="Tenants"):
        Stack({"Tenants": f"{names},349"})
    with pytest.raises(Refused, match="Tenants"):
        Stack({"Tenants": ",".join(["a" * 60] * 40)})
    weighed = ",".join(f"{n}:9" for n in range(350))
    assert Stack({"Tenants": weighed})
    with pytest.raises(Refused, match="Tenants"):
        Stack({"Tenants": f"{weighed},349=x:9"})
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("parameters", [{"Headroom": "0.95"}, {"Guard": "0.9"}, {"Headroom": "0.5", "Guard": "0.5"}])
def test_a_guard_no_higher_than_the_headroom_is_refused(parameters):
    with pytest.raises(Refused, match="Headroom must be"):
        Stack(parameters)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("RedisUrl", [""], []),
        ("CacheNodeType", ["cache.t4g.micro"], ["t4g.micro", ""]),
        ("LogRetentionDays", ["1", "30"], ["0", "2"]),
        ("LogLevel", ["DEBUG", "INFO"], ["WARN", "info"]),
        ("MaxReceiveCount", ["5", "1000"], ["4", "1001"]),
        ("ReserveMaximumConcurrency", ["2", "1000"], ["1", "1001"]),
        ("SendMaximumConcurrency", ["", "2", "9", "10", "99", "100", "999", "1000"], ["0", "1", "1001", "02", "20.5"]),
        ("Release", ["", "2026-11-30T12:00:00Z", "v1.2.3+4_a"], ["a b", "x" * 65, "1,2", "a=b"]),
        ("ThrottledTooHigh", ["0", "1000000"], ["-1", "1000001"]),
        ("UnscheduledSendsTooHigh", ["0", "4320000000"], ["-1", "4320000001"]),
        ("SendTimeoutSeconds", ["20", "60"], ["10", "900"]),
        ("FeedbackMaximumConcurrency", ["2", "1000"], ["1", "1001"]),
        ("FeedbackLagTooHighSeconds", ["60", "1209600"], ["59", "1209601"]),
        ("ParkedTooOldSeconds", ["60", "1209600"], ["59", "1209601"]),
        ("BounceRateTooHigh", ["0.001", "0.05", "1"], ["0", "5", "1.01"]),
        ("BounceRateSoonTooHigh", ["0.001", "0.025", "1"], ["0", "2.5"]),
        ("ComplaintRateTooHigh", ["0.0001", "0.001", "1"], ["0", "1.01"]),
        ("ComplaintRateSoonTooHigh", ["0.0001", "0.0005", "1"], ["0", "1.01"]),
        *(
            (name, ["true", "false"], ["", "on", "True"])
            for name in ("Streams", "Dashboard", "PauseAccount", "TenantAlarms", "Shadow")
        ),
        (
            "Producers",
            [
                "",
                "arn:aws:iam::123456789012:root",
                "arn:aws-us-gov:iam::123456789012:role/a/b.c@d/e+f=g_h-i,arn:aws:iam::123456789012:root",
            ],
            [
                "*",
                "123456789012",
                "arn:aws:iam::123456789012:role/*",
                "arn:aws:iam::123456789012:user/ann",
                "arn:aws:iam::123456789012:root, arn:aws:iam::123456789012:role/news",
                ",".join(["arn:aws:iam::123456789012:root"] * 50),
            ],
        ),
        (
            "SlotHolders",
            [
                "",
                "arn:aws:iam::123456789012:root",
                "arn:aws:iam::123456789012:role/news",
                "arn:aws-us-gov:iam::123456789012:role/a/b.c@d/e+f=g_h-i,arn:aws:iam::123456789012:root",
            ],
            [
                "*",
                "123456789012",
                "arn:aws:iam::123456789012:*",
                "arn:aws:iam::123456789012:role/*",
                "arn:aws:iam::*:root",
                "arn:aws:iam::123456789012:user/ann",
                "arn:aws:sts::123456789012:assumed-role/news/session",
                "arn:aws:iam::123456789012:role/",
                "arn:aws:iam::123456789012:root,",
                "arn:aws:iam::123456789012:root, arn:aws:iam::123456789012:role/news",
                ",".join(["arn:aws:iam::123456789012:root"] * 59),
            ],
        ),
        (
            "AlarmTopicArn",
            ["", "arn:aws:sns:eu-west-1:123456789012:t", "arn:aws-us-gov:sns:us-gov-west-1:123456789012:t"],
            ["t", "arn:aws:sqs:eu-west-1:123456789012:t"],
        ),
    ],
)
def test_parameters_take_what_makes_sense_and_nothing_else(name, good, bad):
    for value in good:
        assert Stack({name: value}).parameters[name] == value
    for value in bad:
        with pytest.raises(Refused, match=name):
            Stack({name: value})


@pytest.mark.parametrize("missing", ["SendRate", "SendMaximumConcurrency"])
def test_a_pace_without_redis_needs_to_be_said(missing):
    said = {"RedisDownPolicy": "capped", "SendRate": "14/s", "SendMaximumConcurrency": "20"}
    assert Stack(said)
    with pytest.raises(Refused, match=f"capped needs a {missing}"):
        Stack({name: value for name, value in said.items() if name != missing})


def test_the_defaults_keep_the_guard_above_the_headroom():
    defaults = Stack().parameters
    assert float(defaults["Headroom"]) <= float(defaults["Guard"]) - 0.01


def test_the_readme_has_the_parameters_of_this_template():
    text = README.read_text()
    assert parameters.written(text) == text, f"run: python tests/template/parameters.py --write {README.name}"


def test_names_are_words():
    for _, name, _ in declared():
        assert re.fullmatch(r"([A-Z][a-z]+)+", name), name
