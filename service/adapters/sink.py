"""An address that events are posted to: retried until it accepts or refuses, each failure reported once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.client import Say, UserError, http_client, read_token, retrying

if TYPE_CHECKING:
    import httpx

    from service.client import Connection

FIRST_WAIT_SECONDS = 0.5
SLOWEST_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 300.0
MOST_REASON_BYTES = 300  # of why a sink refuses

# They concern the address, the credentials or the load and not the body: the same body is accepted once that is corrected.
PASSING = frozenset({401, 404, 407, 408, 421, 425, 429})

To = Annotated[str, typer.Option("--to", metavar="URL", help="Where to post.")]
TokenFile = Annotated[Path | None, typer.Option(metavar="FILE", help="File that holds a bearer token for the sink.")]
Public = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The service's address as others reach it, for links; --service if left out."),
]


class SinkAway(Exception):
    """The sink does not accept requests now."""

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class SinkRefused(Exception):
    """The sink will never accept this body."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Sink:
    """An address that bodies are posted to."""

    def __init__(self, client: httpx.Client, url: str, say: Say) -> None:
        self._client, self._url, self._say = client, url, say
        self.shown = without_secrets(url)
        self._away = False
        self._refused: int | None = None  # the status that was reported

    def post(
        self,
        body: bytes,
        media_type: str,
        attempts: int | None = None,
        signed: Callable[[], Mapping[str, str]] = dict[str, str],
    ) -> bool:
        """Post until it is accepted, or refused for good; return False where the attempts were used up before.

        ``signed`` returns the headers of one attempt.
        """
        try:
            for attempt in retrying(
                self._passing, first_seconds=FIRST_WAIT_SECONDS, slowest_seconds=SLOWEST_SECONDS, attempts=attempts
            ):
                with attempt:
                    self._send(body, {"Content-Type": media_type, "Accept-Encoding": "identity", **signed()})
        except SinkAway:
            return False
        except SinkRefused as refusal:
            self._report(refusal)
            return True
        if self._away:
            self._say(f"{self.shown} accepts posts again")
        self._away, self._refused = False, None
        return True

    def _send(self, body: bytes, headers: Mapping[str, str]) -> None:
        import httpx

        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                reason = f"{answer.status_code} {_reason(answer)}".strip()
                if answer.is_success:
                    return
                if 400 <= answer.status_code < 500 and answer.status_code not in PASSING:
                    raise SinkRefused(answer.status_code, reason)
                raise SinkAway(reason, _retry_after(answer))
        except httpx.TransportError as error:
            raise SinkAway(str(error) or type(error).__name__) from None

    def _passing(self, problem: Exception) -> bool | float:
        """Return whether to try again, or in how many seconds; report the first time that the sink is away."""
        if not isinstance(problem, SinkAway):
            return False
        if not self._away:
            self._say(f"{self.shown} does not accept posts ({problem}); trying again")
        self._away = True
        return True if problem.retry_after_seconds is None else problem.retry_after_seconds

    def _report(self, refusal: SinkRefused) -> None:
        if refusal.status != self._refused:
            self._say(
                f"{self.shown} refuses a post ({refusal}): it is skipped, and so is every later one that gets this status"
            )
        self._refused, self._away = refusal.status, False


@contextmanager
def opened(url: str, token_file: Path | None, connection: Connection, say: Say, path: str = "") -> Iterator[Sink]:
    """Give the sink at an address. ``path``: what its API has below the address that operators know."""
    _check_address("--to", url)
    if not url.rstrip("/").endswith(path):
        url = url.rstrip("/") + path
    with http_client(connection.ca_file, read_token(token_file) if token_file else "") as client:
        yield Sink(client, url, say)


def page_address(public: str | None, connection: Connection) -> str:
    """Return where people open the service's pages."""
    if public is not None:
        _check_address("--public", public)
    return (public or connection.url).rstrip("/")


def without_secrets(url: str) -> str:
    """Return an address without its password, its query and its path, which is a secret of many webhooks."""
    import httpx

    return str(httpx.URL(url).copy_with(userinfo=b"", path="", query=None, fragment=None))


def _check_address(option: str, url: str) -> None:
    """Refuse a text that is no address, without repeating it: it may hold a password."""
    import httpx

    try:
        known = httpx.URL(url)
    except httpx.InvalidURL:
        known = httpx.URL("")
    if known.scheme not in ("http", "https") or not known.host:
        raise UserError(f"{option} is no address: write https://faulthound.example")


def _reason(answer: httpx.Response) -> str:
    if answer.is_redirect:
        return "it is at another address: give that one"
    text = b""
    for part in answer.iter_raw(MOST_REASON_BYTES):
        text += part
        if len(text) >= MOST_REASON_BYTES:
            break
    return " ".join(text[:MOST_REASON_BYTES].decode("utf-8", "replace").split())


def _retry_after(answer: httpx.Response) -> float | None:
    seconds = answer.headers.get("Retry-After", "")
    if not (seconds.isascii() and seconds.isdecimal()):
        return None
    return max(FIRST_WAIT_SECONDS, min(float(seconds), LONGEST_RETRY_AFTER_SECONDS))
