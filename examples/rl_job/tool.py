"""The tool: an HTTP server that knows the second number of each question, and sometimes thinks for long."""

from __future__ import annotations

import argparse
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import task
from serving import Serving

RANDOM = Random()  # noqa: S311 (no secret)


def main() -> None:
    """Serve until the job ends. A delay is lognormal: of the default one in a thousand takes about 20 times the median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--median-seconds", type=float, default=0.005)
    parser.add_argument("--spread", type=float, default=1.0)
    options = parser.parse_args()

    serving = Serving()

    class Tool(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with serving.request():
                time.sleep(options.median_seconds * RANDOM.lognormvariate(0.0, options.spread))
            body = str(task.question(int(self.path.rpartition("/")[2]))[1]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing: a line a call would fill the log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Tool)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    serving.run("tool", {"http": url})


if __name__ == "__main__":
    main()
