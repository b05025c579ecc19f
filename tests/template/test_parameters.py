"""Parameters explain themselves, refuse nonsense, and are all used."""

import re

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
        if parameter["Default"] == "":
            assert "mpty" in parameter["Description"], "doesn't say what empty means"


@pytest.mark.parametrize("path", TEMPLATES)
def test_no_parameter_is_unused(path):
    template = load(path)
    text = str({k: v for k, v in template.items() if k not in ("Parameters", "Metadata", "Rules")})
    for name in template.get("Parameters", {}):
        assert f"'Ref': '{name}'" in text or f"${{{name}}}" in text, name


def test_nested_stacks_leave_no_parameter_to_its_default():
    for path in TEMPLATES[1:]:
        defaults = {name for name, p in load(path).get("Parameters", {}).items() if "Default" in p}
        assert defaults <= ({"CidrBlock"} if path == "infra/network.yaml" else set()), path


def test_every_parameter_is_in_one_group():
    template = load("template.yaml")
    groups = template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert sorted(name for group in groups for name in group["Parameters"]) == sorted(template["Parameters"])


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        (
            "SendRate",
            ["14/s", "0.8/s", "11.2", "20/h", "5000000/d", "30/min"],
            ["", "fast", "1/w", ".5", "1.", "-1", "1e3", "0", "0.0/s", "14 /s"],
        ),
        ("PriorityReserve", ["0/s", "2/s", "0.5"], ["", "2/fortnight"]),
        ("Headroom", ["0.01", "0.90", "1"], ["0", "1.01", "-1"]),
        ("Guard", ["0.78", "1"], ["0", "2"]),
        ("Burst", ["", "1", "2.5"], ["-1", "many", "0"]),
        ("HorizonSeconds", ["1", "900"], ["0", "901"]),
        ("MaxMessageAgeSeconds", ["60", "1209600"], ["59", "1209601"]),
        (
            "Tenants",
            ["default", "acme=acme-set,beta", "a" * 64],
            ["", "a b", "a,", "a=", "a" * 65, "{x}", ",".join(["a" * 60] * 40)],
        ),
        ("Budget", ["ses"], ["", "{ses}"]),
        ("RedisUrl", ["", "redis://h:6379", "rediss://:p@h"], ["h:6379", "http://h", "redis://"]),
        ("CacheNodeType", ["cache.t4g.micro"], ["t4g.micro", ""]),
        ("LogRetentionDays", ["1", "30"], ["0", "2"]),
        ("LogLevel", ["DEBUG", "INFO"], ["WARN", "info"]),
        ("MaxReceiveCount", ["5", "1000"], ["4", "1001"]),
        ("ReserveMaximumConcurrency", ["2", "1000"], ["1", "1001"]),
        ("SendMaximumConcurrency", ["2", "1000"], ["1", "1001"]),
        ("SendTimeoutSeconds", ["20", "60"], ["10", "900"]),
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


def test_the_defaults_keep_the_guard_above_the_headroom():
    defaults = Stack().parameters
    assert float(defaults["Headroom"]) <= float(defaults["Guard"]) - 0.01


def test_the_readme_has_the_parameters_of_this_template():
    text = README.read_text()
    assert parameters.written(text) == text, f"run: python tests/template/parameters.py --write {README.name}"


def test_names_are_words():
    for _, name, _ in declared():
        assert re.fullmatch(r"([A-Z][a-z]+)+", name), name
