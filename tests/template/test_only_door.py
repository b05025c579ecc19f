"""Who may still send mail once infra/only-door.yaml is deployed."""

import fnmatch
import json

import pytest
from cloudformation import Refused, Stack, load
from conftest import DOOR, DOORS, EXEMPT

PATH = "infra/only-door.yaml"
# What sends mail in the two APIs of SES, and over SMTP (SendRawEmail).
SENDS = [
    "SendEmail",
    "SendRawEmail",
    "SendTemplatedEmail",
    "SendBulkEmail",
    "SendBulkTemplatedEmail",
    "SendBounce",
    "SendCustomVerificationEmail",
]
OTHERS = ["GetAccount", "PutConfigurationSetSendingOptions", "ListSuppressedDestinations", "CreateEmailIdentity"]
SEND = DOOR["SendRoleArns"]
HOLDER, SMTP = EXEMPT["ExemptArns"].split(",")


def denies(document, action, principal):
    """Whether IAM denies the action to the principal, whatever else allows it. It knows what such a policy needs."""
    for statement in document["Statement"]:
        assert statement.keys() == {"Sid", "Effect", "Action", "Resource", "Condition"}
        assert (statement["Effect"], statement["Resource"]) == ("Deny", "*")
        ((operator, keys),) = statement["Condition"].items()
        ((key, values),) = keys.items()
        assert (operator, key) == ("ArnNotEquals", "aws:PrincipalArn")
        # Of several values of an operator with Not none may fit. A key that isn't there fits none.
        fits = any(fnmatch.fnmatchcase(principal or "", value) for value in values)
        if fnmatch.fnmatchcase(action.lower(), statement["Action"].lower()) and not fits:
            return True
    return False


def documents(stack):
    """Every policy that is made."""
    policies = [one["Properties"]["PolicyDocument"] for one in stack.all("AWS::IAM::ManagedPolicy").values()]
    return policies + [one["Properties"]["Content"] for one in stack.all("AWS::Organizations::Policy").values()]


@pytest.mark.parametrize("action", SENDS)
@pytest.mark.parametrize(
    ("principal", "sends", "sends_if_exempt"),
    [
        (SEND, True, True),
        (HOLDER, False, True),
        (SMTP, False, True),
        ("arn:aws:iam::123456789012:role/shop", False, False),
        # Names that only begin alike, the same name elsewhere, and whoever has none.
        (f"{SEND}2", False, False),
        (SEND.replace("123456789012", "210987654321"), False, False),
        ("arn:aws:iam::123456789012:role/letter", False, False),
        ("arn:aws:iam::123456789012:root", False, False),
        (None, False, False),
    ],
)
def test_only_the_send_role_and_the_exempt_send(action, principal, sends, sends_if_exempt):
    for given, may in ((DOORS["attached by hand"], sends), (DOORS["all set"], sends_if_exempt)):
        made = documents(Stack(given, PATH))
        assert made
        for document in made:
            assert denies(document, f"ses:{action}", principal) == (not may), given


@pytest.mark.parametrize("action", [f"ses:{name}" for name in OTHERS] + ["sqs:SendMessage", "sns:Publish"])
def test_nothing_but_sending_is_denied(action):
    for document in documents(Stack(DOORS["all set"], PATH)):
        assert not denies(document, action, "arn:aws:iam::123456789012:role/shop")


def test_several_stacks_have_a_send_role_each():
    other = SEND.replace("sendslot", "second")
    (document,) = documents(Stack({"SendRoleArns": f"{SEND},{other}"}, PATH))
    assert [denies(document, "ses:SendEmail", one) for one in (SEND, other, HOLDER)] == [False, False, True]


def test_it_is_attached_to_whom_the_parameters_name_and_to_nobody_else():
    for given, roles, users in (
        (DOOR, None, None),
        (DOOR | {"DeniedRoles": "shop,crm"}, ["shop", "crm"], None),
        (DOOR | {"DeniedUsers": "smtp-old"}, None, ["smtp-old"]),
    ):
        policy = Stack(given, PATH).resources["OnlyDoor"]["Properties"]
        assert (policy.get("Roles"), policy.get("Users")) == (roles, users)
        assert "Groups" not in policy


@pytest.mark.parametrize("choice", DOORS)
def test_an_organization_is_bound_by_the_same_document_only_if_targets_are_named(choice):
    stack = Stack(DOORS[choice], PATH)
    policies = stack.all("AWS::Organizations::Policy")
    assert bool(policies) == ("OrganizationTargets" in DOORS[choice])
    assert ("OrganizationPolicyId" in stack.outputs) == bool(policies)
    for policy in policies.values():
        properties = policy["Properties"]
        assert properties["Type"] == "SERVICE_CONTROL_POLICY"
        assert properties["TargetIds"] == ["123456789012", "ou-ab12-34cd56ef"]
        assert properties["Content"] == stack.resources["OnlyDoor"]["Properties"]["PolicyDocument"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"SendRoleArns": ""},
        # Whoever may name a role could make one that fits.
        {"SendRoleArns": "arn:aws:iam::123456789012:role/*"},
        {"SendRoleArns": "arn:aws:sts::123456789012:assumed-role/send/session"},
        {"SendRoleArns": "arn:aws:iam::123456789012:root"},
        DOOR | {"ExemptArns": "*"},
        DOOR | {"ExemptArns": "arn:aws:iam::123456789012:root"},
        DOOR | {"DeniedRoles": "arn:aws:iam::123456789012:role/shop"},
        DOOR | {"OrganizationTargets": "o-abcdefghij"},
        DOOR | {"OrganizationTargets": "12345"},
    ],
)
def test_a_door_that_would_be_shut_or_open_to_all_is_refused(given):
    with pytest.raises(Refused):
        Stack(given, PATH)


def test_as_many_as_the_parameters_take_fit_into_a_policy():
    """A service control policy takes 5,120 characters, a managed one 6,144, white space not counted."""
    parameters = load(PATH)["Parameters"]

    def most(name):
        arn = "arn:aws:iam::123456789012:role/x"
        return ",".join([arn] * ((parameters[name]["MaxLength"] + 1) // (len(arn) + 1)))

    given = {name: most(name) for name in ("SendRoleArns", "ExemptArns")} | {"OrganizationTargets": "123456789012"}
    for document in documents(Stack(given, PATH)):
        assert len(json.dumps(document, separators=(",", ":"))) <= 5120
