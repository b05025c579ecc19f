"""The commands we call, and the environment they run in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .errors import LocalError
from .paths import ROOT, SAM_VENV, STACK_VENV

# The region that samconfig.toml names for the local stack.
REGION = "us-east-1"

# Whatever profile, region or endpoint the person uses for real work must not leak in here.
_FOREIGN = ("AWS_", "SENDSLOT_", "SAM_CLI_", "REDIS_")


def target_folder() -> Path:
    """Where cargo puts what it builds."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug"


def environment(**more: str) -> dict[str, str]:
    """Our environment without foreign AWS settings, with our tools first in PATH and `more` set."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    env["PATH"] = os.pathsep.join([str(STACK_VENV / "bin"), str(SAM_VENV / "bin"), env.get("PATH", "")])
    env["SAM_CLI_TELEMETRY"] = "0"
    return env | more


def aws_environment(**more: str) -> dict[str, str]:
    """`environment` with credentials that open nothing, for the emulator and those who call it."""
    return environment(
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_REGION=REGION,
        AWS_DEFAULT_REGION=REGION,
        AWS_EC2_METADATA_DISABLED="true",
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        **more,
    )


def tool(name: str) -> Path:
    """The full path of a command, ours before the machine's."""
    found = shutil.which(name, path=environment()["PATH"])
    if not found:
        raise LocalError(
            f"{name} is not there: run `make setup`" if name != "cargo" else "cargo is not there: install Rust"
        )
    return Path(found)
