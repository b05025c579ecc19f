"""Lambda's runtime API as `cargo lambda watch` serves it, with a deadline that a function can keep.

`cargo lambda` gives every invocation a deadline that is long past. Our functions share out the time until then, find
that there is none, and do nothing. So a proxy stands between and sets it as Lambda would: the function's timeout from
now.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

DEADLINE = "lambda-runtime-deadline-ms"
REQUEST_ID = "lambda-runtime-aws-request-id"
# Of one connection alone, or set by whoever sends.
_NOT_HANDED_ON = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}


@contextlib.contextmanager
def with_deadline(api: str, timeout_seconds: int) -> Iterator[str]:
    """Serve the runtime API at `api`, a URL, on an address of its own, which is handed over."""
    upstream = urlsplit(api)

    class Proxy(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _hand_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _NOT_HANDED_ON}
            while True:
                # `next` answers when there is an event.
                connection = http.client.HTTPConnection(upstream.hostname or "", upstream.port)
                try:
                    connection.request(self.command, upstream.path + self.path, body, headers)
                    answer = connection.getresponse()
                    content = answer.read()
                except OSError:
                    self.close_connection = True  # the API has ended, and so will the function
                    return
                finally:
                    connection.close()
                if not self.path.endswith("/next") or answer.getheader(REQUEST_ID):
                    break
                # It isn't ready now and then, and a function ends by what is no event.
                time.sleep(0.1)
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() == DEADLINE:
                    self.send_header(name, str(round((time.time() + timeout_seconds) * 1000)))
                elif name.lower() not in _NOT_HANDED_ON:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._hand_on()

        def do_POST(self) -> None:
            self._hand_on()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    server.daemon_threads = True
    server.block_on_close = False  # a function still waits for its next event
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
