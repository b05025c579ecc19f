"""The local stack: Valkey, an AWS emulator, the SES simulator, and the template deployed to it.

`sam deploy` runs as it does for AWS, on the same template, with parameters that point the functions
at loopback. The emulator runs the native binaries as child
processes that inherit its environment, which is how AWS_ENDPOINT_URL_SESV2 reaches them.
"""

from __future__ import annotations

import contextlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import boto3
import valkey
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .errors import LocalError
from .knobs import Knobs
from .packaging import CARGO_BUILD, package
from .paths import OUT, ROOT, STACK_FILE, shown
from .processes import Processes, end_groups, group_lives
from .say import console, step
from .servers import answers, start_emulator, start_simulator, start_valkey
from .tools import REGION, aws_environment, environment, tool

STACK_NAME = "sendslot"

# More than the template's default: the emulator is one process, takes about 80 ms for a batch, and its queues are
# strictly first in, first out. With 5 it hands on some 550 mails a second, and whatever comes behind one tenant's burst
# stands for seconds before `reserve` sees any of it. With 20 it hands on some 1,200, and more doesn't help.
RESERVE_CONCURRENCY = 20


@dataclass
class Stack:
    """A running stack, as `out/stack.json` describes it."""

    endpoint_url: str
    region: str
    stack_name: str
    outputs: dict[str, str]
    redis_url: str
    ses_endpoint: str
    #: The simulator's record of every arrival; null if the SES endpoint is not ours.
    record: str | None
    #: Servers by name; each leads a process group of its own.
    pids: dict[str, int] = field(default_factory=dict)

    def client(self, service: str, **options: Any) -> Any:
        """An ordinary AWS SDK client for this stack's endpoint."""
        return client(service, self.endpoint_url, **options)

    def ses(self) -> Any:
        """An ordinary SESv2 client for the simulator, or for what stands in its place."""
        return client("sesv2", self.ses_endpoint)

    def redis(self) -> valkey.Valkey:
        """A connection to the stack's Valkey."""
        return valkey.Valkey.from_url(self.redis_url)

    def refresh(self) -> None:
        """Have the budget follow the account now, and not within a minute. Needed after Redis was emptied."""
        name = self.outputs["QuotaRefreshFunctionName"]
        try:
            answer = self.client("lambda", read_timeout=90).invoke(FunctionName=name, Payload=b"{}")
            told = json.loads(answer["Payload"].read() or b"null")
        except (ClientError, BotoCoreError, ValueError) as error:
            raise LocalError(f"{name} can't be invoked: {error}") from error
        if not isinstance(told, dict) or not told.get("refreshed"):
            raise LocalError(f"the budget isn't refreshed: {name} answers {json.dumps(told)}")

    def has_budget(self) -> bool:
        """Whether Redis holds a budget: without one nothing is booked or sent."""
        with self.redis() as redis:
            return any(redis.hexists(key, "limit") for key in redis.scan_iter("sendslot:{*}:budget"))

    def alive(self) -> bool:
        """Whether all its servers still run."""
        return all(group_lives(pid) for pid in self.pids.values())

    def save(self) -> None:
        """Write `out/stack.json`."""
        STACK_FILE.parent.mkdir(parents=True, exist_ok=True)
        STACK_FILE.write_text(json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls) -> Stack | None:
        """The stack `make up` left running, if there is one and it answers."""
        if not STACK_FILE.exists():
            return None
        stack = cls(**json.loads(STACK_FILE.read_text()))
        return stack if answers(stack.endpoint_url) else None


def client(service: str, endpoint_url: str, **options: Any) -> Any:
    """An SDK client with credentials that open nothing."""
    return boto3.client(
        service,
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"mode": "standard"}, **options),
    )


@contextlib.contextmanager
def running(knobs: Knobs, out: Path, tenants: list[str], more: Mapping[str, str] | None = None) -> Iterator[Stack]:
    """A fresh stack with `knobs` and `more` parameters, ended on leaving. Logs and the record go under `out`."""
    with Processes(out / "logs") as processes:
        stack = start(processes, knobs, out, tenants, more)
        try:
            yield stack
        finally:
            if knobs.aws_endpoint_url:
                _delete(stack)


def up(knobs: Knobs) -> Stack:
    """Start a stack and leave it running."""
    if Stack.load():
        raise LocalError(f"a stack is up already, see {shown(STACK_FILE)}: run `make down` first")
    with Processes(OUT / "up" / "logs", watched=False) as processes:
        stack = start(processes, knobs, OUT / "up", knobs.tenant_names())
        stack.save()
        processes.leave_running()
    return stack


def down() -> bool:
    """End what `make up` started; whether there was anything."""
    if not STACK_FILE.exists():
        return False
    pids = json.loads(STACK_FILE.read_text())["pids"]
    end_groups([pid for name, pid in pids.items() if _is_ours(name, pid)])
    STACK_FILE.unlink()
    return True


def _is_ours(name: str, pid: int) -> bool:
    """Whether the pid still is the server we started: after a reboot it may be anybody's."""
    command = Path(f"/proc/{pid}/cmdline")
    if not Path("/proc/self").exists():
        return True
    marks = {"valkey": b"valkey-server", "emulator": b"tests.local.emulator", "simulator": b"ses-simulator"}
    return command.exists() and marks[name] in command.read_bytes()


def start(
    processes: Processes,
    knobs: Knobs,
    out: Path,
    tenants: list[str],
    more: Mapping[str, str] | None = None,
    emulator: Mapping[str, str] | None = None,
) -> Stack:
    """Start the servers, build and deploy, with `more` parameters of the template and variables of the emulator."""
    build(processes)
    with step("starting valkey"):
        redis_url = start_valkey(processes, knobs.listen_host, out)
    record = None
    ses_endpoint = knobs.ses_endpoint
    if not ses_endpoint:
        record = out / "arrivals.jsonl"
        with step("starting the SES simulator"):
            ses_endpoint = start_simulator(processes, knobs, record)
    endpoint_url = knobs.aws_endpoint_url
    if endpoint_url:
        if not answers(endpoint_url):
            raise LocalError(f"AWS_ENDPOINT_URL={endpoint_url}: nothing answers there")
    else:
        with step("starting the AWS emulator"):
            endpoint_url = start_emulator(
                processes, knobs.listen_host, redis_url, ses_endpoint, out, **(emulator or {})
            )
    _create_configuration_sets(ses_endpoint, tenants)
    with step("deploying template.yaml with sam"):
        overrides = parameters(knobs, tenants, redis_url) | (more or {})
        _deploy(processes, package(out / "package"), overrides, endpoint_url)
        outputs = _outputs(endpoint_url)
        # An emulator of our own inherits where SES is; one that already runs must be told.
        mend_types(endpoint_url, outputs, {"AWS_ENDPOINT_URL_SESV2": ses_endpoint} if knobs.aws_endpoint_url else {})
    stack = Stack(
        endpoint_url=endpoint_url,
        region=REGION,
        stack_name=STACK_NAME,
        outputs=outputs,
        redis_url=redis_url,
        ses_endpoint=ses_endpoint,
        record=str(record) if record else None,
        pids=processes.pids(),
    )
    # The deployment has refreshed the budget. If that failed, only a log says so; and where an emulator already ran,
    # the functions asked whatever it takes for SES.
    if knobs.aws_endpoint_url or not stack.has_budget():
        with step("refreshing the budget"):
            stack.refresh()
    return stack


def build(processes: Processes) -> None:
    """Compile the functions and the simulator with cargo, which shows its progress."""
    console.print("compiling (the first time takes some minutes)")
    processes.run("cargo build", [tool("cargo"), *CARGO_BUILD], environment(), ROOT, show=True)


def _architecture() -> str:
    """Lambda's name for this machine's processor: the binaries run here."""
    return "arm64" if platform.machine() in ("arm64", "aarch64") else "x86_64"


def _create_configuration_sets(ses_endpoint: str, names: list[str]) -> None:
    ses = client("sesv2", ses_endpoint)
    for name in names:
        try:
            ses.create_configuration_set(ConfigurationSetName=name)
        except ClientError as error:
            if error.response["Error"]["Code"] != "AlreadyExistsException":
                raise LocalError(f"{ses_endpoint} refused configuration set {name}: {error}") from error


def parameters(knobs: Knobs, tenants: list[str], redis_url: str) -> dict[str, str]:
    """The template's parameters. Those of knobs that were not given are left to it.

    No streams: a run has the tenants of its knobs and no others. No dashboard: the emulator knows no saved queries of
    logs. No SendRate: the budget comes from what the simulator says the account may send, and that is RATE.
    """
    given = {
        "Architecture": _architecture(),
        "RedisUrl": redis_url,
        "Headroom": f"{knobs.headroom:g}",
        "Guard": f"{knobs.guard:g}",
        "PriorityReserve": knobs.reserve.text,
        "HorizonSeconds": str(knobs.horizon_seconds),
        "ReserveMaximumConcurrency": str(RESERVE_CONCURRENCY),
        "SendMaximumConcurrency": str(knobs.send_concurrency),
        "Tenants": ",".join(f"{name}={name}" for name in tenants),
        "SlotHolders": "arn:aws:iam::000000000000:root",
        "Streams": "false",
        "Dashboard": "false",
    }
    if knobs.burst:
        given["Burst"] = knobs.burst
    if knobs.slice:
        given["Slice"] = knobs.slice
    return given


def _deploy(processes: Processes, template: Path, overrides: Mapping[str, str], endpoint_url: str) -> None:
    environ = aws_environment(AWS_ENDPOINT_URL=endpoint_url)
    processes.run("sam deploy", deploy_command(template, overrides), environ, ROOT)


def deploy_command(template: Path, overrides: Mapping[str, str]) -> list[str | Path]:
    """What deploys a packaged template with these parameters to a local stack."""
    return [
        tool("sam"), "deploy", "--config-file", ROOT / "samconfig.toml", "--config-env", "local",
        "--template-file", template, "--stack-name", STACK_NAME, "--region", REGION,
        # An empty one is left to the template, where it is the default: sam can't read it.
        "--parameter-overrides", *(f"{name}={value}" for name, value in overrides.items() if value),
    ]  # fmt: skip


def _outputs(endpoint_url: str) -> dict[str, str]:
    [stack] = client("cloudformation", endpoint_url).describe_stacks(StackName=STACK_NAME)["Stacks"]
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def mend_types(endpoint_url: str, outputs: dict[str, str], more: dict[str, str]) -> None:
    """Give numbers and texts the type that CloudFormation would have given them, and the functions `more` variables.

    A parameter is text and a mapping's value may be a number. The emulator passes both on as they
    are, and then can't compare a MaximumConcurrency or start a process with an environment. The functions of a refresh,
    which runs before this, are told texts alone (tests/template/test_budget.py).
    """
    functions = client("lambda", endpoint_url)
    for mapping in functions.list_event_source_mappings()["EventSourceMappings"]:
        if "MaximumConcurrency" not in mapping.get("ScalingConfig", {}):
            continue
        scaling = {"MaximumConcurrency": int(mapping["ScalingConfig"]["MaximumConcurrency"])}
        functions.update_event_source_mapping(UUID=mapping["UUID"], ScalingConfig=scaling)
    for output in _FUNCTION_NAMES if more else _FUNCTIONS_OF_MAIL:
        set_environment(functions, outputs[output], more)


_FUNCTIONS_OF_MAIL = ("ReserveFunctionName", "SendFunctionName", "FeedbackFunctionName")
_FUNCTION_NAMES = (
    *_FUNCTIONS_OF_MAIL, "ControlFunctionName", "QuotaRefreshFunctionName", "AutoPauseFunctionName"
)  # fmt: skip


def set_environment(functions: Any, name: str, more: Mapping[str, str]) -> None:
    """Change variables of a deployed function. Its processes end, so nothing of it should be running."""
    known = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    variables = {key: str(value) for key, value in {**known, **more}.items()}
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
    functions.get_waiter("function_updated_v2").wait(FunctionName=name)


def _delete(stack: Stack) -> None:
    cloudformation = stack.client("cloudformation")
    cloudformation.delete_stack(StackName=stack.stack_name)
    cloudformation.get_waiter("stack_delete_complete").wait(StackName=stack.stack_name)
