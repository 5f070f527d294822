"""The REST client of the command line and the adapters: requests, errors, waiting for the service, the event stream."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import msgspec

if TYPE_CHECKING:
    import ssl

    import httpx

DEFAULT_URL = "http://127.0.0.1:4747"
TIMEOUT_SECONDS = 30.0
PAGE_ROWS = 1_000
RETRY_SECONDS = 1.0
SLOWEST_RETRY_SECONDS = 5.0
NOT_FOUND = 404
PASSING = (408, 429)  # refusals that end by themselves

Document = dict[str, Any]
Say = Callable[[str], None]  # writes a note for the operator


class UserError(Exception):
    """A person has to correct something. The message states what is wrong, the value, the bound and the next step."""


class Unreachable(UserError):
    """The service does not answer."""


class RequestRefused(UserError):
    """The service answers and refuses the request."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status

    @property
    def passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status in PASSING


class StreamEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the stream."""

    sequence: int
    at: float
    kind: str
    incident: str | None = None
    job: str | None = None
    details: Document = {}


def resource(kind: str, name: str, *below: str) -> str:
    """Return a path: ``/v1/nodes/gpu-0413/record``. A slash in a job's name stays a slash."""
    return "/".join(["/v1", kind, quote(name, safe="/" if kind == "jobs" else ""), *below])


class Connection:
    """A service and the token that requests carry."""

    def __init__(self, url: str, client: httpx.Client, ca_file: Path | None = None) -> None:
        self.url, self.ca_file, self._client = url, ca_file, client
        self._has_token = "Authorization" in client.headers

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the answer to a GET."""
        return self.send("GET", path, params=_given(parameters))

    def find(self, path: str, **parameters: Any) -> Any | None:
        """Return the answer to a GET, None where the service has no such resource."""
        try:
            return self.get(path, **parameters)
        except RequestRefused as refusal:
            if refusal.status != NOT_FOUND:
                raise
            return None

    def tagged(self, path: str) -> tuple[Any, str]:
        """Return the answer to a GET and its ETag, which a change has to send back."""
        answer = self._answer("GET", path)
        return self._content(answer), answer.headers.get("ETag", "")

    def post(self, path: str, body: Mapping[str, Any], if_match: str = "", **parameters: Any) -> Any:
        """Return the answer to a POST. The idempotency key makes the request safe to send twice."""
        headers = idempotency() | ({"If-Match": if_match} if if_match else {})
        return self.send("POST", path, json=body, params=_given(parameters), headers=headers)

    def put(self, path: str, body: Mapping[str, Any], if_match: str, **parameters: Any) -> Any:
        """Return the answer to a PUT that replaces what has this ETag."""
        return self.send("PUT", path, json=body, params=_given(parameters), headers={"If-Match": if_match})

    def delete(self, path: str) -> None:
        """Delete a resource."""
        self.send("DELETE", path)

    def all(self, path: str, most: int | None = None, **parameters: Any) -> Iterator[Any]:
        """Yield the rows of a list, page after page."""
        after: str | None = None
        left = most
        while left is None or left > 0:
            page = self.get(path, limit=min(PAGE_ROWS, left or PAGE_ROWS), after=after, **parameters)
            yield from page["items"]
            after = page["next"]
            left = None if left is None else left - len(page["items"])
            if after is None:
                return

    def send(self, method: str, path: str, **options: Any) -> Any:
        """Send a request and return its content; raise ``Unreachable`` or ``RequestRefused``."""
        return self._content(self._answer(method, path, **options))

    @contextmanager
    def stream(self, path: str, *, patient: bool = False, **parameters: Any) -> Iterator[httpx.Response]:
        """Give the answer to a GET while it arrives. ``patient``: it rests between two parts, up to the default wait."""
        import httpx

        timeout = self._client.timeout
        if patient and timeout.read is not None:
            longest = max(TIMEOUT_SECONDS, timeout.read)
            timeout = httpx.Timeout(connect=timeout.connect, read=longest, write=timeout.write, pool=timeout.pool)
        with self._reaching(), self._client.stream("GET", path, params=_given(parameters), timeout=timeout) as answer:
            if answer.is_error:
                answer.read()
            self._check(answer)
            yield answer

    def events(
        self, after: int | None, wait_seconds: float | None = None, job: str | None = None
    ) -> Generator[tuple[int | None, StreamEvent | None], None, None]:
        """Yield (place, event) until the service ends the stream; the first pair, and heartbeats, have no event."""
        import httpx
        from httpx_sse import EventSource

        try:
            with self.stream("/v1/stream", patient=True, after=after, wait_seconds=wait_seconds, job=job) as answer:
                yield after, None
                for block in EventSource(answer).iter_sse():
                    if block.id.isascii() and block.id.isdecimal():
                        yield int(block.id), _event(block.data)
        except httpx.DecodingError as error:
            raise Unreachable(f"the stream of {self.url} cannot be read: {error}") from None

    def _answer(self, method: str, path: str, **options: Any) -> httpx.Response:
        with self._reaching():
            answer = self._client.request(method, path, **options)
        self._check(answer)
        return answer

    def _content(self, answer: httpx.Response) -> Any:
        import httpx

        try:
            return answer.json() if answer.content else None
        except ValueError:
            raise Unreachable(f"{self.url} is not a Faulthound service: check FAULTHOUND_SERVICE") from None
        except httpx.DecodingError as error:
            raise Unreachable(f"the answer of {self.url} cannot be read: {error}") from None

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"the service at {self.url} does not answer ({reason}): {_advice(reason)}") from None
        except httpx.InvalidURL as error:
            raise UserError(f"{self.url!a} is no address of a service ({error}): write {DEFAULT_URL}") from None

    def _check(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        try:
            detail = str(answer.json()["detail"])
        except (ValueError, KeyError, TypeError):
            raise Unreachable(
                f"{self.url} answers {answer.status_code} and not as Faulthound does: check FAULTHOUND_SERVICE"
            ) from None
        if answer.status_code == 401 and not self._has_token:
            raise RequestRefused(
                f"the service at {self.url} asks for a token: name its file with --token-file or FAULTHOUND_TOKEN_FILE; "
                "`faulthound tokens create NAME --scope read` makes one, with --local on the service's machine",
                401,
            )
        if answer.status_code >= 500:
            raise Unreachable(f"the service at {self.url} failed: {detail}")
        raise RequestRefused(detail, answer.status_code)


class ServicePatience:
    """Waits while the service is away, longer each time; reports once that it is away and once that it answers again."""

    failures = (Unreachable, RequestRefused)  # what ``away`` takes

    def __init__(self, say: Say) -> None:
        self._say = say
        self._wait_seconds, self._away = RETRY_SECONDS, False

    def back(self) -> None:
        """Note that the service answers."""
        if self._away:
            self._say("the service answers again")
        self._wait_seconds, self._away = RETRY_SECONDS, False

    def away(self, problem: UserError) -> None:
        """Wait; raise the problem where waiting does not help."""
        if isinstance(problem, RequestRefused) and not problem.passing:
            raise problem
        if not self._away:
            self._say(f"{problem}; trying again")
        self._away = True
        time.sleep(self._wait_seconds)
        self._wait_seconds = min(SLOWEST_RETRY_SECONDS, self._wait_seconds * 2)


def retrying(
    on: Callable[[Exception], bool | float], *, first_seconds: float, slowest_seconds: float, attempts: int | None = None,
) -> Iterable[Any]:  # fmt: skip
    """Return the attempts of ``stamina``, spaced further and further apart. ``on``: whether to try again after an error."""
    import stamina

    stamina.instrumentation.set_on_retry_hooks(())  # the caller reports what goes wrong, once
    return stamina.retry_context(
        on=on, attempts=attempts, timeout=None, wait_initial=first_seconds, wait_max=slowest_seconds
    )


@contextmanager
def connected(
    url: str, ca_file: Path | None, token_file: Path | None, timeout_seconds: float = TIMEOUT_SECONDS,
    option: str = "--service",
) -> Iterator[Connection]:  # fmt: skip
    """Give the connection that these options and the environment describe. ``option``: the one that gave the address."""
    if not re.match(r"https?://[^/]", url):
        likely = f"http://{url}" if re.match(r"[\w.-]+(:\d+)?$", url, re.ASCII) else DEFAULT_URL
        raise UserError(f"{option} {url!a} is no address: write {likely}")
    try:
        _port = urlsplit(url).port
    except ValueError as error:
        raise UserError(f"{option} {url!a} is no address ({error}): write {DEFAULT_URL}") from None
    with http_client(ca_file, read_token(token_file), timeout_seconds, base_url=url.rstrip("/")) as client:
        yield Connection(url.rstrip("/"), client, ca_file)


def http_client(
    ca_file: Path | None, token: str, timeout_seconds: float = TIMEOUT_SECONDS, **options: Any
) -> httpx.Client:
    """Return an HTTP client that trusts the system's authorities and those of a file, and sends a bearer token."""
    import httpx

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.Client(headers=headers, timeout=timeout_seconds, verify=_trusted(ca_file), **options)


def read_token(file: Path | None) -> str:
    """Return the token in a file, or that of the environment; empty where there is neither."""
    try:
        token = file.read_text(encoding="ascii").strip() if file else os.environ.get("FAULTHOUND_TOKEN", "").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the token file {file} cannot be read ({error}): give the file that holds the token") from None
    if not token.isascii() or any(letter.isspace() for letter in token):
        raise UserError("the token holds characters that no token has: copy it again")
    return token


def idempotency() -> dict[str, str]:
    """Return the header that lets the service answer a repeated request with its first answer."""
    import secrets

    return {"Idempotency-Key": secrets.token_hex(16)}


def _trusted(ca_file: Path | None) -> ssl.SSLContext | bool:
    if ca_file is None:
        return True
    import ssl

    try:
        trusted = ssl.create_default_context()
        trusted.load_verify_locations(ca_file)
        return trusted
    except OSError as error:
        raise UserError(
            f"--ca-file {ca_file} holds no certificate ({error.strerror or error}): give a PEM file"
        ) from None


def _event(data: str) -> StreamEvent | None:
    try:
        return msgspec.json.decode(data, type=StreamEvent) if data else None
    except msgspec.DecodeError:  # a later version of the service sends other documents
        return None


def _given(parameters: Mapping[str, Any]) -> Document:
    return {name: value for name, value in parameters.items() if value is not None}


def _advice(reason: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "name its authority with --ca-file or FAULTHOUND_CA_FILE, and the service as its certificate does"
    if "disconnected without" in reason:
        return "does it use TLS? then write https://"
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "does it use TLS? if not, write http://"
    return "is it running? --service or FAULTHOUND_SERVICE names it"
