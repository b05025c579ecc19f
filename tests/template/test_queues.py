"""No queue loses mail."""

import json

import pytest
from cloudformation import Stack, load
from conftest import PRODUCERS

LANES = {"PriorityLane", "BulkLane"}
# Of what SES tells, not of mail.
FEEDBACK = {"Feedback/FeedbackQueue", "Feedback/FeedbackDlq"}
INTAKE = {f"{lane}/IntakeQueue" for lane in LANES}


def test_each_lane_has_its_queues_and_feedback_has(made):
    names = ["IntakeQueue", "IntakeDlq", "SendQueue", "SendDlq"]
    assert made.all("AWS::SQS::Queue").keys() == {f"{lane}/{name}" for lane in LANES for name in names} | FEEDBACK
    lanes = {name: made.resources[name]["Properties"]["Parameters"]["Lane"] for name in LANES}
    assert lanes == {"PriorityLane": "priority", "BulkLane": "bulk"}


def test_queues_are_standard_encrypted_and_keep_everything_for_14_days(made):
    for name, queue in made.all("AWS::SQS::Queue").items():
        properties = queue["Properties"]
        assert properties["SqsManagedSseEnabled"] is True, name
        assert properties["MessageRetentionPeriod"] == 14 * 24 * 3600, name
        assert properties["MaximumMessageSize"] == 1024 * 1024, name
        # Delays are set per message, which FIFO queues don't know and a queue's own delay would add to.
        assert not properties.keys() & {"FifoQueue", "DelaySeconds"}, name


def test_queues_with_mail_outlive_the_stack_and_those_with_news_of_it_dont(made):
    for name, queue in made.all("AWS::SQS::Queue").items():
        assert queue["DeletionPolicy"] == ("Delete" if name in FEEDBACK else "RetainExceptOnCreate"), name
        assert queue["UpdateReplacePolicy"] == ("Delete" if name in FEEDBACK else "Retain"), name


def test_every_stored_thing_has_its_deletion_policy(made):
    for kind in ("AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::Logs::LogGroup", "AWS::ElastiCache::ReplicationGroup"):
        for name, resource in made.all(kind).items():
            assert {"DeletionPolicy", "UpdateReplacePolicy"} <= resource.keys(), name


@pytest.mark.parametrize("receives", ["5", "1000"])
def test_every_queue_has_its_own_dead_letter_queue(receives):
    queues = Stack({"MaxReceiveCount": receives}).all("AWS::SQS::Queue")
    for name, queue in queues.items():
        redrive = queue["Properties"].get("RedrivePolicy")
        if name.endswith("Dlq"):
            assert redrive is None, name
        else:
            dlq = name.replace("Queue", "Dlq")
            assert redrive == {"deadLetterTargetArn": f"{{{dlq}.Arn}}", "maxReceiveCount": receives}
            assert dlq in queues


def test_five_receives_are_the_least():
    for path in ("template.yaml", "infra/lane.yaml"):
        assert load(path)["Parameters"]["MaxReceiveCount"]["MinValue"] == 5


@pytest.mark.parametrize("given", [{}, PRODUCERS])
def test_every_queue_refuses_plain_text_connections(given):
    made, covered = Stack(given), []
    open_to_others = FEEDBACK | (INTAKE if given else set())
    for policy in made.all("AWS::SQS::QueuePolicy").values():
        statement, *others = policy["Properties"]["PolicyDocument"]["Statement"]
        assert bool(others) == (set(policy["Properties"]["Queues"]) <= {f"{{{name}}}" for name in open_to_others})
        assert (statement["Effect"], statement["Action"], statement["Resource"]) == ("Deny", "sqs:*", "*")
        assert statement["Principal"] == "*"
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        covered += policy["Properties"]["Queues"]
    # Once: a queue has one policy, and a second one would replace it.
    assert sorted(covered) == sorted(f"{{{name}}}" for name in made.all("AWS::SQS::Queue"))


@pytest.mark.parametrize("producers", ["", PRODUCERS["Producers"], "arn:aws:iam::210987654321:root"])
def test_exactly_the_named_may_put_requests_and_on_the_intake_queues_alone(producers):
    allowed = {}
    for policy in Stack({"Producers": producers}).all("AWS::SQS::QueuePolicy").values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            if statement["Effect"] == "Allow":
                for queue in policy["Properties"]["Queues"]:
                    allowed.setdefault(queue, []).append(statement)
    assert {queue for queue in allowed if "Feedback" not in queue} == (
        {f"{{{name}}}" for name in INTAKE} if producers else set()
    )
    for queue in INTAKE if producers else ():
        assert allowed[f"{{{queue}}}"] == [
            {
                "Sid": "Producers",
                "Effect": "Allow",
                "Principal": {"AWS": producers.split(",")},
                "Action": ["sqs:SendMessage", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"],
                "Resource": "*",
            }
        ]


def test_the_intake_queues_policy_is_made_after_the_one_that_may_have_been_theirs():
    assert load("infra/lane.yaml")["Resources"]["Intake"]["DependsOn"] == "TlsOnly"


def test_as_many_producers_as_the_parameter_takes_fit_into_a_queues_policy():
    """SQS takes 50 principals and 8,192 bytes."""
    most = load("template.yaml")["Parameters"]["Producers"]["MaxLength"]
    shortest = "arn:aws:iam::123456789012:root"
    producers = ",".join([shortest] * ((most + 1) // (len(shortest) + 1)))
    policy = Stack({"Producers": producers}).all("AWS::SQS::QueuePolicy")["BulkLane/Intake"]["Properties"]
    statements = policy["PolicyDocument"]["Statement"]
    assert len(statements[1]["Principal"]["AWS"]) + 1 <= 50  # and "*"
    assert len(json.dumps(policy["PolicyDocument"])) <= 8192
