"""What the emulator logs when a function can't start."""

from __future__ import annotations

from tests.local.servers import failed_start

WORKS = "2026-11-30 18:36:19 INFO [lambda_runtime] Lambda provided-runtime environment spawned for send (cold start)\n"
FAILS = (
    "2026-11-30 18:59:31 ERROR [lambda] Warm provided-runtime execution error for sendslot-ReserveFunction-1: "
    'bootstrap exited during init with code 1: Error: SettingsError([Problem { variable: "SENDSLOT_LIMIT" }])\n'
)


def test_a_function_that_exits_at_its_start_is_found_with_its_error() -> None:
    assert failed_start(WORKS) is None
    expected = (
        "sendslot-ReserveFunction-1 stopped at its start with exit code 1: "
        'Error: SettingsError([Problem { variable: "SENDSLOT_LIMIT" }])'
    )
    assert failed_start(WORKS + FAILS + WORKS) == expected
    assert failed_start(FAILS + "more of it\n" + FAILS) == f"{expected}\nmore of it"


def test_an_error_without_words_or_still_being_written() -> None:
    line = FAILS.partition(": Error")[0]
    assert failed_start(f"{line}\n{WORKS}") == "sendslot-ReserveFunction-1 stopped at its start with exit code 1"
    assert failed_start(FAILS[:-20]) is None
