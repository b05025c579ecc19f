"""`make invoke`: run one function from source, against real queues and Redis, with one event.

The stack is the one that `make up` left running, or a fresh one for the moment. `cargo lambda watch`
serves the Lambda runtime API, the function runs on it with the environment that the template gives
it, and `cargo lambda invoke` sends the event and prints the answer. The function's log lines are
shown after it.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import LocalError
from .knobs import Knobs
from .paths import OUT, ROOT, shown
from .processes import Processes, free_port
from .say import step
from .stack import Stack, build, running
from .tools import aws_environment, target_folder, tool

#: Which queues a function reads: the word in its stack outputs, and the output with its own name.
FUNCTIONS = {"reserve": ("Intake", "ReserveFunctionName"), "send": ("Send", "SendFunctionName")}


def invoke(function: str, event: str) -> int:
    """Invoke it; the exit code, which is that of `cargo lambda invoke`."""
    if function not in FUNCTIONS:
        raise LocalError(f"FUNCTION={function}: give one of {', '.join(FUNCTIONS)}")
    path = Path(event)
    if not path.is_file():
        samples = ", ".join(shown(found) for found in sorted((ROOT / "events" / function).glob("*.json")))
        raise LocalError(f"EVENT={event}: no such file; there are {samples or 'none'}")
    out = OUT / "invoke"
    with _a_stack(out) as stack, Processes(out / "logs") as processes:
        prepared = out / "event.json"
        prepared.write_text(json.dumps(addressed(json.loads(path.read_text()), function, stack.outputs)))
        port = free_port()
        with step(f"starting {function}"):
            _start(processes, function, port, stack)
        command = [tool("cargo"), "lambda", "invoke", "--invoke-address", "127.0.0.1"]
        command += ["--invoke-port", str(port), "--data-file", prepared]
        try:
            code = subprocess.run(command, env=aws_environment(), cwd=ROOT, check=False, timeout=60).returncode
        except subprocess.TimeoutExpired as error:
            raise LocalError(f"{function} did not answer within 60 s{processes.tail(function)}") from error
        sys.stdout.flush()
        print(processes.log(function).read_text().strip(), file=sys.stderr)
    return code


@contextlib.contextmanager
def _a_stack(out: Path) -> Iterator[Stack]:
    stack = Stack.load()
    if stack:
        with Processes(out / "logs") as processes:
            build(processes)
        yield stack
        return
    knobs = Knobs.read(os.environ)
    with running(knobs, out, knobs.tenant_names()) as fresh:
        yield fresh


def _start(processes: Processes, function: str, port: int, stack: Stack) -> None:
    configuration = stack.client("lambda").get_function_configuration(
        FunctionName=stack.outputs[FUNCTIONS[function][1]]
    )
    env = aws_environment(
        AWS_ENDPOINT_URL=stack.endpoint_url,
        AWS_ENDPOINT_URL_SESV2=stack.ses_endpoint,
        **configuration["Environment"]["Variables"],
    )
    api = [tool("cargo"), "lambda", "watch", "--only-lambda-apis"]
    processes.start("lambda apis", [*api, "--invoke-address", "127.0.0.1", "--invoke-port", str(port)], env, ROOT)

    def ready() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    processes.wait_until("lambda apis", ready, 60)
    # The one function that the APIs alone know has no name; these are the variables they ask for.
    env |= {"AWS_LAMBDA_RUNTIME_API": f"http://127.0.0.1:{port}/.rt", "AWS_LAMBDA_FUNCTION_NAME": "_"}
    env |= {"AWS_LAMBDA_FUNCTION_VERSION": "1", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}
    processes.start(function, [target_folder() / function], env, ROOT)


def addressed(event: dict[str, Any], function: str, outputs: dict[str, str]) -> dict[str, Any]:
    """The event with its records coming from the stack's queues.

    The functions tell a record's lane by its queue, and CloudFormation makes up the queues' names.
    """
    for record in event.get("Records", []):
        arn = record["eventSourceARN"]
        lane = "Priority" if "priority" in arn.lower() else "Bulk"
        queue = outputs[f"{lane}{FUNCTIONS[function][0]}QueueUrl"].rpartition("/")[2]
        record["eventSourceARN"] = f"{arn.rpartition(':')[0]}:{queue}"
    return event
