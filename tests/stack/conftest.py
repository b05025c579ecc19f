"""One stack for the whole session, and what the tests do with it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator

import pytest

from tests.local.errors import LocalError
from tests.local.knobs import Knobs
from tests.local.paths import OUT
from tests.local.processes import end_cleanly_on_signals
from tests.local.stack import Stack, running
from tests.stack.desk import Desk

# Fast enough to be done soon, and slow enough for two cores that also compile.
KNOBS = {"RATE": "50", "HEADROOM": "0.9", "GUARD": "0.95", "RESERVE": "5", "TENANTS": "2"}


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    """The deployed stack, ended after the last test."""
    if os.environ.get("STACK") == "up":
        left_running = Stack.load()
        command = " ".join(["make up", *(f"{name}={value}" for name, value in KNOBS.items())])
        if not left_running:
            raise LocalError(f"STACK=up, but no stack is up: run `{command}` first")
        limit = left_running.ses().get_account()["SendQuota"]["MaxSendRate"]
        if limit != float(KNOBS["RATE"]):
            raise LocalError(f"STACK=up, but its rate is {limit:g}/s: run `make down` and `{command}` first")
        yield left_running
        return
    end_cleanly_on_signals()
    given = {name: os.environ[name] for name in ("AWS_ENDPOINT_URL", "LISTEN_HOST") if name in os.environ}
    knobs = Knobs.read(KNOBS | given)
    with running(knobs, OUT / "test", knobs.tenant_names()) as fresh:
        yield fresh


@pytest.fixture(scope="session")
def desk(stack: Stack) -> Desk:
    """Hands mail in and looks what arrived."""
    return Desk(stack)


_numbers = itertools.count()


@pytest.fixture
def send_id() -> Callable[[], str]:
    """Makes send ids that no other test or run uses."""
    prefix = f"test-{os.getpid()}"
    return lambda: f"{prefix}-{next(_numbers)}"
