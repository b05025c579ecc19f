"""What the template is told."""

from __future__ import annotations

from tests.local.knobs import Knobs
from tests.local.stack import parameters


def test_knobs_that_were_not_given_are_left_to_the_template() -> None:
    told = parameters(Knobs.read({"TENANTS": "2"}), ["tenant-1", "tenant-2"], "redis://127.0.0.1:6379")
    assert told["SendMaximumConcurrency"] == "41"
    assert told["Tenants"] == "tenant-1=tenant-1,tenant-2=tenant-2"
    # The simulator says what the account may send, as SES does.
    assert not {"Burst", "Slice", "SendRate", "DailyQuota"} & told.keys()


def test_knobs_that_were_given_are_handed_on_as_they_were_written() -> None:
    told = parameters(Knobs.read({"BURST": "2", "SLICE": "0"}), ["tenant-1"], "redis://127.0.0.1:6379")
    assert (told["Burst"], told["Slice"]) == ("2", "0")
