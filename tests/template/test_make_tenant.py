"""`make tenant` refuses what can't be deployed, and hands on the rest as sam reads it."""

import importlib.util
import os
import re
import subprocess
import sys

import pytest
from cloudformation import ROOT, Stack, load

PATH = ROOT / "infra/tenant.py"
SPEC = importlib.util.spec_from_file_location("tenant", PATH)
tenant = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tenant)

TOPIC = "arn:aws:sns:eu-west-1:123456789012:reputation"
ALARMS = "arn:aws:sns:eu-west-1:123456789012:alarms"


def described(topic=TOPIC, alarms=ALARMS):
    """A Sendslot stack, as CloudFormation describes it."""
    outputs = [{"OutputKey": "ReputationTopicArn", "OutputValue": topic}] if topic else []
    parameters = [{"ParameterKey": "AlarmTopicArn", "ParameterValue": alarms}]
    return {"StackName": "sendslot", "Outputs": outputs, "Parameters": parameters}


@pytest.mark.parametrize("name", ["acme", "ACME-9", "7", "a" * 55])
def test_a_name_is_taken_that_a_stack_can_have(name):
    tenant.check("sendslot", name)
    stack = f"sendslot-tenant-{name}"
    assert re.fullmatch("[A-Za-z][A-Za-z0-9-]{0,127}", stack)
    assert len(Stack({"Tenant": name, "Stack": "sendslot"}, "infra/tenant.yaml").parameters["Tenant"]) <= 64


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "Give its name"),
        ("a b", "letters, digits and hyphens alone"),
        ("a_b", "letters, digits and hyphens alone"),
        ("a/b", "letters, digits and hyphens alone"),
        ("a\n", "letters, digits and hyphens alone"),
        ("$(id)", "letters, digits and hyphens alone"),
        ("a" * 56, "more than the 64 characters"),
    ],
)
def test_another_name_is_refused(name, why):
    with pytest.raises(tenant.TenantError, match=why):
        tenant.check("sendslot", name)


def test_the_stack_says_where_alarms_go():
    expected = {"Tenant": "acme", "Stack": "sendslot", "ReputationTopicArn": TOPIC, "AlarmTopicArn": ALARMS}
    assert tenant.told(described(), "acme") == expected
    assert tenant.told(described(alarms=""), "acme") == expected | {"AlarmTopicArn": ""}
    # What it asks for is there.
    assert "ReputationTopicArn" in Stack().outputs
    assert "AlarmTopicArn" in load("template.yaml")["Parameters"]
    assert expected.keys() <= load("infra/tenant.yaml")["Parameters"].keys()


def test_a_stack_that_is_none_of_ours_is_refused():
    with pytest.raises(tenant.TenantError, match="is no Sendslot stack"):
        tenant.told(described(topic=""), "acme")


def test_parameters_may_hold_json_with_spaces():
    ramp = '{"start": "2026-12-01", "schedule": [{"day": 1, "cap": 20, "per": "hour"}]}'
    text = f' Weight=3  WarmUp={ramp} HourlyCap="" UnsubscribeUrl=https://a.example/{{send_id}}?a=1&b=2'
    assert tenant.given(text) == {
        "Weight": "3",
        "WarmUp": ramp,
        "HourlyCap": "",
        "UnsubscribeUrl": "https://a.example/{send_id}?a=1&b=2",
    }
    assert tenant.given("") == tenant.given("  ") == {}


@pytest.mark.parametrize("text", ["Weight", "weight 3", "Weight3=1", "=1"])
def test_what_is_no_parameter_is_refused(text):
    with pytest.raises(tenant.TenantError, match=r"give Name=value"):
        tenant.given(text)


@pytest.mark.parametrize("name", ["Tenant", "Stack"])
def test_what_make_says_isnt_said_again(name):
    with pytest.raises(tenant.TenantError, match="told by NAME and STACK"):
        tenant.given(f"{name}=x")


def test_sam_is_told_in_quotes():
    parameters = {"Tenant": "acme", "Stack": "sendslot", "WarmUp": '{"a\\b": 1}', "HourlyCap": ""}
    command = tenant.command("sam", parameters)
    assert command[:2] == ["sam", "deploy"]
    assert command[command.index("--template-file") + 1] == str(ROOT / "infra/tenant.yaml")
    assert command[command.index("--stack-name") + 1] == "sendslot-tenant-acme"
    assert command[command.index("--parameter-overrides") + 1 :] == [
        'Tenant="acme"',
        'Stack="sendslot"',
        'WarmUp="{\\"a\\\\b\\": 1}"',
        'HourlyCap=""',
    ]


def test_the_command_says_what_is_wrong_and_fails():
    env = os.environ | {"STACK": "sendslot", "NAME": "a_b", "PARAMETERS": ""}
    run = subprocess.run([sys.executable, PATH, "sam"], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("error: NAME=a_b: ")
    assert "Traceback" not in run.stderr


def test_make_runs_it_with_what_it_was_given():
    makefile = (ROOT / "Makefile").read_text()
    for name in ("NAME", "STACK", "PARAMETERS"):
        assert re.search(rf"^tenant: export {name} := ", makefile, re.M), name
    assert "\t@$(STACK_PYTHON) infra/tenant.py $(SAM)\n" in makefile
