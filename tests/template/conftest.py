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
FIXED = {"SendMaximumConcurrency": "30"}
RESERVED = {"SendReservedConcurrency": "60"}
TOPIC = {"AlarmTopicArn": "arn:aws:sns:eu-west-1:123456789012:alarms"}

CHOICES = {
    "all made": {},
    "one cache node": {"CacheFailover": "false"},
    "alarm topic": TOPIC,
    "slot holders": HOLDERS,
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


@pytest.fixture(params=CHOICES.values(), ids=CHOICES)
def stack(request):
    """Every choice in turn."""
    return Stack(request.param)


@pytest.fixture
def made():
    """The stack with everything made, all parameters at their defaults."""
    return Stack()
