"""The functions: their code, their events, their environment, their logs, what they may do."""

import json
import re

import pytest
from cloudformation import ROOT, Stack, load
from conftest import CHOICES, FIXED, HOLDERS, REDIS_SECRET, RESERVED, SHADOW, TOPIC

ALL = {
    "POWERTOOLS_LOG_LEVEL",
    "POWERTOOLS_METRICS_NAMESPACE",
    "POWERTOOLS_SERVICE_NAME",
}
# The budget in Redis, and the way there.
REDIS = {
    "SENDSLOT_BUDGET",
    "SENDSLOT_REDIS_IAM_CACHE",
    "SENDSLOT_REDIS_IAM_USER",
    "SENDSLOT_REDIS_SECRET_ARN",
    "SENDSLOT_REDIS_URL",
}
# What makes it.
BUDGET = REDIS | {
    "SENDSLOT_BURST",
    "SENDSLOT_DAILY_QUOTA",
    "SENDSLOT_GUARD",
    "SENDSLOT_HEADROOM",
    "SENDSLOT_HORIZON_SECONDS",
    "SENDSLOT_HOURLY_CAP",
    "SENDSLOT_LIMIT",
    "SENDSLOT_RESERVE",
    "SENDSLOT_SLICE",
    "SENDSLOT_TENANTS",
}
# Where mail is put.
PARKED = {
    "SENDSLOT_BULK_SEND_QUEUE_URL",
    "SENDSLOT_MAX_MESSAGE_AGE_SECONDS",
    "SENDSLOT_PARKING_BUCKET",
    "SENDSLOT_PRIORITY_SEND_QUEUE_URL",
}
MAIL = PARKED | {"SENDSLOT_BUDGET_SOURCE", "SENDSLOT_REDIS_DOWN"}
ENVIRONMENT = {
    "ReserveFunction": ALL
    | BUDGET
    | MAIL
    | {
        "SENDSLOT_BULK_INTAKE_DLQ_URL",
        "SENDSLOT_BULK_INTAKE_QUEUE_URL",
        "SENDSLOT_PRIORITY_INTAKE_DLQ_URL",
        "SENDSLOT_PRIORITY_INTAKE_QUEUE_URL",
        "SENDSLOT_SLOTS_ONLY",
    },
    "SendFunction": ALL
    | BUDGET
    | MAIL
    | {
        "SENDSLOT_BULK_SEND_DLQ_URL",
        "SENDSLOT_BULK_UNCERTAIN",
        "SENDSLOT_CONFIRMATION_SECONDS",
        "SENDSLOT_LEASE_SECONDS",
        "SENDSLOT_PRIORITY_SEND_DLQ_URL",
        "SENDSLOT_PRIORITY_UNCERTAIN",
        "SENDSLOT_SEND_CONCURRENCY",
        "SENDSLOT_SHADOW",
    },
    "ControlFunction": ALL
    | BUDGET
    | PARKED
    | {
        "SENDSLOT_BULK_INTAKE_DLQ_URL",
        "SENDSLOT_BULK_INTAKE_QUEUE_URL",
        "SENDSLOT_BULK_SEND_DLQ_URL",
        "SENDSLOT_PRIORITY_INTAKE_DLQ_URL",
        "SENDSLOT_PRIORITY_INTAKE_QUEUE_URL",
        "SENDSLOT_PRIORITY_SEND_DLQ_URL",
    },
    "FeedbackFunction": ALL | REDIS | {"SENDSLOT_MAX_MESSAGE_AGE_SECONDS"},
    "AutoPauseFunction": ALL
    | {
        "SENDSLOT_ALARM_TOPIC_ARN",
        "SENDSLOT_CONTROL_FUNCTION",
        "SENDSLOT_NOTIFY_TOPIC_ARN",
        "SENDSLOT_PAUSE_ACCOUNT",
    },
    "QuotaRefreshFunction": ALL
    | {
        "SENDSLOT_BULK_SEND_MAPPING",
        "SENDSLOT_CONTROL_FUNCTION",
        "SENDSLOT_PRIORITY_SEND_MAPPING",
        "SENDSLOT_SEND_FUNCTION",
        "SENDSLOT_SEND_RESERVED_CONCURRENCY",
        "SENDSLOT_TENANTS_PATH",
    },
}
OF_REDIS = [name for name, variables in ENVIRONMENT.items() if variables >= REDIS]
OF_PARKED = [name for name, variables in ENVIRONMENT.items() if variables >= PARKED]
OF_MAIL = [name for name, variables in ENVIRONMENT.items() if variables >= MAIL]
# Those that are outside any VPC, whatever there is.
OUTSIDE = {"QuotaRefreshFunction", "AutoPauseFunction"}
# Those that read queues, and those of them that write to what they read.
READERS = {"ReserveFunction", "SendFunction", "FeedbackFunction"}
PARAMETER_OF = {
    "SENDSLOT_LIMIT": ("SendRate", "11.2/s"),
    "SENDSLOT_DAILY_QUOTA": ("DailyQuota", "50000"),
    "SENDSLOT_HOURLY_CAP": ("HourlyCap", "1000"),
    "SENDSLOT_HEADROOM": ("Headroom", "0.75"),
    "SENDSLOT_GUARD": ("Guard", "0.78"),
    "SENDSLOT_BURST": ("Burst", "1"),
    "SENDSLOT_RESERVE": ("PriorityReserve", "20/h"),
    "SENDSLOT_SLICE": ("Slice", "0.125"),
    "SENDSLOT_HORIZON_SECONDS": ("HorizonSeconds", "900"),
    "SENDSLOT_TENANTS": ("Tenants", "acme=acme-set:3,beta"),
    "SENDSLOT_MAX_MESSAGE_AGE_SECONDS": ("MaxMessageAgeSeconds", "3600"),
    "SENDSLOT_BUDGET": ("Budget", "other"),
    "SENDSLOT_REDIS_DOWN": ("RedisDownPolicy", "capped"),
    "POWERTOOLS_LOG_LEVEL": ("LogLevel", "DEBUG"),
    "SENDSLOT_PRIORITY_UNCERTAIN": ("PriorityUncertainPolicy", "park"),
    "SENDSLOT_BULK_UNCERTAIN": ("BulkUncertainPolicy", "resend"),
    "SENDSLOT_CONFIRMATION_SECONDS": ("ConfirmationSeconds", "5"),
    "SENDSLOT_SEND_CONCURRENCY": ("SendMaximumConcurrency", "7"),
    "SENDSLOT_SEND_RESERVED_CONCURRENCY": ("SendReservedConcurrency", "14"),
}
VPC_POLICY = "arn:aws:iam::aws:policy/service-role/AWSLambdaENIManagementAccess"
SES = "arn:aws:ses:eu-west-1:123456789012"
PARKING = "{Parking/Bucket.Arn}"
# Reads that IAM knows no resources of.
EVERYWHERE = {"ses:GetAccount", "ses:ListSuppressedDestinations", "cloudwatch:GetMetricStatistics"}
# The one change that knows none. Only who says so allows it.
PAUSE_ACCOUNT = "ses:PutAccountSendingAttributes"
SWITCH = {"ses:PutConfigurationSetSendingOptions": {f"{SES}:configuration-set/*"}}


def functions(stack):
    return stack.all("AWS::Serverless::Function")


def name_of(function):
    """`SendFunction` is `send` and `QuotaRefreshFunction` is `quota-refresh`, everywhere."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", function.removesuffix("Function")).lower()


def lanes(name, *queues):
    return {f"{{{lane}/{queue}{name}}}" for lane in ("PriorityLane", "BulkLane") for queue in queues}


def test_one_name_everywhere(made):
    members = re.findall(r'^    "(.+)",$', (ROOT / "Cargo.toml").read_text(), re.M)
    assert functions(made).keys() == ENVIRONMENT.keys()
    for logical, function in functions(made).items():
        name, properties = name_of(logical), function["Properties"]
        assert properties["CodeUri"] == f"functions/{name}"
        assert properties["CodeUri"] in members
        manifest = (ROOT / properties["CodeUri"] / "Cargo.toml").read_text()
        assert manifest.startswith(f'[package]\nname = "{name}"\n')
        assert function["Metadata"]["BuildMethod"] == "rust-cargolambda"
        assert function["Metadata"]["BuildProperties"] == {"Binary": name}
        assert properties["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == name
        assert made.outputs[f"{logical}Name"] == f"{{{logical}}}"
        assert properties["Role"] == f"{{{logical.removesuffix('Function')}Role.Arn}}"


@pytest.mark.parametrize("architecture", ["arm64", "x86_64"])
def test_functions_are_native_binaries(architecture):
    assert load("template.yaml")["Parameters"]["Architecture"]["Default"] == "arm64"
    for function in functions(Stack({"Architecture": architecture})).values():
        properties = function["Properties"]
        assert (properties["Runtime"], properties["Handler"]) == ("provided.al2023", "bootstrap")
        assert properties["Architectures"] == [architecture]


def test_loop_detection_lets_functions_send_to_their_own_queues_and_no_others_loop(made):
    for name, function in functions(made).items():
        sources = {event["Type"] for event in function["Properties"].get("Events", {}).values()}
        assert ("SQS" in sources) == (name in READERS), name
        assert function["Properties"].get("RecursiveLoop") == ("Allow" if name in OF_MAIL else None), name


@pytest.mark.parametrize("logical", ENVIRONMENT)
def test_the_environment_is_what_the_function_reads(stack, logical):
    assert functions(stack)[logical]["Properties"]["Environment"]["Variables"].keys() == ENVIRONMENT[logical]


def test_every_variable_is_read_and_every_variable_that_is_read_is_set():
    read = set()
    for crate in ("shared/runtime", *map(name_of, ENVIRONMENT)):
        for file in (ROOT / "functions" / crate / "src").glob("**/*.rs"):
            code = file.read_text().partition("\nmod tests")[0]
            read |= set(re.findall(r'"((?:SENDSLOT|POWERTOOLS)_[A-Z_]+)"', code))
    # The names of the lanes' variables are put together from lane and kind.
    of_lanes = {n for n in set().union(*ENVIRONMENT.values()) if re.match("SENDSLOT_(PRIORITY|BULK)_", n)}
    assert read | of_lanes == set().union(*ENVIRONMENT.values())


@pytest.mark.parametrize("logical", ENVIRONMENT)
def test_the_environment_says_what_the_parameters_say(logical):
    stack = Stack(dict(PARAMETER_OF.values()))
    variables = functions(stack)[logical]["Properties"]["Environment"]["Variables"]
    expected = {name: value for name, (_, value) in PARAMETER_OF.items() if name in ENVIRONMENT[logical]}
    assert {name: variables[name] for name in expected} == expected


def test_what_several_functions_are_told_they_are_told_alike(stack):
    told = {}
    for function in functions(stack).values():
        for name, value in function["Properties"]["Environment"]["Variables"].items():
            told.setdefault(name, set()).add(value)
    told.pop("POWERTOOLS_SERVICE_NAME")
    assert {name: values for name, values in told.items() if len(values) > 1} == {}


def test_who_books_and_sends_leaves_the_budget_to_the_account(stack):
    for logical in OF_MAIL:
        variables = functions(stack)[logical]["Properties"]["Environment"]["Variables"]
        assert variables["SENDSLOT_BUDGET_SOURCE"] == "account"


@pytest.mark.parametrize("logical", OF_PARKED)
def test_the_parking_bucket_is_the_one_that_is_made(stack, logical):
    variables = functions(stack)[logical]["Properties"]["Environment"]["Variables"]
    assert variables["SENDSLOT_PARKING_BUCKET"] == "{Parking/Bucket}"
    assert stack.outputs["ParkingBucketName"] == "{Parking/Bucket}"


@pytest.mark.parametrize("logical", ENVIRONMENT)
def test_each_queue_url_is_the_queue_its_name_says(made, logical):
    for name, value in functions(made)[logical]["Properties"]["Environment"]["Variables"].items():
        if match := re.fullmatch(r"SENDSLOT_(\w+?)_(INTAKE|SEND)_(QUEUE|DLQ)_URL", name):
            lane, which, kind = (word.capitalize() for word in match.groups())
            assert value == f"{{{lane}Lane/{which}{kind}}}"
            assert made.outputs[f"{lane}{which}{kind}Url"] == value


def test_functions_read_the_queues_of_both_lanes(made):
    for logical, queue in (("ReserveFunction", "IntakeQueue"), ("SendFunction", "SendQueue")):
        events = functions(made)[logical]["Properties"]["Events"].values()
        assert {event["Properties"]["Queue"] for event in events} == lanes(".Arn", queue)
        assert len(events) == 2


def test_feedback_reads_what_ses_tells_and_auto_pause_hears_the_alarms(made):
    (told,) = functions(made)["FeedbackFunction"]["Properties"]["Events"].values()
    assert told["Properties"]["Queue"] == "{Feedback/FeedbackQueue.Arn}"
    assert made.outputs["FeedbackQueueUrl"] == "{Feedback/FeedbackQueue}"
    assert made.outputs["FeedbackDlqUrl"] == "{Feedback/FeedbackDlq}"
    (alarm,) = functions(made)["AutoPauseFunction"]["Properties"]["Events"].values()
    assert alarm == {"Type": "SNS", "Properties": {"Topic": "{Reputation/Topic}"}}
    variables = functions(made)["AutoPauseFunction"]["Properties"]["Environment"]["Variables"]
    assert variables["SENDSLOT_ALARM_TOPIC_ARN"] == "{Reputation/Topic}" == made.outputs["ReputationTopicArn"]
    assert variables["SENDSLOT_CONTROL_FUNCTION"] == "{ControlFunction}"


@pytest.mark.parametrize(("given", "told"), [({}, ""), (TOPIC, TOPIC["AlarmTopicArn"])])
def test_people_are_told_where_the_alarms_go(given, told):
    variables = functions(Stack(given))["AutoPauseFunction"]["Properties"]["Environment"]["Variables"]
    assert variables["SENDSLOT_NOTIFY_TOPIC_ARN"] == told


@pytest.mark.parametrize(("given", "switch"), [({}, "off"), ({"PauseAccount": "true"}, "on")])
def test_the_account_is_paused_only_if_somebody_said_so(given, switch):
    stack = Stack(given)
    variables = functions(stack)["AutoPauseFunction"]["Properties"]["Environment"]["Variables"]
    assert variables["SENDSLOT_PAUSE_ACCOUNT"] == switch
    assert (PAUSE_ACCOUNT in allowed(stack, "AutoPauseRole")) == (switch == "on")


def test_what_is_invoked_asynchronously_is_tried_as_long_as_it_makes_sense(made):
    tries = {
        name: (one["MaximumRetryAttempts"], one["MaximumEventAgeInSeconds"])
        for name, function in functions(made).items()
        if (one := function["Properties"].get("EventInvokeConfig"))
    }
    # A replay or a refresh is the next minute's, an alarm's state is told once.
    assert tries == {"ControlFunction": (0, 60), "QuotaRefreshFunction": (1, 120), "AutoPauseFunction": (2, 3600)}


def test_mappings_cap_concurrency_and_report_what_failed():
    given = {"ReserveMaximumConcurrency": "2", "SendMaximumConcurrency": "1000", "FeedbackMaximumConcurrency": "7"}
    stack = Stack(given)
    for logical, most in (("ReserveFunction", "2"), ("SendFunction", "1000"), ("FeedbackFunction", "7")):
        for name, event in functions(stack)[logical]["Properties"]["Events"].items():
            assert event["Type"] == "SQS", name
            assert event["Properties"]["BatchSize"] == 10, name
            assert event["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"], name
            assert event["Properties"]["ScalingConfig"] == {"MaximumConcurrency": most}, name


@pytest.mark.parametrize(("fixed", "most", "pace"), [({}, 20, "20"), (FIXED, "30", "30")])
def test_the_concurrency_of_send_is_fixed_or_begins_with_what_capped_counts_on(fixed, most, pace):
    stack = Stack(fixed)
    send, refresh = (functions(stack)[f"{name}Function"]["Properties"] for name in ("Send", "QuotaRefresh"))
    assert {event["Properties"]["ScalingConfig"]["MaximumConcurrency"] for event in send["Events"].values()} == {most}
    assert send["Environment"]["Variables"]["SENDSLOT_SEND_CONCURRENCY"] == pace
    # A mapping that isn't named is left alone.
    for lane in ("Priority", "Bulk"):
        named = refresh["Environment"]["Variables"][f"SENDSLOT_{lane.upper()}_SEND_MAPPING"]
        assert named == ("" if fixed else f"{{SendFunction{lane}Send}}")


@pytest.mark.parametrize(("given", "reserved"), [({}, None), (RESERVED, "60")])
def test_concurrency_is_reserved_for_send_alone_and_only_if_asked_for(given, reserved):
    for logical, function in functions(Stack(given)).items():
        expected = reserved if logical == "SendFunction" else None
        assert function["Properties"].get("ReservedConcurrentExecutions") == expected, logical


def test_every_function_has_its_log_group():
    stack = Stack({"LogRetentionDays": "7", "LogLevel": "DEBUG"})
    groups = stack.all("AWS::Logs::LogGroup")
    for logical, function in functions(stack).items():
        logs = f"{logical.removesuffix('Function')}Logs"
        assert function["Properties"]["LoggingConfig"] == {
            "LogFormat": "JSON",
            "ApplicationLogLevel": "DEBUG",
            "LogGroup": f"{{{logs}}}",
        }
        assert groups.pop(logs)["Properties"]["RetentionInDays"] == "7"
    assert not groups


def allowed(stack, role):
    """Action -> resources of everything a role allows."""
    grants = {}
    for policy in stack.resources[role]["Properties"]["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            assert statement.keys() - {"Condition"} == {"Sid", "Effect", "Action", "Resource"}
            assert statement["Effect"] == "Allow"
            if "Condition" in statement:
                # With a prefix, it must be this one; a mail that is gone is asked for without.
                assert statement["Action"] == "s3:ListBucket"
                assert statement["Condition"] == {"StringLikeIfExists": {"s3:prefix": "parked/*"}}
            else:
                assert statement["Action"] != "s3:ListBucket"
            actions, resources = (
                v if isinstance(v, list) else [v] for v in (statement["Action"], statement["Resource"])
            )
            for action in actions:
                grants.setdefault(action, set()).update(resources)
    return grants


CACHE = "arn:aws:elasticache:eu-west-1:123456789012:replicationgroup:{Cache/ReplicationGroup}"


def redis(stack):
    """What a role may do to be let in by Redis: one of two things, or nothing."""
    if "Cache" in stack.resources:
        return {"elasticache:Connect": {CACHE, "{Cache/FunctionUser.Arn}"}}
    if secret := stack.parameters["RedisSecretArn"]:
        return {"secretsmanager:GetSecretValue": {secret}}
    return {}


@pytest.mark.parametrize("logical", OF_REDIS)
@pytest.mark.parametrize("choice", CHOICES)
def test_functions_log_in_to_redis_by_role_by_secret_or_by_url(choice, logical):
    stack = Stack(CHOICES[choice])
    variables = functions(stack)[logical]["Properties"]["Environment"]["Variables"]
    login = tuple(variables[f"SENDSLOT_REDIS_{name}"] for name in ("IAM_USER", "IAM_CACHE", "SECRET_ARN"))
    made = ("{Cache/FunctionUser}", "{Cache/ReplicationGroup}", "")
    brought = ("", "", REDIS_SECRET["RedisSecretArn"] if "secret" in choice else "")
    assert login == (brought if "Redis" in choice else made)
    # IAM is for TLS alone; a Redis of one's own may be without.
    assert variables["SENDSLOT_REDIS_URL"].startswith("rediss://")


def test_reserve_may_only_move_messages_and_park_them(stack):
    assert allowed(stack, "ReserveRole") == redis(stack) | {
        "sqs:ReceiveMessage": lanes(".Arn", "IntakeQueue"),
        "sqs:DeleteMessage": lanes(".Arn", "IntakeQueue"),
        "sqs:GetQueueAttributes": lanes(".Arn", "IntakeQueue"),
        "sqs:SendMessage": lanes(".Arn", "IntakeQueue", "SendQueue", "IntakeDlq"),
        "s3:PutObject": {f"{PARKING}/parked/*"},
        "logs:CreateLogStream": {"{ReserveLogs.Arn}"},
        "logs:PutLogEvents": {"{ReserveLogs.Arn}"},
    }


def test_send_may_move_messages_send_mail_and_park_it(stack):
    mail = {f"{SES}:{kind}/*" for kind in ("identity", "configuration-set", "template", "tenant")}
    sends = dict.fromkeys(("ses:SendEmail", "ses:SendRawEmail", "ses:SendTemplatedEmail"), mail)
    shadow = stack.parameters["Shadow"] == "true"
    assert allowed(stack, "SendRole") == redis(stack) | ({} if shadow else sends) | {
        "ses:GetAccount": {"*"},
        "sqs:ReceiveMessage": lanes(".Arn", "SendQueue"),
        "sqs:DeleteMessage": lanes(".Arn", "SendQueue"),
        "sqs:GetQueueAttributes": lanes(".Arn", "SendQueue"),
        "sqs:ChangeMessageVisibility": lanes(".Arn", "SendQueue"),
        "sqs:SendMessage": lanes(".Arn", "SendQueue", "SendDlq"),
        "s3:PutObject": {f"{PARKING}/parked/*"},
        "logs:CreateLogStream": {"{SendLogs.Arn}"},
        "logs:PutLogEvents": {"{SendLogs.Arn}"},
    }


@pytest.mark.parametrize(("given", "switch"), [({}, "off"), ({"Shadow": "false"}, "off"), (SHADOW, "on")])
def test_in_shadow_nothing_is_sent_and_what_goes_past_is_no_incident(given, switch):
    stack = Stack(given)
    assert functions(stack)["SendFunction"]["Properties"]["Environment"]["Variables"]["SENDSLOT_SHADOW"] == switch
    # Whatever the function does: nobody lets it.
    assert bool([action for action in allowed(stack, "SendRole") if action.startswith("ses:Send")]) == (switch == "off")
    assert ("UnscheduledSendsTooHighAlarm" in stack.nested["BudgetAlarms"].resources) == (switch == "off")


def test_the_role_that_sends_is_told(stack):
    assert stack.outputs["SendRoleArn"] == "{SendRole.Arn}"


def test_control_may_use_redis_switch_tenants_put_mail_back_and_count(stack):
    dead = lanes(".Arn", "IntakeDlq", "SendDlq")
    assert allowed(stack, "ControlRole") == redis(stack) | SWITCH | {
        "sqs:SendMessage": lanes(".Arn", "SendQueue", "IntakeQueue"),
        "sqs:ReceiveMessage": dead,
        "sqs:DeleteMessage": dead,
        "sqs:ChangeMessageVisibility": dead,
        "sqs:GetQueueAttributes": dead | lanes(".Arn", "SendQueue", "IntakeQueue"),
        "s3:ListBucket": {PARKING},
        "s3:GetObject": {f"{PARKING}/parked/*"},
        "s3:DeleteObject": {f"{PARKING}/parked/*"},
        "logs:CreateLogStream": {"{ControlLogs.Arn}"},
        "logs:PutLogEvents": {"{ControlLogs.Arn}"},
    }


def test_feedback_may_read_its_queue_use_redis_and_switch_tenants(stack):
    queue = {"{Feedback/FeedbackQueue.Arn}"}
    assert allowed(stack, "FeedbackRole") == redis(stack) | SWITCH | {
        "sqs:ReceiveMessage": queue,
        "sqs:DeleteMessage": queue,
        "sqs:GetQueueAttributes": queue,
        "logs:CreateLogStream": {"{FeedbackLogs.Arn}"},
        "logs:PutLogEvents": {"{FeedbackLogs.Arn}"},
    }


@pytest.mark.parametrize("choice", CHOICES)
def test_auto_pause_may_ask_cloudwatch_switch_tenants_and_tell(choice):
    stack = Stack(CHOICES[choice])
    expected = SWITCH | {
        "cloudwatch:DescribeAlarms": {"arn:aws:cloudwatch:eu-west-1:123456789012:alarm:*"},
        "cloudwatch:GetMetricStatistics": {"*"},
        "lambda:InvokeFunction": {"{ControlFunction.Arn}"},
        "logs:CreateLogStream": {"{AutoPauseLogs.Arn}"},
        "logs:PutLogEvents": {"{AutoPauseLogs.Arn}"},
    }
    if topic := stack.parameters["AlarmTopicArn"]:
        expected |= {"sns:Publish": {topic}}
    if choice == "account may be paused":
        expected |= {PAUSE_ACCOUNT: {"*"}}
    assert allowed(stack, "AutoPauseRole") == expected


@pytest.mark.parametrize("choice", CHOICES)
def test_quota_refresh_may_ask_and_tell_control_and_scale_send_if_that_is_left_to_it(choice):
    stack = Stack(CHOICES[choice])
    path = "arn:aws:ssm:eu-west-1:123456789012:parameter/sendslot/stack/tenants"
    expected = {
        "ses:GetAccount": {"*"},
        "ses:GetConfigurationSet": {f"{SES}:configuration-set/*"},
        "ses:ListSuppressedDestinations": {"*"},
        "ssm:GetParametersByPath": {path, f"{path}/*"},
        "lambda:InvokeFunction": {"{ControlFunction.Arn}"},
        "logs:CreateLogStream": {"{QuotaRefreshLogs.Arn}"},
        "logs:PutLogEvents": {"{QuotaRefreshLogs.Arn}"},
    }
    if choice != "fixed concurrency":
        mapping = "arn:aws:lambda:eu-west-1:123456789012:event-source-mapping"
        mappings = {f"{mapping}:{{SendFunction{lane}Send}}" for lane in ("Priority", "Bulk")}
        expected |= {
            "cloudwatch:GetMetricStatistics": {"*"},
            "lambda:GetEventSourceMapping": mappings,
            "lambda:UpdateEventSourceMapping": mappings,
        }
    assert allowed(stack, "QuotaRefreshRole") == expected


def test_slot_holders_may_only_invoke_reserve():
    stack = Stack(HOLDERS)
    assert allowed(stack, "SlotHolderRole") == {"lambda:InvokeFunction": {"{ReserveFunction.Arn}"}}
    role = stack.resources["SlotHolderRole"]["Properties"]
    assert role.keys() == {"Description", "AssumeRolePolicyDocument", "Policies"}
    assert stack.outputs["SlotHolderRoleArn"] == "{SlotHolderRole.Arn}"


@pytest.mark.parametrize("holders", [HOLDERS["SlotHolders"], "arn:aws:iam::123456789012:root"])
def test_exactly_the_named_become_slot_holders(holders):
    role = Stack({"SlotHolders": holders}).resources["SlotHolderRole"]["Properties"]
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust == {"Effect": "Allow", "Principal": {"AWS": holders.split(",")}, "Action": "sts:AssumeRole"}


@pytest.mark.parametrize("choice", CHOICES)
def test_slots_only_are_for_slot_holders(choice):
    stack = Stack(CHOICES[choice])
    held = choice == "slot holders"
    variables = functions(stack)["ReserveFunction"]["Properties"]["Environment"]["Variables"]
    assert variables["SENDSLOT_SLOTS_ONLY"] == ("on" if held else "off")
    assert ("SlotHolderRole" in stack.resources) == held
    assert ("SlotHolderRoleArn" in stack.outputs) == held


def test_as_many_slot_holders_as_the_parameter_takes_fit_into_a_trust_policy():
    """IAM takes 2,048 characters, white space not counted."""
    most = load("template.yaml")["Parameters"]["SlotHolders"]["MaxLength"]
    shortest = "arn:aws:iam::123456789012:root"
    holders = ",".join([shortest] * ((most + 1) // (len(shortest) + 1)))
    policy = Stack({"SlotHolders": holders}).resources["SlotHolderRole"]["Properties"]["AssumeRolePolicyDocument"]
    assert len(json.dumps(policy, separators=(",", ":"))) <= 2048


def test_only_send_may_send_mail_and_nobody_may_do_anything_at_all(stack):
    for role in stack.all("AWS::IAM::Role"):
        for action, resources in allowed(stack, role).items():
            assert "*" not in action, role
            assert ("*" in resources) == (action in EVERYWHERE | {PAUSE_ACCOUNT}), role
            assert not action.startswith("ses:Send") or role == "SendRole", role
            changes = action in {*SWITCH, PAUSE_ACCOUNT}
            assert not action.startswith("ses:") or re.match("ses:(Send|Get|List)", action) or changes, role
            # Who is outside the VPC has no way to Redis.
            outside = role.replace("Role", "Function") in OUTSIDE
            assert not action.startswith(("elasticache:", "secretsmanager:")) or not outside, role


@pytest.mark.parametrize("choice", CHOICES)
def test_roles_belong_to_lambda_and_manage_interfaces_only_in_a_vpc(choice):
    stack = Stack(CHOICES[choice])
    roles = stack.all("AWS::IAM::Role")
    roles.pop("SlotHolderRole", None)  # looked at above
    for schedule in ("QuotaRefreshScheduleRole", "ReplayScheduleRole"):
        roles.pop(schedule)  # in test_budget.py
    assert roles.keys() == {f"{name.removesuffix('Function')}Role" for name in functions(stack)}
    for name, role in roles.items():
        (trust,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        assert trust == {
            "Effect": "Allow",
            "Principal": {"Service": "lambda.amazonaws.com"},
            "Action": "sts:AssumeRole",
        }
        # The one policy that is not ours: Lambda asks for network interfaces on every resource.
        inside = name.replace("Role", "Function") not in OUTSIDE and choice not in (
            "own Redis",
            "own Redis and its secret",
        )
        assert role["Properties"].get("ManagedPolicyArns") == ([VPC_POLICY] if inside else None)
        function = functions(stack)[f"{name.removesuffix('Role')}Function"]
        assert ("VpcConfig" in function["Properties"]) == inside
    for function in functions(stack).values():
        assert "Policies" not in function["Properties"]


def test_no_other_identity_or_policy_is_made(stack):
    kinds = ("Policy", "ManagedPolicy", "User", "Group", "RolePolicy")
    assert not [name for kind in kinds for name in stack.all(f"AWS::IAM::{kind}")]
