"""The event that a function is invoked with."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.local.invoke import FUNCTIONS, QUEUES, _cloudformation, addressed
from tests.local.paths import ROOT
from tests.local.runtime_api import with_deadline

OUTPUTS = {
    f"{lane}{queue}QueueUrl": f"http://127.0.0.1/0/{lane}-{queue}"
    for lane in ("Priority", "Bulk")
    for queue in QUEUES.values()
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_sample_of_every_function_can_be_addressed(function: str) -> None:
    paths = sorted((ROOT / "events" / function).glob("*.json"))
    assert paths
    for path in paths:
        given = json.loads(path.read_text())
        event = addressed(json.loads(path.read_text()), function, OUTPUTS, "http://127.0.0.1:1/")
        assert event.keys() == given.keys()
        for record in event.get("Records", []):
            assert record["eventSourceARN"].endswith((f"Priority-{QUEUES[function]}", f"Bulk-{QUEUES[function]}"))
        # Nothing that is tried here may reach AWS.
        assert event.get("ResponseURL", "http://127.0.0.1:1/") == "http://127.0.0.1:1/"


@contextlib.contextmanager
def an_api(deadline: str) -> Iterator[str]:
    """A runtime API with one event, at `/.rt`."""

    class Api(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/.rt/2018-06-01/runtime/invocation/next" else 404)
            self.send_header("Lambda-Runtime-Deadline-Ms", deadline)
            self.send_header("Lambda-Runtime-Aws-Request-Id", "1")
            self.end_headers()
            self.wfile.write(b"{}")

        def do_POST(self) -> None:
            answer = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(202 if answer == b'"done"' else 400)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/.rt"
        server.shutdown()


def test_an_invocation_has_the_functions_timeout_to_the_end() -> None:
    with an_api("600000") as upstream, with_deadline(upstream, 10) as api:
        with urllib.request.urlopen(f"{api}/2018-06-01/runtime/invocation/next", timeout=5) as event:
            left = int(event.headers["lambda-runtime-deadline-ms"]) / 1000 - time.time()
            assert 5 < left <= 10.001
            assert (event.headers["lambda-runtime-aws-request-id"], event.read()) == ("1", b"{}")
        answer = urllib.request.Request(f"{api}/2018-06-01/runtime/invocation/1/response", b'"done"')
        with urllib.request.urlopen(answer, timeout=5) as taken:
            assert taken.status == 202


def test_what_cloudformation_would_be_told_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with _cloudformation() as url:
        request = urllib.request.Request(url, b'{"Status": "SUCCESS"}', method="PUT")
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 200
    assert capsys.readouterr().out == 'CloudFormation is told: {"Status": "SUCCESS"}\n'
