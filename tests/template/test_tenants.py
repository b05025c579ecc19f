"""A tenant's stack: its configuration set, its settings, its alarms; by itself and nested."""

import json
import re

import pytest
from cloudformation import ROOT, Refused, Stack, load
from conftest import CHOICES, IDENTITIES, REPUTATION_TOPIC, TENANT, TENANTS, TOPIC

PATH = "infra/tenant.yaml"
STREAMS = {"TransactionalTenant": ("transactional", "priority"), "MarketingTenant": ("marketing", "bulk")}
RATES = {"BounceRate": ("0.05", "0.025"), "ComplaintRate": ("0.001", "0.0005")}


def tenant(**given):
    """A tenant's stack that is deployed by itself."""
    return Stack(TENANT | given, PATH)


def properties(stack, name):
    return stack.resources[name]["Properties"]


def settings(stack):
    """What the parameter of SSM says."""
    return json.loads(properties(stack, "Settings")["Value"])


@pytest.mark.parametrize("choice", TENANTS)
def test_every_tenants_stack_works_out(choice):
    stack = Stack(TENANTS[choice], PATH)
    assert settings(stack)["version"] == 1
    assert stack.outputs == {"ConfigurationSetName": "{ConfigurationSet}", "SettingsName": "{Settings}"}


def test_it_names_what_it_makes_after_the_stack_and_the_tenant():
    stack = tenant()
    assert properties(stack, "ConfigurationSet")["Name"] == "sendslot-acme"
    assert properties(stack, "Settings")["Name"] == "/sendslot/sendslot/tenants/acme"
    # Where quota-refresh looks, whatever the stack's name is.
    assert Stack().outputs["TenantsPath"] == "/sendslot/stack/tenants"
    assert properties(tenant(Stack="stack"), "Settings")["Name"] == "/sendslot/stack/tenants/acme"


def test_the_settings_are_null_where_nothing_is_said():
    assert settings(tenant()) == {
        "version": 1,
        "configuration_set": "{ConfigurationSet}",
        "ses_tenant": None,
        "weight": 1,
        "hourly_cap": None,
        "daily_cap": None,
        "warm_up": None,
        "lane": None,
        "uncertain": None,
        "list_unsubscribe": None,
        "thresholds": None,
    }


def test_the_settings_say_what_the_parameters_say():
    given = TENANTS["all set"]
    assert settings(Stack(given, PATH)) == {
        "version": 1,
        "configuration_set": "{ConfigurationSet}",
        "ses_tenant": "{SesTenantOfTheSet}",
        "weight": 3,
        "hourly_cap": 1000,
        "daily_cap": 20000,
        "warm_up": json.loads(given["WarmUp"]),
        "lane": "priority",
        "uncertain": "park",
        "list_unsubscribe": {"url": given["UnsubscribeUrl"], "mailto": "off@acme.example"},
        "thresholds": json.loads(given["Thresholds"]),
    }
    alone = settings(Stack(TENANTS["no address to write to"], PATH))
    assert alone["list_unsubscribe"] == {"url": "https://acme.example/u", "mailto": None}


def test_control_knows_every_setting_by_its_name():
    """So that no parameter of this template is one that control warns of."""
    form = (ROOT / "functions/control/src/tenants.rs").read_text()
    (fields,) = re.findall(r"struct Form \{(.*?)\n\}", form, re.S)
    assert settings(tenant()).keys() <= set(re.findall(r"^    (?:pub )?(\w+):", fields, re.M))


def test_ssm_takes_the_settings_for_text():
    """Two opening braces would be a reference to another parameter, which it refuses."""
    for parameters in TENANTS.values():
        assert "{{" not in properties(Stack(parameters, PATH), "Settings")["Value"].replace("{SesTenantOfTheSet}", "")


def test_the_longest_settings_fit_into_a_parameter():
    """SSM's standard tier takes 4,096 characters."""
    most = {name: p["MaxLength"] for name, p in load(PATH)["Parameters"].items() if "MaxLength" in p}
    assert most.keys() == {"WarmUp", "Thresholds", "UnsubscribeUrl", "UnsubscribeMailto"}
    assert sum(most.values()) + 600 <= 4096


def test_whoever_pauses_holds_the_switch_and_no_deployment():
    for parameters in TENANTS.values():
        assert "SendingOptions" not in properties(Stack(parameters, PATH), "ConfigurationSet")


@pytest.mark.parametrize("policy", ["OPTIONAL", "REQUIRE"])
def test_the_configuration_set_counts_suppresses_and_delivers_as_told(policy):
    made = properties(tenant(TlsPolicy=policy), "ConfigurationSet")
    assert made.keys() == {"Name", "ReputationOptions", "SuppressionOptions", "DeliveryOptions"}
    assert made["ReputationOptions"] == {"ReputationMetricsEnabled": True}
    assert made["SuppressionOptions"] == {"SuppressedReasons": ["BOUNCE", "COMPLAINT"]}
    assert made["DeliveryOptions"] == {"TlsPolicy": policy}


def test_what_changes_often_changes_no_configuration_set():
    """CloudFormation then has no reason to touch its switch."""
    quiet = {"TlsPolicy": "OPTIONAL"}
    assert properties(Stack(TENANTS["all set"] | quiet, PATH), "ConfigurationSet") == properties(
        tenant(), "ConfigurationSet"
    )


def test_its_events_are_those_that_the_rule_of_feedback_takes():
    events = properties(tenant(), "Events")
    assert events["ConfigurationSetName"] == "{ConfigurationSet}"
    to = events["EventDestination"]
    assert to["Enabled"] is True
    assert to["EventBridgeDestination"] == {"EventBusArn": "arn:aws:events:eu-west-1:123456789012:event-bus/default"}
    told = {
        "send": "Email Sent",
        "delivery": "Email Delivered",
        "bounce": "Email Bounced",
        "complaint": "Email Complaint Received",
        "reject": "Email Rejected",
        "renderingFailure": "Email Rendering Failed",
        "deliveryDelay": "Email Delivery Delayed",
    }
    rule = Stack().nested["Feedback"].resources["Rule"]["Properties"]
    assert set(to["MatchingEventTypes"]) == told.keys()
    assert sorted(rule["EventPattern"]["detail-type"]) == sorted(told.values())


@pytest.mark.parametrize("names", [["Identity"], ["Identity", "ThirdIdentity"], [*IDENTITIES]])
def test_an_ses_tenant_has_its_set_and_its_identities(names):
    stack = tenant(SesTenant="true", **{name: IDENTITIES[name] for name in names})
    made = properties(stack, "SesTenantOfTheSet")
    assert made["TenantName"] == "{ConfigurationSet}"
    own = "arn:aws:ses:eu-west-1:123456789012:configuration-set/{ConfigurationSet}"
    assert [one["ResourceArn"] for one in made["ResourceAssociations"]] == [own, *map(IDENTITIES.get, names)]


def test_there_is_no_ses_tenant_unless_asked_for():
    assert not tenant().all("AWS::SES::Tenant")


def test_there_are_no_alarms_unless_asked_for():
    assert not tenant().all("AWS::CloudWatch::Alarm")


@pytest.mark.parametrize("people", [{}, TOPIC])
def test_two_alarms_pause_and_two_warn(people):
    stack = tenant(ReputationAlarms="true", **REPUTATION_TOPIC, **people)
    alarms = {name: alarm["Properties"] for name, alarm in stack.all("AWS::CloudWatch::Alarm").items()}
    assert alarms.keys() == {f"{rate}{mark}TooHighAlarm" for rate in RATES for mark in ("", "Soon")}
    told = list(people.values())
    for rate, heights in RATES.items():
        pausing, warning = (alarms[f"{rate}{mark}TooHighAlarm"] for mark in ("", "Soon"))
        assert (str(pausing["Threshold"]), str(warning["Threshold"])) == heights
        assert pausing["AlarmActions"] == [*REPUTATION_TOPIC.values(), *told]
        assert warning["AlarmActions"] == told
        for alarm in (pausing, warning):
            assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/SES", f"Reputation.{rate}")
            assert alarm["Dimensions"] == [{"Name": "ses:configuration-set", "Value": "{ConfigurationSet}"}]
            assert alarm["TreatMissingData"] == "notBreaching"
            # An alarm that ends resumes nobody.
            assert alarm["OKActions"] == told
            assert (alarm["Statistic"], alarm["Period"], alarm["EvaluationPeriods"]) == ("Maximum", 3600, 1)


def test_a_tenants_heights_reach_its_alarms():
    given = {"BounceRateTooHigh": "0.1", "BounceRateSoonTooHigh": "0.04", "ComplaintRateTooHigh": "0.005"}
    stack = tenant(ReputationAlarms="true", ComplaintRateSoonTooHigh="0.002", **given, **REPUTATION_TOPIC)
    heights = {n: a["Properties"]["Threshold"] for n, a in stack.all("AWS::CloudWatch::Alarm").items()}
    assert heights == {f"{name}Alarm": value for name, value in given.items()} | {
        "ComplaintRateSoonTooHighAlarm": "0.002"
    }


def test_what_its_alarms_cost_is_said():
    said = load(PATH)["Parameters"]["ReputationAlarms"]["Description"]
    alarms = len(tenant(ReputationAlarms="true", **REPUTATION_TOPIC).all("AWS::CloudWatch::Alarm"))
    cents = 10 * alarms
    assert f"$0.{cents} a month" in said
    assert f"${cents * 1000 // 100} a month at 1,000 tenants" in said


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"SesTenant": "true"}, "SesTenant needs an Identity"),
        *(({name: arn}, "An Identity needs SesTenant") for name, arn in IDENTITIES.items()),
        ({"UnsubscribeMailto": "off@acme.example"}, "needs an UnsubscribeUrl"),
        ({"ReputationAlarms": "true"}, "need the ReputationTopicArn"),
    ],
)
def test_half_a_setting_is_refused(given, why):
    with pytest.raises(Refused, match=why):
        tenant(**given)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("Tenant", ["a", "A_b-9", "a" * 64], ["", "a b", "a/b", "a" * 65, "*", "ä"]),
        ("Stack", ["sendslot", "a", "a-1", "a" * 62], ["", "1a", "a_b", "a" * 63, "a/b"]),
        ("Lane", ["", "priority", "bulk"], ["Bulk", "both"]),
        ("Weight", ["1", "9", "99", "999", "1000"], ["0", "01", "1001", "-1", "1.5", ""]),
        ("HourlyCap", ["", "1", "4320000000"], ["0", "01", "1.5", "4320000001", "null"]),
        ("DailyCap", ["", "1", "4320000000"], ["0", "01", "1.5", "4320000001", "null"]),
        ("WarmUp", ["", "{}", '{"a": [{}]}'], ["[]", "null", "{", '{"a":\n1}', "{" + "a" * 2047 + "}"]),
        ("Thresholds", ["", "{}"], ["[]", "null", "{", "{" + "a" * 511 + "}"]),
        ("UncertainPolicy", ["", "park", "resend"], ["drop"]),
        (
            "UnsubscribeUrl",
            ["", "https://a.example", "https://a.example/{send_id}/x?y={send_id}&z=1"],
            [
                "http://a.example",
                "https://",
                "https://a b",
                'https://a"',
                "https://a/{tenant}",
                "https://a\\",
                "mailto:a@b",
            ],
        ),
        ("TlsPolicy", ["REQUIRE", "OPTIONAL"], ["", "require", "Required"]),
        ("SesTenant", ["false"], ["", "yes"]),
        ("ReputationAlarms", ["false"], ["", "on"]),
    ],
)
def test_parameters_take_what_makes_sense_and_nothing_else(name, good, bad):
    for value in good:
        assert json.loads(properties(tenant(**{name: value}), "Settings")["Value"])
    for value in bad:
        with pytest.raises(Refused, match=name):
            tenant(**{name: value})


@pytest.mark.parametrize(
    ("mailto", "taken"),
    [("off@acme.example", True), ("a@b@c", False), ("a", False), ('"a"@b', False), ("a@b?subject=x", False)],
)
def test_one_address_is_taken(mailto, taken):
    given = {"UnsubscribeUrl": "https://a.example", "UnsubscribeMailto": mailto}
    if taken:
        assert settings(tenant(**given))["list_unsubscribe"]["mailto"] == mailto
    else:
        with pytest.raises(Refused, match="UnsubscribeMailto"):
            tenant(**given)


@pytest.mark.parametrize("name", IDENTITIES)
@pytest.mark.parametrize(
    "bad", ["acme.example", f"{IDENTITIES['Identity']},", "*", "arn:aws:ses:*:123456789012:identity/a"]
)
def test_an_identity_is_one_arn(name, bad):
    with pytest.raises(Refused, match=name):
        tenant(SesTenant="true", **(IDENTITIES | {name: bad}))


@pytest.mark.parametrize("choice", CHOICES)
def test_every_stack_has_its_two_streams_unless_told_otherwise(choice):
    stack = Stack(CHOICES[choice])
    made = {name for name in STREAMS if name in stack.resources}
    assert made == (set() if choice == "no streams" else STREAMS.keys())
    for stream in made:
        name, lane = STREAMS[stream]
        nested = stack.nested[stream]
        assert nested.resources["ConfigurationSet"]["Properties"]["Name"] == f"stack-{name}"
        assert nested.resources["Settings"]["Properties"]["Name"] == f"/sendslot/stack/tenants/{name}"
        assert settings(nested)["lane"] == lane
        watched = bool(nested.all("AWS::CloudWatch::Alarm"))
        assert watched == ("with alarms" in choice)


def test_a_streams_alarms_reach_this_stacks_auto_pause_at_this_stacks_heights():
    heights = {"BounceRateTooHigh": "0.06", "ComplaintRateTooHigh": "0.002"}
    early = {"BounceRateSoonTooHigh": "0.03", "ComplaintRateSoonTooHigh": "0.0009"}
    stack = Stack({"TenantAlarms": "true"} | heights | early)
    for name in ("Reputation", *STREAMS):
        alarms = stack.nested[name].all("AWS::CloudWatch::Alarm")
        found = {path.partition("/")[2].removesuffix("Alarm"): a["Properties"] for path, a in alarms.items()}
        assert {rate: alarm["Threshold"] for rate, alarm in found.items()} == heights | early
        for rate, alarm in found.items():
            assert ("{Reputation/Topic}" in alarm["AlarmActions"]) == (rate in heights)


def test_no_stream_has_a_setting_of_the_other():
    """All but name and lane are the same, and as the template of tenants has it."""
    given = [load("template.yaml")["Resources"][name]["Properties"]["Parameters"] for name in STREAMS]
    one, other = ({k: v for k, v in parameters.items() if k not in ("Tenant", "Lane")} for parameters in given)
    assert one == other
