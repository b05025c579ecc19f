"""`make invoke`: run one function from source, against real queues and Redis, with one event.

The stack is the one that `make up` left running, or a fresh one for the moment. `cargo lambda watch`
serves the Lambda runtime API, the function runs on it with the environment that the template gives
it, and `cargo lambda invoke` sends the event and prints the answer. The function's log lines are
shown after it.

An event of CloudFormation says where it waits for an answer. Here that is a small server of our own, which prints
the answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from .errors import LocalError
from .knobs import Knobs
from .paths import OUT, ROOT, shown
from .processes import Processes, free_port
from .runtime_api import with_deadline
from .say import step
from .stack import Stack, build, running
from .tools import aws_environment, target_folder, tool

#: The stack's output with a function's name.
FUNCTIONS = {
    "reserve": "ReserveFunctionName",
    "send": "SendFunctionName",
    "control": "ControlFunctionName",
    "quota-refresh": "QuotaRefreshFunctionName",
}
#: Which queues a function reads: the word in the stack's outputs.
QUEUES = {"reserve": "Intake", "send": "Send"}
#: More than the longest timeout of a function.
PATIENCE_SECONDS = 70


def invoke(function: str, event: str) -> int:
    """Invoke it; the exit code, which is that of `cargo lambda invoke`."""
    if function not in FUNCTIONS:
        raise LocalError(f"FUNCTION={function}: give one of {', '.join(FUNCTIONS)}")
    path = Path(event)
    if not path.is_file():
        samples = ", ".join(shown(found) for found in sorted((ROOT / "events" / function).glob("*.json")))
        raise LocalError(f"EVENT={event}: no such file; there are {samples or 'none'}")
    out = OUT / "invoke"
    with contextlib.ExitStack() as end:
        stack = end.enter_context(_a_stack(out))
        configuration = stack.client("lambda").get_function_configuration(
            FunctionName=stack.outputs[FUNCTIONS[function]]
        )
        port = free_port()
        waits_at = end.enter_context(_cloudformation())
        api = end.enter_context(with_deadline(f"http://127.0.0.1:{port}/.rt", configuration["Timeout"]))
        processes = end.enter_context(Processes(out / "logs"))
        prepared = out / "event.json"
        prepared.write_text(json.dumps(addressed(json.loads(path.read_text()), function, stack.outputs, waits_at)))
        with step(f"starting {function}"):
            _start(processes, function, port, api, _environment(stack, configuration))
        command = [tool("cargo"), "lambda", "invoke", "--invoke-address", "127.0.0.1"]
        command += ["--invoke-port", str(port), "--data-file", prepared]
        try:
            run = subprocess.run(command, env=aws_environment(), cwd=ROOT, check=False, timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired as error:
            message = f"{function} did not answer within {PATIENCE_SECONDS} s{processes.tail(function)}"
            raise LocalError(message) from error
        code = run.returncode
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


def _environment(stack: Stack, configuration: dict[str, Any]) -> dict[str, str]:
    variables = configuration["Environment"]["Variables"]
    endpoints = {"AWS_ENDPOINT_URL": stack.endpoint_url, "AWS_ENDPOINT_URL_SESV2": stack.ses_endpoint}
    return aws_environment(**(endpoints | variables))


def _start(processes: Processes, function: str, port: int, api: str, env: dict[str, str]) -> None:
    watch = [tool("cargo"), "lambda", "watch", "--only-lambda-apis"]
    processes.start("lambda apis", [*watch, "--invoke-address", "127.0.0.1", "--invoke-port", str(port)], env, ROOT)

    def ready() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    processes.wait_until("lambda apis", ready, 60)
    # The one function that the APIs alone know has no name; these are the variables they ask for.
    env = env | {"AWS_LAMBDA_RUNTIME_API": api, "AWS_LAMBDA_FUNCTION_NAME": "_"}
    env |= {"AWS_LAMBDA_FUNCTION_VERSION": "1", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "512"}
    processes.start(function, [target_folder() / function], env, ROOT)


@contextlib.contextmanager
def _cloudformation() -> Iterator[str]:
    """A server that stands where CloudFormation waits for an answer, and prints it; its URL."""

    class Wait(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.end_headers()
            print(f"CloudFormation is told: {body.decode(errors='replace')}", flush=True)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Wait) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()


def addressed(event: dict[str, Any], function: str, outputs: dict[str, str], waits_at: str) -> dict[str, Any]:
    """The event with its records coming from the stack's queues, and CloudFormation waiting at `waits_at`.

    The functions tell a record's lane by its queue, and CloudFormation makes up the queues' names.
    """
    for record in event.get("Records", []):
        arn = record["eventSourceARN"]
        lane = "Priority" if "priority" in arn.lower() else "Bulk"
        queue = outputs[f"{lane}{QUEUES[function]}QueueUrl"].rpartition("/")[2]
        record["eventSourceARN"] = f"{arn.rpartition(':')[0]}:{queue}"
    if "ResponseURL" in event:
        event["ResponseURL"] = waits_at
    return event
