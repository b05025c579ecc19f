"""What `make tenant` runs: `sam deploy` of infra/tenant.yaml, told what the Sendslot stack says of itself.

python infra/tenant.py SAM

SAM is the command, and the variables STACK, NAME and PARAMETERS say which tenant, of which stack, with what else. A
parameter of the template is Name=value, and its value goes on to the next one's name: it may be JSON with spaces in it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("tenant.yaml")
NAME = re.compile(r"[A-Za-z0-9-]+")
#: A configuration set's name, which is made of both and a hyphen, has at most so many characters.
LONGEST = 64
#: What make itself says.
TOLD = ("Tenant", "Stack")


class TenantError(Exception):
    """Why a tenant can't be deployed."""


def check(stack: str, name: str) -> None:
    """Refuse a name that the tenant's stack couldn't have."""
    if not name:
        raise TenantError("which tenant? Give its name: make tenant NAME=acme")
    if not NAME.fullmatch(name):
        raise TenantError(
            f"NAME={name}: a tenant's stack is named after it, so give letters, digits and hyphens alone; for a name "
            "with an underscore deploy infra/tenant.yaml yourself, under a stack's name of your own"
        )
    if len(stack) + 1 + len(name) > LONGEST:
        raise TenantError(
            f"NAME={name}: the configuration set would be {stack}-{name}, which has more than the {LONGEST} characters "
            "that SES takes; give a shorter name"
        )


def given(text: str) -> dict[str, str]:
    """The parameters of PARAMETERS."""
    found = {}
    for one in re.split(r"\s+(?=[A-Z][A-Za-z]*=)", text.strip()) if text.strip() else []:
        name, equals, value = one.partition("=")
        if not equals or not name.isalpha():
            raise TenantError(f"PARAMETERS: {one!r} is no parameter; give Name=value, with a space before the next one")
        if name in TOLD:
            raise TenantError(f"PARAMETERS: {name} is told by NAME and STACK")
        # As with make deploy, "" is nothing.
        found[name] = "" if value == '""' else value
    return found


def told(stack: Mapping[str, Any], name: str) -> dict[str, str]:
    """The parameters that follow from the tenant's name and from what CloudFormation says of the Sendslot stack."""
    outputs = {one["OutputKey"]: one["OutputValue"] for one in stack.get("Outputs", [])}
    parameters = {one["ParameterKey"]: one.get("ParameterValue", "") for one in stack.get("Parameters", [])}
    if "ReputationTopicArn" not in outputs:
        raise TenantError(
            f"the stack {stack['StackName']} has no output ReputationTopicArn, so it is no Sendslot stack or an older "
            "one: give STACK=… or run make deploy first"
        )
    return {
        "Tenant": name,
        "Stack": stack["StackName"],
        "ReputationTopicArn": outputs["ReputationTopicArn"],
        "AlarmTopicArn": parameters.get("AlarmTopicArn", ""),
    }


def command(sam: str, parameters: Mapping[str, str]) -> list[str]:
    """`sam deploy`, each value in quotes as it reads them."""
    quoted = [
        '{}="{}"'.format(name, value.replace("\\", "\\\\").replace('"', '\\"')) for name, value in parameters.items()
    ]
    stack = f"{parameters['Stack']}-tenant-{parameters['Tenant']}"
    return [sam, "deploy", "--template-file", str(TEMPLATE), "--stack-name", stack, "--parameter-overrides", *quoted]


def described(name: str) -> Mapping[str, Any]:
    """What CloudFormation says of a stack."""
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        [stack] = boto3.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        # It says so of what isn't there.
        raise TenantError(f"STACK={name}: {error.response['Error']['Message']}") from error
    except (BotoCoreError, ValueError) as error:
        raise TenantError(f"CloudFormation can't be asked for the stack {name}: {error}") from error
    return stack


def main() -> None:
    """Deploy the tenant."""
    [sam] = sys.argv[1:]
    stack, name = os.environ.get("STACK", ""), os.environ.get("NAME", "")
    try:
        check(stack, name)
        parameters = given(os.environ.get("PARAMETERS", ""))
        parameters = told(described(stack), name) | parameters
    except TenantError as error:
        sys.exit(f"error: {error}")
    os.execv(sam, command(sam, parameters))


if __name__ == "__main__":
    main()
