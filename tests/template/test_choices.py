"""What the operator brings is used, and what they don't bring is made."""

import re

import pytest
from cloudformation import ROOT, Refused, Stack, load
from conftest import CHOICES, DOORS, OWN_GROUP, OWN_REDIS, OWN_VPC, REDIS_SECRET, TENANTS, TOPIC

TEMPLATES = ["template.yaml", *(f"infra/{p.name}" for p in sorted((ROOT / "infra").glob("*.yaml")))]
# Those that use Redis.
FUNCTIONS = ["ReserveFunction", "SendFunction", "ControlFunction", "FeedbackFunction"]


def stacks(stack):
    """The stack and those nested in it."""
    yield stack
    for name, resource in stack.resources.items():
        if resource["Type"] == "AWS::CloudFormation::Stack":
            yield from stacks(stack.nested[name])


def alone():
    """Those that are deployed by themselves."""
    return [
        *(Stack(parameters, "infra/tenant.yaml") for parameters in TENANTS.values()),
        *(Stack(parameters, "infra/only-door.yaml") for parameters in DOORS.values()),
    ]


def test_every_choice_works_out(stack):
    for one in stacks(stack):
        assert one.resources
        assert one.outputs is not None


def test_every_condition_is_seen_both_ways():
    seen = {}
    for stack in [*(one for parameters in CHOICES.values() for one in stacks(Stack(parameters))), *alone()]:
        for name, value in stack.conditions.items():
            seen.setdefault((stack.path, name), set()).add(value)
    declared = {(path, name) for path in TEMPLATES for name in load(path).get("Conditions", {})}
    assert seen.keys() == declared
    assert {key: {True, False} for key in seen} == seen


def test_no_condition_is_unused():
    for path in TEMPLATES:
        used = str({k: v for k, v in load(path).items() if k != "Metadata"})
        for name in load(path).get("Conditions", {}):
            assert f"'Condition': '{name}'" in used or f"'Fn::If': ['{name}'" in used, f"{path}: {name}"


def test_every_template_is_used():
    used = {stack.path for parameters in CHOICES.values() for stack in stacks(Stack(parameters))}
    assert used | {stack.path for stack in alone()} == set(TEMPLATES)


def test_nested_templates_hold_no_functions():
    for path in TEMPLATES[1:]:
        kinds = {resource["Type"] for resource in load(path)["Resources"].values()}
        assert not {k for k in kinds if "Function" in k or "EventSourceMapping" in k}, path


def vpc(stack, name):
    return stack.resources[name]["Properties"].get("VpcConfig")


def redis(stack, name):
    return stack.resources[name]["Properties"]["Environment"]["Variables"]["SENDSLOT_REDIS_URL"]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(
    ("choice", "network", "cache", "groups", "subnets", "url"),
    [
        ("all made", True, True, ["{FunctionSecurityGroup.GroupId}"], ["{Network/SubnetA}", "{Network/SubnetB}"], None),
        ("own VPC", False, True, ["{FunctionSecurityGroup.GroupId}"], OWN_VPC["SubnetIds"].split(","), None),
        (
            "own VPC and security group",
            False,
            True,
            list(OWN_GROUP.values()),
            OWN_VPC["SubnetIds"].split(","),
            None,
        ),
        (
            "own VPC and Redis",
            False,
            False,
            ["{FunctionSecurityGroup.GroupId}"],
            OWN_VPC["SubnetIds"].split(","),
            OWN_REDIS["RedisUrl"],
        ),
        ("own Redis", False, False, None, None, OWN_REDIS["RedisUrl"]),
    ],
)
def test_functions_run_where_they_reach_redis(choice, network, cache, groups, subnets, url, function):
    stack = Stack(CHOICES[choice])
    assert ("Network" in stack.resources, "Cache" in stack.resources) == (network, cache)
    assert vpc(stack, function) == (groups and {"SecurityGroupIds": groups, "SubnetIds": subnets})
    made = "{Cache/ReplicationGroup.PrimaryEndPoint.Address}:{Cache/ReplicationGroup.PrimaryEndPoint.Port}"
    assert redis(stack, function) == (url or f"rediss://{made}")
    assert stack.outputs.get("RedisEndpoint") == (None if url else made)
    assert stack.outputs.get("FunctionSecurityGroupId") == (groups and groups[0])


@pytest.mark.parametrize(
    "parameters",
    [
        {"VpcId": OWN_VPC["VpcId"]},
        {"SubnetIds": OWN_VPC["SubnetIds"]},
        OWN_GROUP,
        OWN_GROUP | OWN_REDIS,
    ],
)
def test_half_a_network_is_refused(parameters):
    with pytest.raises(Refused, match="need"):
        Stack(parameters)


def test_the_made_network_has_no_way_out(made):
    kinds = {r["Type"].rsplit("::", 1)[1] for r in made.nested["Network"].resources.values()}
    assert kinds == {"VPC", "Subnet", "SecurityGroup", "VPCEndpoint", "RouteTable", "SubnetRouteTableAssociation"}
    zones = {s["Properties"]["AvailabilityZone"] for s in made.all("AWS::EC2::Subnet").values()}
    assert len(zones) == 2


def test_the_made_network_has_the_endpoints_the_functions_need(made):
    endpoints = [endpoint["Properties"] for endpoint in made.all("AWS::EC2::VPCEndpoint").values()]
    kinds = {e["ServiceName"].removeprefix("com.amazonaws.eu-west-1."): e["VpcEndpointType"] for e in endpoints}
    assert kinds == {"sqs": "Interface", "email": "Interface", "s3": "Gateway"}
    for endpoint in endpoints:
        if endpoint["VpcEndpointType"] == "Interface":
            assert endpoint["PrivateDnsEnabled"] is True
            assert endpoint["SubnetIds"] == ["{Network/SubnetA}", "{Network/SubnetB}"]
    group = made.nested["Network"].resources["EndpointSecurityGroup"]["Properties"]
    (https,) = group["SecurityGroupIngress"]
    assert (https["FromPort"], https["ToPort"]) == (443, 443)
    assert https["CidrIp"] == made.nested["Network"].resources["Vpc"]["Properties"]["CidrBlock"]


def test_both_subnets_reach_s3_and_there_only_the_parked_mail(made):
    network = made.nested["Network"].resources
    endpoint = network["S3Endpoint"]["Properties"]
    assert endpoint["RouteTableIds"] == ["{Network/RouteTable}"]
    routes = [r["Properties"] for r in made.all("AWS::EC2::SubnetRouteTableAssociation").values()]
    assert {route["RouteTableId"] for route in routes} == {"{Network/RouteTable}"}
    assert sorted(route["SubnetId"] for route in routes) == sorted(f"{{{n}}}" for n in made.all("AWS::EC2::Subnet"))
    reached = {}
    for statement in endpoint["PolicyDocument"]["Statement"]:
        assert statement["Effect"] == "Allow"
        actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
        reached |= dict.fromkeys(actions, statement["Resource"])
    # What the roles allow, together.
    assert reached == {
        "s3:ListBucket": "{Parking/Bucket.Arn}",
        "s3:PutObject": "{Parking/Bucket.Arn}/parked/*",
        "s3:GetObject": "{Parking/Bucket.Arn}/parked/*",
        "s3:DeleteObject": "{Parking/Bucket.Arn}/parked/*",
    }


@pytest.mark.parametrize("choice", ["all made", "own VPC", "own VPC and security group"])
def test_only_the_functions_reach_the_cache(choice):
    stack = Stack(CHOICES[choice])
    cache = stack.nested["Cache"].resources
    assert cache["ReplicationGroup"]["Properties"]["SecurityGroupIds"] == ["{Cache/CacheSecurityGroup}"]
    (rule,) = cache["CacheSecurityGroup"]["Properties"]["SecurityGroupIngress"]
    assert (rule["FromPort"], rule["ToPort"]) == (6379, 6379)
    assert [rule["SourceSecurityGroupId"]] == vpc(stack, "SendFunction")["SecurityGroupIds"]
    assert "CidrIp" not in rule
    assert cache["SubnetGroup"]["Properties"]["SubnetIds"] == vpc(stack, "SendFunction")["SubnetIds"]


def user(**parameters):
    """The functions' user of the cache."""
    return Stack(parameters).nested["Cache"].resources["FunctionUser"]["Properties"]


def test_the_cache_lets_in_the_functions_user_alone(made):
    cache = made.nested["Cache"].resources
    assert cache["ReplicationGroup"]["Properties"]["UserGroupIds"] == ["{Cache/UserGroup}"]
    group = cache["UserGroup"]["Properties"]
    # Only a group of this engine turns the user named default off by itself.
    assert group["Engine"] == "valkey"
    assert group["UserIds"] == ["{Cache/FunctionUser}"]
    assert made.all("AWS::ElastiCache::User").keys() == {"Cache/FunctionUser"}
    assert user()["Engine"] == "valkey"
    assert user()["AuthenticationMode"] == {"Type": "iam"}
    assert user()["UserName"] == user()["UserId"]
    for name in (user()["UserId"], group["UserGroupId"]):
        assert re.fullmatch("[a-z](-?[a-z0-9])*", name), name
        assert len(name) <= 40


@pytest.mark.parametrize("budget", ["ses", "other_1-A"])
def test_the_functions_user_touches_its_budgets_keys_alone(budget):
    words = user(Budget=budget)["AccessString"].split()
    assert words[:3] == ["on", f"~sendslot:{{{budget}}}:*", "-@all"]
    assert all(re.fullmatch(r"\+[a-z|]+", word) for word in words[3:])
    keys = (ROOT / "functions/shared/schedule/src/keys.rs").read_text()
    assert 'format!("sendslot:{{{name}}}:")' in keys


def test_the_functions_user_may_do_what_the_scripts_do_and_nothing_else():
    commands = {"evalsha", "script|load", "info"}
    for path in (ROOT / "functions/shared/schedule/src/lua").glob("*.lua"):
        code = re.sub("--.*", "", path.read_text())
        calls = re.findall(r"\bp?call\(\s*(?:'([A-Z]+)')?", code)
        assert calls, path.name
        assert all(calls), f"{path.name} calls something that isn't written out"
        commands |= {name.lower() for name in calls}
    granted = user()["AccessString"].split()[3:]
    assert len(granted) == len(set(granted))
    assert set(granted) == {f"+{command}" for command in commands}


def test_a_secret_needs_the_redis_it_is_for():
    with pytest.raises(Refused, match="needs the RedisUrl"):
        Stack(REDIS_SECRET)


def test_where_a_secret_is_used_no_network_is_made():
    """A network that is made would need an endpoint for Secrets Manager."""
    for parameters in CHOICES.values():
        stack = Stack(parameters)
        assert not (stack.conditions["HasRedisSecret"] and stack.conditions["MakeNetwork"])


@pytest.mark.parametrize(("failover", "nodes"), [("true", 2), ("false", 1)])
def test_the_cache_is_encrypted_never_evicts_and_fails_over_by_choice(failover, nodes):
    stack = Stack({"CacheFailover": failover, "CacheNodeType": "cache.r7g.large", "CacheEngineVersion": "7.2"})
    cache = stack.nested["Cache"].resources
    group = cache["ReplicationGroup"]["Properties"]
    assert group["Engine"] == "valkey"
    assert group["TransitEncryptionEnabled"] is group["AtRestEncryptionEnabled"] is True
    assert (group["CacheNodeType"], group["EngineVersion"]) == ("cache.r7g.large", "7.2")
    assert group["NumCacheClusters"] == nodes
    assert group["AutomaticFailoverEnabled"] is group["MultiAZEnabled"] is (nodes == 2)
    assert group["CacheParameterGroupName"] == "{Cache/ParameterGroup}"
    assert cache["ParameterGroup"]["Properties"]["Properties"] == {"maxmemory-policy": "noeviction"}
    assert ("ReplicaEvictionsTooHighAlarm" in cache) == (nodes == 2)


def test_every_engine_version_has_its_parameter_family():
    for version in load("template.yaml")["Parameters"]["CacheEngineVersion"]["AllowedValues"]:
        cache = Stack({"CacheEngineVersion": version}).nested["Cache"].resources
        family = cache["ParameterGroup"]["Properties"]["CacheParameterGroupFamily"]
        assert family == f"valkey{version.split('.')[0]}"


@pytest.mark.parametrize(("parameters", "actions"), [({}, []), (TOPIC, list(TOPIC.values()))])
def test_all_alarms_go_to_the_topic_if_there_is_one(parameters, actions):
    alarms = Stack(parameters | {"TenantAlarms": "true"}).all("AWS::CloudWatch::Alarm")
    assert len(alarms) == 68
    pausing = set()
    for name, alarm in alarms.items():
        # Some reach auto-pause as well, but not when they are over.
        told = alarm["Properties"]["AlarmActions"]
        if told[:1] == ["{Reputation/Topic}"]:
            pausing.add(name)
            told = told[1:]
        assert told == actions, name
        assert alarm["Properties"]["OKActions"] == actions, name
    of = ("Reputation", "TransactionalTenant", "MarketingTenant")
    assert pausing == {f"{stack}/{kind}RateTooHighAlarm" for stack in of for kind in ("Bounce", "Complaint")}
