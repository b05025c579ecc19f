"""The times fit together: those of the template, of AWS and of the functions' own constants.

No mail is in the hands of two workers, none is forgotten while it may still come, none is deleted before it expires.
"""

import re

import pytest
from cloudformation import ROOT, Refused, Stack, load

PARAMETERS = load("template.yaml")["Parameters"]
RESERVE_TIMEOUTS = PARAMETERS["ReserveTimeoutSeconds"]["AllowedValues"]
SEND_TIMEOUTS = PARAMETERS["SendTimeoutSeconds"]["AllowedValues"]
DAY = 86_400
# What AWS sets: the longest delay of a message, and the longest that a queue keeps one.
SQS_LONGEST_DELAY = 900
SQS_LONGEST_RETENTION = 14 * DAY
# The most that MaxMessageAgeSeconds takes, as the first test proves.
OLDEST = 1_209_600


def seconds(name, folder):
    """The constant `name` of the Rust sources below functions/`folder`, in seconds. It must be there exactly once."""
    form = rf"\bconst {name}: \w+ = (?:\w+::from_(secs|millis)\()?([\d_* ]+)\)?;"
    sources = (path.read_text() for path in sorted((ROOT / "functions" / folder / "src").rglob("*.rs")))
    found = [match for text in sources for match in re.findall(form, text)]
    assert len(found) == 1, f"found {name} {len(found)} times in functions/{folder}/src"
    ((unit, product),) = found
    value = 1
    for factor in product.split("*"):
        value *= int(factor.replace("_", ""))
    return value / 1000 if unit == "millis" else value


def test_the_oldest_message_is_as_old_as_the_parameter_allows():
    assert Stack({"MaxMessageAgeSeconds": str(OLDEST)})
    with pytest.raises(Refused):
        Stack({"MaxMessageAgeSeconds": str(OLDEST + 1)})
    assert seconds("LONGEST_AGE", "shared/runtime") == OLDEST


@pytest.mark.parametrize("reserve", RESERVE_TIMEOUTS)
@pytest.mark.parametrize("send", SEND_TIMEOUTS)
def test_visibility_exceeds_lease_exceeds_timeout(reserve, send):
    stack = Stack({"ReserveTimeoutSeconds": reserve, "SendTimeoutSeconds": send})
    queues = stack.all("AWS::SQS::Queue")
    for function, timeout in (("ReserveFunction", reserve), ("SendFunction", send)):
        properties = stack.resources[function]["Properties"]
        assert int(properties["Timeout"]) == timeout
        for event in properties["Events"].values():
            queue = queues[event["Properties"]["Queue"].strip("{}").removesuffix(".Arn")]
            visibility = int(queue["Properties"]["VisibilityTimeout"])
            assert visibility == 6 * timeout + event["Properties"]["MaximumBatchingWindowInSeconds"]
            if function == "SendFunction":
                assert timeout < properties["Environment"]["Variables"]["SENDSLOT_LEASE_SECONDS"] < visibility


def test_an_event_of_ses_is_hidden_longer_than_its_batch_takes_retries_included(made):
    function = made.resources["FeedbackFunction"]["Properties"]
    (event,) = function["Events"].values()
    queue = made.all("AWS::SQS::Queue")[event["Properties"]["Queue"].strip("{}").removesuffix(".Arn")]["Properties"]
    window = event["Properties"]["MaximumBatchingWindowInSeconds"]
    assert int(queue["VisibilityTimeout"]) == 6 * function["Timeout"] + window
    # A pause is to come within seconds.
    assert window <= 1


def test_every_timeout_on_offer_has_its_timing():
    timing = load("template.yaml")["Mappings"]["Timing"]
    assert {int(timeout) for timeout in timing} == {*RESERVE_TIMEOUTS, *SEND_TIMEOUTS}


def test_send_can_start_a_send_in_every_timeout_on_offer():
    """It keeps back the time of one send and of closing its batch."""
    one, closing = seconds("SEND_TIMEOUT", "send"), seconds("CLOSING", "send")
    assert min(SEND_TIMEOUTS) > one + closing
    said = PARAMETERS["SendTimeoutSeconds"]["Description"]
    assert f"one may take {one} s, and {closing} s are kept" in said


def test_the_default_timeout_lets_a_batch_wait_for_its_last_slot():
    slowest = sum(seconds(name, "send") for name in ("LONGEST_WAIT", "SEND_TIMEOUT", "CLOSING"))
    assert slowest < PARAMETERS["SendTimeoutSeconds"]["Default"]


def test_a_claim_is_over_when_its_message_surfaces_even_if_it_was_made_at_the_end():
    for timeout in SEND_TIMEOUTS:
        timing = load("template.yaml")["Mappings"]["Timing"][str(timeout)]
        assert timeout + timing["Lease"] < timing["Visibility"]


def test_waiting_for_confirmation_is_one_hop():
    assert seconds("MAX_DELAY_SECONDS", "shared/runtime") == SQS_LONGEST_DELAY
    assert Stack({"ConfirmationSeconds": str(SQS_LONGEST_DELAY)})
    with pytest.raises(Refused):
        Stack({"ConfirmationSeconds": str(SQS_LONGEST_DELAY + 1)})


def test_no_mail_is_booked_further_ahead_than_its_delay_reaches():
    assert Stack({"HorizonSeconds": str(SQS_LONGEST_DELAY)})
    with pytest.raises(Refused):
        Stack({"HorizonSeconds": str(SQS_LONGEST_DELAY + 1)})


def test_no_queue_drops_a_message_before_it_expires(made):
    """A message that waits or is put off is sent anew, which starts its retention anew."""
    for name, queue in made.all("AWS::SQS::Queue").items():
        retention = queue["Properties"]["MessageRetentionPeriod"]
        assert OLDEST <= retention <= SQS_LONGEST_RETENTION, name


def test_marks_outlive_the_last_message_of_their_send_id():
    """By more than a message may still be in somebody's hands when it expires, or be hidden or delayed."""
    longest_visibility = max(timing["Visibility"] for timing in load("template.yaml")["Mappings"]["Timing"].values())
    assert seconds("MEMORY_MARGIN", "send") > longest_visibility + SQS_LONGEST_DELAY > 0


def test_parked_mail_is_not_deleted_before_it_and_its_mark_expire(made):
    (bucket,) = made.all("AWS::S3::Bucket").values()
    (days,) = (r["ExpirationInDays"] for r in bucket["Properties"]["LifecycleConfiguration"]["Rules"] if "Prefix" in r)
    assert days * DAY > OLDEST + seconds("MEMORY_MARGIN", "send")
