"""The budget follows the account: each minute, at each deployment, and somebody hears of it when it doesn't."""

import json
import re

import pytest
from cloudformation import ROOT, STACK_UUID, Stack, load
from conftest import CHOICES, FIXED, TOPIC
from test_times import seconds

TEMPLATE = load("template.yaml")
# What of control's settings is no part of the budget, or not to be shown in a custom resource's event.
NOT_OF_THE_BUDGET = {"LogLevel", "MaxMessageAgeSeconds", "RedisSecretArn", "RedisUrl"}
# What Lambda itself does in a function's name, from outside its network.
POLLED = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
SERVICES = {
    "elasticache": "Redis",
    "s3": "S3",
    "sqs": "SQS",
    "ses": "SES",
    "ssm": "SSM",
    "lambda": "Lambda",
    "cloudwatch": "CloudWatch",
    "sns": "SNS",
}


def properties(stack, name):
    return stack.resources[name]["Properties"]


def parameters_in(node):
    """The parameters that something is made of, those of conditions included."""
    text = json.dumps(node)
    for name in set(re.findall(r'{"Fn::If": \["(\w+)"', text)):
        text += json.dumps(TEMPLATE["Conditions"][name])
    named = re.findall(r'{"Ref": "(\w+)"}', text) + re.findall(r"\${(\w+)}", text)
    return set(named) & TEMPLATE["Parameters"].keys()


@pytest.mark.parametrize("name", ["QuotaRefreshFunction", "AutoPauseFunction"])
def test_who_asks_aws_alone_is_never_in_a_vpc_and_never_told_of_redis(stack, name):
    outside = properties(stack, name)
    assert "VpcConfig" not in outside
    assert not [name for name in outside["Environment"]["Variables"] if "REDIS" in name]
    assert "redis" not in json.dumps(outside["Environment"]).lower()


@pytest.mark.parametrize("choice", CHOICES)
def test_control_and_feedback_are_where_reserve_and_send_are(choice):
    stack = Stack(CHOICES[choice])
    for name in ("ControlFunction", "FeedbackFunction"):
        assert properties(stack, name).get("VpcConfig") == properties(stack, "SendFunction").get("VpcConfig")


def test_quota_refresh_is_told_whom_to_ask(made):
    variables = properties(made, "QuotaRefreshFunction")["Environment"]["Variables"]
    assert variables["SENDSLOT_CONTROL_FUNCTION"] == "{ControlFunction}"
    assert variables["SENDSLOT_SEND_FUNCTION"] == "{SendFunction}"
    assert variables["SENDSLOT_TENANTS_PATH"] == "/sendslot/stack/tenants" == made.outputs["TenantsPath"]


def test_the_functions_of_a_refresh_are_told_texts_alone():
    """They run while the stack is deployed, when nobody could mend a number that an emulator hands on as one."""
    for choice in CHOICES.values():
        for name in ("ControlFunction", "QuotaRefreshFunction", "FeedbackFunction", "AutoPauseFunction"):
            for value in properties(Stack(choice), name)["Environment"]["Variables"].values():
                assert isinstance(value, str)


def test_quota_refresh_outlives_control_and_has_time_for_all_of_a_refresh(made):
    refresh = properties(made, "QuotaRefreshFunction")["Timeout"]
    waits = seconds("CONTROL", "quota-refresh")
    # What control answers quickly, and ends by itself if it can't.
    assert seconds("SHORT", "control") < waits
    # Asking the account, control twice, a switch in between, and answering CloudFormation.
    parts = seconds("ACCOUNT", "quota-refresh") + 2 * waits + seconds("CALL", "quota-refresh")
    assert parts + seconds("RESPONDING", "quota-refresh") <= refresh


def test_it_runs_each_minute_on_the_minute(made):
    schedule = properties(made, "QuotaRefreshSchedule")
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert "State" not in schedule
    target = schedule["Target"]
    assert target["Arn"] == "{QuotaRefreshFunction.Arn}"
    assert target["RoleArn"] == "{QuotaRefreshScheduleRole.Arn}"
    assert json.loads(target["Input"]) == {"trigger": "schedule"}
    assert json.loads((ROOT / "events/quota-refresh/schedule.json").read_text()) == json.loads(target["Input"])
    # The next one makes up for it, and is due within a minute.
    assert target["RetryPolicy"]["MaximumEventAgeInSeconds"] == 60
    assert target["RetryPolicy"]["MaximumRetryAttempts"] <= 2


def test_a_replay_runs_each_minute_and_ends_before_the_next(made):
    schedule = properties(made, "ReplaySchedule")
    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert "State" not in schedule
    target = schedule["Target"]
    assert target["Arn"] == "{ControlFunction.Arn}"
    assert target["RoleArn"] == "{ReplayScheduleRole.Arn}"
    assert json.loads(target["Input"]) == {"action": "replay", "caller": "schedule"}
    assert json.loads((ROOT / "events/control/replay.json").read_text()) == json.loads(target["Input"])
    # One that is late would run beside the next.
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
    timeout = properties(made, "ControlFunction")["Timeout"]
    assert seconds("LONGEST", "control") + seconds("CLOSING", "control") < timeout <= 60


@pytest.mark.parametrize(("schedule", "said"), [("QuotaRefresh", "quota-refresh"), ("Replay", "replay")])
def test_a_schedules_name_is_this_stacks_alone_and_short_enough(made, schedule, said):
    name = properties(made, f"{schedule}Schedule")["Name"]
    assert name == f"{said}-{STACK_UUID}"
    assert re.fullmatch("[0-9A-Za-z_.-]{1,64}", name)


@pytest.mark.parametrize(
    ("schedule", "function"), [("QuotaRefresh", "QuotaRefreshFunction"), ("Replay", "ControlFunction")]
)
def test_a_schedule_may_run_its_function_and_nothing_else(made, schedule, function):
    role = properties(made, f"{schedule}ScheduleRole")
    assert role.keys() == {"AssumeRolePolicyDocument", "Policies"}
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"]["StringEquals"] == {
        "aws:SourceAccount": "123456789012",
        "aws:SourceArn": "arn:aws:scheduler:eu-west-1:123456789012:schedule-group/default",
    }
    assert "GroupName" not in properties(made, f"{schedule}Schedule")
    (policy,) = role["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "lambda:InvokeFunction")
    assert statement["Resource"] == f"{{{function}.Arn}}"


def test_a_deployment_waits_for_a_refresh_and_not_for_long(made):
    refresh = properties(made, "Refresh")
    assert refresh["ServiceToken"] == "{QuotaRefreshFunction.Arn}"
    timeout = properties(made, "QuotaRefreshFunction")["Timeout"]
    assert timeout < refresh["ServiceTimeout"] <= 120
    # A request of CloudFormation is given up by Lambda no earlier than by CloudFormation.
    again = properties(made, "QuotaRefreshFunction")["EventInvokeConfig"]
    assert again["MaximumEventAgeInSeconds"] >= refresh["ServiceTimeout"]
    assert again["MaximumRetryAttempts"] >= 1


def test_a_deployment_refreshes_after_all_that_a_refresh_needs(made):
    """A mapping that an update has changed has the template's concurrency again: the refresh must come after."""
    after = made.resources["Refresh"]["DependsOn"]
    assert all(made._made(name) for name in after)
    sources = properties(made, "SendFunction")["Events"]
    assert {f"SendFunction{event}" for event in sources} < set(after)
    assert {"ControlFunction", "PriorityLane", "BulkLane"} < set(after)
    # Whatever the choice: with a fixed concurrency no setting refers to the mappings.
    assert Stack(FIXED).resources["Refresh"]["DependsOn"] == after


def test_a_change_of_anything_that_makes_the_budget_or_the_mappings_refreshes():
    given = TEMPLATE["Resources"]["Refresh"]["Properties"]
    named = {name for name in given if name not in ("ServiceToken", "ServiceTimeout", "Streams")}
    assert all(given[name] == {"Ref": name} for name in named)
    budget = parameters_in(TEMPLATE["Resources"]["ControlFunction"]["Properties"]["Environment"])
    assert {"SendRate", "DailyQuota", "Headroom", "Tenants"} < budget
    refresh = parameters_in(TEMPLATE["Resources"]["QuotaRefreshFunction"]["Properties"]["Environment"])
    mappings = parameters_in(TEMPLATE["Resources"]["SendFunction"]["Properties"]["Events"])
    assert "SendMaximumConcurrency" in mappings
    assert named == (budget | refresh | mappings | {"Release"}) - NOT_OF_THE_BUDGET


@pytest.mark.parametrize("streams", ["true", "false"])
def test_the_first_refresh_sees_the_streams_if_there_are_any(streams):
    """By what it is told of them, it comes after them."""
    stack = Stack({"Streams": streams})
    names = [name for name in properties(stack, "Refresh")["Streams"].split(",") if name]
    assert names == (["{TransactionalTenant/Settings}", "{MarketingTenant/Settings}"] if streams == "true" else [])
    assert [f"{{{path}}}" for path in stack.all("AWS::SSM::Parameter")] == names


def test_no_secret_is_in_the_event_of_a_deployment():
    for name in TEMPLATE["Resources"]["Refresh"]["Properties"]:
        assert not TEMPLATE["Parameters"].get(name, {}).get("NoEcho"), name


def test_each_deployment_by_make_is_another_release():
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^RELEASE [?:]?= .*date -u", makefile, re.M)
    (recipe,) = re.findall(r"^deploy:.*\n((?:\t.*\n)+)", makefile, re.M)
    (line,) = (line for line in recipe.splitlines() if "deploy" in line)
    assert "--parameter-overrides 'Release=$(RELEASE)'" in line


def test_the_alarm_on_silence_is_made_after_the_first_refresh(made):
    assert set(made.resources["BudgetAlarms"]["DependsOn"]) == {"Refresh", "QuotaRefreshSchedule"}


@pytest.mark.parametrize("alarm", ["RefreshFailed", "BudgetKept"])
def test_five_minutes_without_a_refresh_that_counts_fire(made, alarm):
    found = made.nested["BudgetAlarms"].resources[f"{alarm}TooHighAlarm"]["Properties"]
    assert (found["Period"], found["EvaluationPeriods"], found["DatapointsToAlarm"]) == (60, 5, 5)
    # One refresh of a minute that got through is enough.
    assert (found["Statistic"], found["Threshold"]) == ("Minimum", 0)


def test_what_one_refresh_finds_fires_at_once_and_what_is_said_once_stays_for_an_hour(made):
    alarms = made.nested["BudgetAlarms"].resources
    for name in ("UnscheduledSends", "TenantsInvalid", "QuotaUsed", "QuotaNearlyUsed"):
        found = alarms[f"{name}TooHighAlarm"]["Properties"]
        assert (found["Period"], found["EvaluationPeriods"], found["Statistic"]) == (60, 1, "Maximum"), name
    once = alarms["RedisGenerationChangedTooHighAlarm"]["Properties"]
    assert (once["Statistic"], once["Threshold"], once["DatapointsToAlarm"]) == ("Sum", 0, 1)
    assert once["Period"] * once["EvaluationPeriods"] == 3600


def test_the_operators_thresholds_reach_their_alarms():
    alarms = Stack({"ThrottledTooHigh": "3", "UnscheduledSendsTooHigh": "7"}).all("AWS::CloudWatch::Alarm")
    heights = {path: alarm["Properties"]["Threshold"] for path, alarm in alarms.items()}
    assert heights["PriorityLane/ThrottledTooHighAlarm"] == heights["BulkLane/ThrottledTooHighAlarm"] == "3"
    assert heights["BudgetAlarms/UnscheduledSendsTooHighAlarm"] == "7"
    throttled = alarms["BulkLane/ThrottledTooHighAlarm"]["Properties"]
    assert (throttled["Period"], throttled["Statistic"]) == (60, "Sum")


def test_the_architecture_says_who_is_where_and_calls_what():
    """The table, against the roles and networks of the stack with everything made."""
    made = Stack(TOPIC)
    text = (ROOT / "ARCHITECTURE.md").read_text()
    _, _, section = text.partition("## Who reaches what\n")
    rows = re.findall(r"^\| `([a-z-]+)` \| (\w+) \| ([^|]+) \|", section.partition("\n## ")[0], re.M)
    expected = {}
    for logical, function in made.all("AWS::Serverless::Function").items():
        role = properties(made, f"{logical.removesuffix('Function')}Role")
        statements = [s for policy in role["Policies"] for s in policy["PolicyDocument"]["Statement"]]
        actions = [a for s in statements for a in (s["Action"] if isinstance(s["Action"], list) else [s["Action"]])]
        called = {SERVICES[a.partition(":")[0]] for a in actions if not a.startswith("logs:") and a not in POLLED}
        name = function["Properties"]["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
        expected[name] = ("inside" if "VpcConfig" in function["Properties"] else "outside", called)
    assert {name: (where, set(calls.strip().split(", "))) for name, where, calls in rows} == expected


def test_who_is_inside_finds_an_endpoint_for_each_service_it_calls(made):
    endpoints = {e["Properties"]["ServiceName"].rsplit(".", 1)[1] for e in made.all("AWS::EC2::VPCEndpoint").values()}
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("## Who reaches what\n")[2]
    inside = re.findall(r"^\| `[a-z-]+` \| inside \| ([^|]+) \|", text.partition("\n## ")[0], re.M)
    called = {service for row in inside for service in row.strip().split(", ")} - {"Redis"}
    assert {"SES": "email", "SQS": "sqs", "S3": "s3"}.keys() == called
    assert endpoints == {"email", "sqs", "s3"}
