"""What SES tells reaches feedback, and what CloudWatch tells auto-pause; nobody else's word does."""

import pytest
from cloudformation import Stack
from conftest import CHOICES


def feedback(stack, name):
    return stack.nested["Feedback"].resources[name]["Properties"]


def test_the_rule_alone_may_put_into_its_queues(made):
    _, statement = feedback(made, "Access")["PolicyDocument"]["Statement"]
    assert statement["Effect"] == "Allow"
    assert statement["Principal"] == {"Service": "events.amazonaws.com"}
    assert statement["Action"] == "sqs:SendMessage"
    assert statement["Condition"] == {"ArnEquals": {"aws:SourceArn": "{Feedback/Rule.Arn}"}}


def test_the_rule_takes_what_ses_tells_of_sent_mail_and_loses_none_of_it(made):
    rule = feedback(made, "Rule")
    # On the default bus, the only one that SES knows, and from the start.
    assert rule.keys() == {"Description", "EventPattern", "Targets"}
    assert rule["EventPattern"]["source"] == ["aws.ses"]
    assert not [kind for kind in rule["EventPattern"]["detail-type"] if kind in ("Email Opened", "Email Clicked")]
    (target,) = rule["Targets"]
    assert target["Arn"] == "{Feedback/FeedbackQueue.Arn}"
    assert target["DeadLetterConfig"] == {"Arn": "{Feedback/FeedbackDlq.Arn}"}
    # What is put in is the event as it came.
    assert not target.keys() & {"Input", "InputPath", "InputTransformer"}


def test_no_other_rule_is_made(stack):
    assert stack.all("AWS::Events::Rule").keys() == {"Feedback/Rule"}


def test_alarms_of_this_account_reach_auto_pause_over_tls(made):
    (policy,) = (p["Properties"] for p in made.all("AWS::SNS::TopicPolicy").values())
    assert policy["Topics"] == ["{Reputation/Topic}"]
    plain, alarms = policy["PolicyDocument"]["Statement"]
    assert (plain["Effect"], plain["Principal"], plain["Action"]) == ("Deny", "*", "sns:Publish")
    assert plain["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert (alarms["Effect"], alarms["Action"]) == ("Allow", "sns:Publish")
    assert alarms["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert alarms["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "123456789012"},
        "ArnLike": {"aws:SourceArn": "arn:aws:cloudwatch:eu-west-1:123456789012:alarm:*"},
    }
    assert {plain["Resource"], alarms["Resource"]} == {"{Reputation/Topic}"}


def test_there_is_one_topic_and_it_has_no_key_that_cloudwatch_could_not_use(stack):
    ((path, topic),) = stack.all("AWS::SNS::Topic").items()
    assert path == "Reputation/Topic"
    assert "KmsMasterKeyId" not in topic.get("Properties", {})


@pytest.mark.parametrize("choice", CHOICES)
def test_the_accounts_alarms_have_no_dimension(choice):
    alarms = Stack(CHOICES[choice]).nested["Reputation"].all("AWS::CloudWatch::Alarm").values()
    assert len(alarms) == 4
    for alarm in alarms:
        assert "Dimensions" not in alarm["Properties"]
        assert alarm["Properties"]["TreatMissingData"] == "notBreaching"


def test_pauses_are_watched_of_everyone_who_pauses(made):
    services = {
        name: made.resources[name]["Properties"]["Parameters"]["Service"]
        for name, one in made.resources.items()
        if one["Type"] == "AWS::CloudFormation::Stack" and one["Properties"]["TemplateURL"] == "infra/pauses.yaml"
    }
    assert services == {"ControlPauses": "control", "FeedbackPauses": "feedback", "AutoPausePauses": "auto-pause"}
