"""Verify and print what ``faulthound adapter webhook`` pushes: ``webhook_receiver.py SECRET_FILE`` prints its port first.

It needs ``pip install standardwebhooks``. Claim the remediation before you act (docs/for-schedulers.md).
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from standardwebhooks import Webhook, WebhookVerificationError

webhook = Webhook(Path(sys.argv[1]).read_text(encoding="utf-8").strip())


class Receiver(BaseHTTPRequestHandler):
    """Answers 204 to what the secret signed, else 401."""

    def do_POST(self) -> None:
        """Print the type, the remediation and what can be claimed of it."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            pushed = webhook.verify(body, dict(self.headers))
        except (WebhookVerificationError, ValueError):
            self.send_error(401)
            return
        self.send_response(204)
        self.end_headers()
        remediation = pushed["data"]["remediation"]
        print(pushed["type"], remediation["id"], remediation["task"], flush=True)


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_address[1], flush=True)
server.serve_forever()
