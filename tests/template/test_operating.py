"""docs/operating.md is about this stack: its alarms, its parameters, commands that can be typed."""

import re
import shlex

import pytest
from cloudformation import ROOT, Stack, load

TEXT = (ROOT / "docs/operating.md").read_text()
TEMPLATES = ["template.yaml", *(f"infra/{p.name}" for p in sorted((ROOT / "infra").glob("*.yaml")))]
ALARMS = {
    name
    for path in TEMPLATES
    for name, resource in load(path)["Resources"].items()
    if resource["Type"] == "AWS::CloudWatch::Alarm"
}
PARAMETERS = {name for path in TEMPLATES for name in load(path)["Parameters"]}
# What else is written like the name of a parameter or an output.
OUTPUTS = {name for path in TEMPLATES for name in load(path).get("Outputs", {})}
SECTIONS = re.split(r"^## ", TEXT, flags=re.M)[1:]


def blocks(text):
    """The lines of each fenced block."""
    return [block.strip().splitlines() for block in re.findall(r"^```\n(.*?)^```$", text, re.M | re.S)]


COMMANDS = [line for block in blocks(TEXT) for line in block]


def test_every_alarm_is_explained_and_none_that_does_not_exist():
    assert set(re.findall(r"\b\w+TooHighAlarm\b", TEXT)) == ALARMS


def test_every_alarm_has_one_row_that_says_what_it_means_and_what_to_do():
    rows = [line.strip("|").split(" | ") for line in TEXT.splitlines() if line.startswith("| `") and "Alarm`" in line]
    named = []
    for row in rows:
        assert len(row) == 3, row
        assert all(len(cell.strip()) > 20 for cell in row[1:]), row
        named += re.findall(r"\w+TooHighAlarm", row[0])
    assert sorted(named) == sorted(ALARMS)


def test_every_table_of_alarms_stands_below_its_first_three_commands():
    tables = [section for section in SECTIONS if "| alarm |" in section]
    assert len(tables) >= 5
    for section in tables:
        (first, *_) = blocks(section.partition("| alarm |")[0])
        assert len(first) == 3, section[:40]


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_commands_can_be_typed(command):
    program, *words = shlex.split(command)
    assert program in ("sendslot", "aws", "make")
    assert words
    # What is to be filled in is in capitals, and never an angle or a bracket that a shell would take.
    assert not re.search(r"[<>…]|\.\.\.", command)


def test_all_fences_hold_commands_alone():
    assert TEXT.count("```") == 2 * len(blocks(TEXT))


def test_deployments_give_parameters_that_the_template_takes():
    deployments = [re.fullmatch(r'make deploy PARAMETERS="(.+)"', line) for line in COMMANDS if "make deploy" in line]
    assert len(deployments) >= 3
    for deployment in deployments:
        assert Stack(dict(one.split("=", 1) for one in deployment[1].split()))


def test_the_only_door_is_deployed_with_its_parameters():
    (command,) = (line for line in COMMANDS if "only-door.yaml" in line)
    words = shlex.split(command)
    assert words[words.index("--template-file") + 1] == "infra/only-door.yaml"
    given = dict(one.split("=", 1) for one in words[words.index("--parameter-overrides") + 1 :])
    assert given.keys() <= load("infra/only-door.yaml")["Parameters"].keys()
    filled = given | {"SendRoleArns": "arn:aws:iam::123456789012:role/send"}
    assert Stack(filled, "infra/only-door.yaml").all("AWS::IAM::ManagedPolicy")


def test_parameters_and_outputs_that_are_named_exist():
    """Words in backticks that look like one, alone or with a value."""
    words = re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)(?:=[^`]*)?`", TEXT)
    known = PARAMETERS | OUTPUTS
    # SES's own words, and metrics of ours.
    others = {"EnforcementStatus", "SendingEnabled", "GetAccount", "UnscheduledSends"}
    assert {word for word in words if word not in known} <= others | ALARMS


def test_links_lead_somewhere():
    headings = {
        re.sub(r"[^a-z0-9 -]", "", line[3:].lower()).replace(" ", "-")
        for line in TEXT.splitlines()
        if line[:3] == "## "
    }
    for anchor in re.findall(r"\]\(#([a-z0-9-]+)\)", TEXT):
        assert anchor in headings
    for path, anchor in re.findall(r"\]\((\.\./[\w./-]+)(?:#([a-z0-9-]+))?\)", TEXT):
        other = (ROOT / "docs" / path).read_text()
        found = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", other, re.M)}
        assert not anchor or anchor in found
