"""The verbs that are clients of the service: where it is, who asks, and what its refusals mean here."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from service.endings import CommandError, Forbidden, Unreachable

if TYPE_CHECKING:
    import httpx

DEFAULT_URL = "http://127.0.0.1:4747"
TIMEOUT_SECONDS = 30.0
PAGE = 1_000
_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}

ServiceUrl = Annotated[
    str,
    Option("--service", envvar="FAULTHOUND_SERVICE", show_default=False, show_envvar=False, metavar="URL",
           help=f"The service (FAULTHOUND_SERVICE, {DEFAULT_URL})."),
]  # fmt: skip
CaFile = Annotated[
    Path | None,
    Option(envvar="FAULTHOUND_CA_FILE", show_envvar=False, metavar="FILE",
           help="PEM certificates to trust beside the system's (FAULTHOUND_CA_FILE)."),
]  # fmt: skip
TokenFile = Annotated[
    Path | None,
    Option(envvar="FAULTHOUND_TOKEN_FILE", show_envvar=False, metavar="FILE",
           help="File that holds the token (FAULTHOUND_TOKEN_FILE; FAULTHOUND_TOKEN is the token itself)."),
]  # fmt: skip
Json = Annotated[bool, Option("--json", help="Print what the service answered.")]


class Connection:
    """A service, and whose token is sent to it."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        self.url, self._client = url, client
        self._has_token = "Authorization" in client.headers

    def get(self, path: str, **parameters: Any) -> Any:
        """Return the answer to a GET."""
        return self.send("GET", path, params=_known(parameters))

    def tagged(self, path: str) -> tuple[Any, str]:
        """Return the answer to a GET and its ETag, which a change of it needs."""
        answer = self._answer("GET", path)
        return self._content(answer), answer.headers.get("ETag", "")

    def post(self, path: str, body: Mapping[str, Any], if_match: str = "", **parameters: Any) -> Any:
        """Return the answer to a POST. Its key lets the service answer once, should the answer have to be sent twice."""
        import secrets

        headers = {"Idempotency-Key": secrets.token_hex(16)} | ({"If-Match": if_match} if if_match else {})
        return self.send("POST", path, json=body, params=_known(parameters), headers=headers)

    def put(self, path: str, body: Mapping[str, Any], if_match: str, **parameters: Any) -> Any:
        """Return the answer to a PUT that replaces what has this ETag."""
        return self.send("PUT", path, json=body, params=_known(parameters), headers={"If-Match": if_match})

    def delete(self, path: str) -> None:
        """Delete."""
        self.send("DELETE", path)

    def all(self, path: str, most: int | None = None, **parameters: Any) -> Iterator[Any]:
        """Yield the things of a list, page after page."""
        after: str | None = None
        left = most
        while left is None or left > 0:
            page = self.get(path, limit=min(PAGE, left or PAGE), after=after, **parameters)
            yield from page["items"]
            after = page["next"]
            left = None if left is None else left - len(page["items"])
            if after is None:
                return

    def send(self, method: str, path: str, **options: Any) -> Any:
        """Send a request and return what its answer holds; raise ``Unreachable`` or ``Forbidden``."""
        return self._content(self._answer(method, path, **options))

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
            raise Unreachable(f"what listens at {self.url} is no Faulthound: check FAULTHOUND_SERVICE") from None
        except httpx.DecodingError as error:
            raise Unreachable(f"the answer of {self.url} cannot be read: {error}") from None

    @contextmanager
    def stream(self, path: str, **parameters: Any) -> Iterator[httpx.Response]:
        """Give the answer to a GET while it arrives."""
        with self._reaching(), self._client.stream("GET", path, params=_known(parameters)) as answer:
            if answer.is_error:
                answer.read()
            self._check(answer)
            yield answer

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        import httpx

        try:
            yield
        except httpx.TransportError as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"the service at {self.url} does not answer ({reason}): {_advice(reason)}") from None
        except httpx.InvalidURL as error:
            raise CommandError(f"{self.url!a} is no address of a service ({error}): write {DEFAULT_URL}") from None

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
            raise Forbidden(
                f"the service at {self.url} asks for a token: name its file with --token-file or FAULTHOUND_TOKEN_FILE; "
                "`faulthound tokens create` makes one"
            )
        if answer.status_code >= 500:
            raise Unreachable(f"the service at {self.url} cannot: {detail}")
        raise Forbidden(detail, answer.status_code)


def _known(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _advice(reason: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return "name its authority with --ca-file or FAULTHOUND_CA_FILE, and the service as its certificate does"
    if "disconnected without" in reason:
        return "does it speak TLS? then write https://"
    if "WRONG_VERSION_NUMBER" in reason or "RECORD_LAYER" in reason:
        return "does it speak TLS? if not, write http://"
    return "is it running? --service or FAULTHOUND_SERVICE names it"


@contextmanager
def connected(url: str, ca_file: Path | None, token_file: Path | None) -> Iterator[Connection]:
    """Give the connection that these options and the environment describe."""
    import httpx

    token = token_in(token_file)
    if not re.match(r"https?://[^/]", url):
        raise CommandError(f"--service {url!a} is no address: write {DEFAULT_URL}")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(
        base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_SECONDS, verify=trusted(ca_file)
    ) as client:
        yield Connection(url.rstrip("/"), client)


def trusted(ca_file: Path | None) -> Any:
    """Return what httpx is to trust: the system's authorities, and those of a file."""
    if ca_file is None:
        return True
    import ssl

    try:
        trusted = ssl.create_default_context()
        trusted.load_verify_locations(ca_file)
        return trusted
    except OSError as error:
        raise CommandError(
            f"--ca-file {ca_file} holds no certificate ({error.strerror or error}): give a PEM file"
        ) from None


def token_in(file: Path | None) -> str:
    """Return the token in a file, or that of the environment; empty where there is neither."""
    try:
        token = file.read_text(encoding="ascii").strip() if file else os.environ.get("FAULTHOUND_TOKEN", "").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(
            f"the token file {file} cannot be read ({error}): give the file that holds the token"
        ) from None
    if not token.isascii() or any(letter.isspace() for letter in token):
        raise CommandError("the token holds characters that no token has: copy it again")
    return token


def seconds_of(span: str) -> float:
    """Return the seconds of a span that is written as ``90s``, ``10m``, ``2h`` or ``7d``."""
    return float(span[:-1]) * _UNITS[span[-1]]


def instant(option: str, text: str | None, now: float) -> float | None:
    """Return UTC seconds of ``10m``, ``10m ago``, ``now`` or RFC 3339, UTC without an offset; None where nothing is given."""
    from datetime import UTC, datetime

    if text is None or text == "now":
        return None if text is None else now
    if re.fullmatch(r"\d{1,9}[smhd](\s+ago)?", text.strip()):
        return max(0.0, now - seconds_of(text.split()[0]))
    try:
        at = datetime.fromisoformat(text)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        seconds = -1.0
    if seconds < 0:
        raise CommandError(f"{option} {text!a} is no instant: write 10m, 2h ago, now or 2026-11-21T03:14:07Z")
    return seconds
