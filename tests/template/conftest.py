"""The stacks that the tests look at: the choices an operator has, each named."""

import pytest
from cloudformation import Stack

OWN_VPC = {"VpcId": "vpc-0123456789abcdef0", "SubnetIds": "subnet-0123456789abcdef0,subnet-0123456789abcdef1"}
OWN_REDIS = {"RedisUrl": "rediss://redis.example.com:6380"}
REDIS_SECRET = {"RedisSecretArn": "arn:aws:secretsmanager:eu-west-1:123456789012:secret:redis/sendslot-AbCdEf"}
OWN_GROUP = {"FunctionSecurityGroupId": "sg-0123456789abcdef0"}
HOLDERS = {
    "SlotHolders": "arn:aws:iam::123456789012:role/news/letter,arn:aws:iam::210987654321:root",
}
PRODUCERS = {
    "Producers": "arn:aws:iam::210987654321:role/shop/checkout,arn:aws:iam::345678901234:root",
}
SHADOW = {"Shadow": "true"}
FIXED = {"SendMaximumConcurrency": "30"}
RESERVED = {"SendReservedConcurrency": "60"}
TOPIC = {"AlarmTopicArn": "arn:aws:sns:eu-west-1:123456789012:alarms"}
REPUTATION_TOPIC = {"ReputationTopicArn": "arn:aws:sns:eu-west-1:123456789012:reputation"}

CHOICES = {
    "all made": {},
    "one cache node": {"CacheFailover": "false"},
    "alarm topic": TOPIC,
    "no streams": {"Streams": "false"},
    "streams with alarms": {"TenantAlarms": "true"},
    "streams with alarms and a topic": {"TenantAlarms": "true"} | TOPIC,
    "no dashboard": {"Dashboard": "false"},
    "account may be paused": {"PauseAccount": "true"},
    "slot holders": HOLDERS,
    "producers elsewhere": PRODUCERS,
    "in shadow": SHADOW,
    "fixed concurrency": FIXED,
    "reserved concurrency": RESERVED,
    "own VPC": OWN_VPC,
    "own VPC and security group": OWN_VPC | OWN_GROUP,
    "own Redis": OWN_REDIS,
    "own Redis and its secret": OWN_REDIS | REDIS_SECRET,
    "own VPC and Redis": OWN_VPC | OWN_REDIS,
    "own VPC, Redis and its secret": OWN_VPC | OWN_REDIS | REDIS_SECRET,
    "own VPC, security group and Redis": OWN_VPC | OWN_GROUP | OWN_REDIS,
}


# A tenant's stack that is deployed by itself, with what its parameters can be.
IDENTITIES = {
    name: f"arn:aws:ses:eu-west-1:123456789012:identity/{identity}"
    for name, identity in (
        ("Identity", "acme.example"),
        ("SecondIdentity", "a@b.example"),
        ("ThirdIdentity", "c.example"),
    )
}
TENANT = {"Tenant": "acme", "Stack": "sendslot"}
TENANTS = {
    "as by default": TENANT,
    "all set": TENANT
    | REPUTATION_TOPIC
    | TOPIC
    | {
        "Lane": "priority",
        "Weight": "3",
        "HourlyCap": "1000",
        "DailyCap": "20000",
        "WarmUp": '{"start": "2026-12-01", "schedule": [{"day": 1, "cap": 20, "per": "hour"}]}',
        "Thresholds": '{"bounce_hour": {"percent": 5, "sent": 100, "events": 10}}',
        "UncertainPolicy": "park",
        "UnsubscribeUrl": "https://acme.example/u/{send_id}?a=1&b=2",
        "UnsubscribeMailto": "off@acme.example",
        "TlsPolicy": "REQUIRE",
        "SesTenant": "true",
        "ReputationAlarms": "true",
    }
    | IDENTITIES,
    "alarms that tell nobody": TENANT | REPUTATION_TOPIC | {"ReputationAlarms": "true"},
    "one identity": TENANT | {"SesTenant": "true", "Identity": IDENTITIES["Identity"]},
    "no address to write to": TENANT | {"UnsubscribeUrl": "https://acme.example/u"},
}


# The policy that leaves Sendslot as the only way to SES, deployed by itself.
DOOR = {"SendRoleArns": "arn:aws:iam::123456789012:role/sendslot-SendRole-ABC"}
EXEMPT = {"ExemptArns": "arn:aws:iam::123456789012:role/news/letter,arn:aws:iam::123456789012:user/smtp"}
DOORS = {
    "attached by hand": DOOR,
    "all set": DOOR
    | EXEMPT
    | {
        "DeniedRoles": "shop,crm",
        "DeniedUsers": "smtp-old",
        "OrganizationTargets": "123456789012,ou-ab12-34cd56ef",
    },
}


@pytest.fixture(params=CHOICES.values(), ids=CHOICES)
def stack(request):
    """Every choice in turn."""
    return Stack(request.param)


@pytest.fixture
def made():
    """The stack with everything made, all parameters at their defaults."""
    return Stack()
