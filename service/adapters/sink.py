"""What every adapter does on the sink's side: it posts until it was taken or refused, and says what goes wrong once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from service.speech import Speech

if TYPE_CHECKING:
    import httpx

FIRST_WAIT_SECONDS = 0.5
SLOWEST_SECONDS = 30.0
LONGEST_RETRY_AFTER_SECONDS = 300.0
MOST_SAID_BYTES = 300  # of why a sink refuses

# Of the address, the credentials or the load, and not of what was posted: they are over when somebody has mended that.
PASSING = frozenset({401, 404, 407, 408, 421, 425, 429})


class Away(Exception):
    """The sink does not take anything now."""

    def __init__(self, reason: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class Refusal(Exception):
    """The sink will never take what was posted."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Sink:
    """An address that things are posted to."""

    def __init__(self, client: httpx.Client, url: str, speech: Speech) -> None:
        self._client, self._url, self._speech = client, url, speech
        self.shown = shown(url)
        self._away = False
        self._refused: int | None = None  # the status that was told of

    def post(
        self,
        body: bytes,
        media_type: str,
        attempts: int | None = None,
        signed: Callable[[], Mapping[str, str]] = dict[str, str],
    ) -> bool:
        """Post until it is taken, or refused for good; return False where the attempts were used up before.

        ``signed`` gives each attempt the headers that are of its moment.
        """
        import stamina

        try:
            for attempt in stamina.retry_context(
                on=self._passing, attempts=attempts, timeout=None, wait_initial=FIRST_WAIT_SECONDS,
                wait_max=SLOWEST_SECONDS,
            ):  # fmt: skip
                with attempt:
                    self._send(body, {"Content-Type": media_type, "Accept-Encoding": "identity", **signed()})
        except Away:
            return False
        except Refusal as refusal:
            self._tell_refused(refusal)
            return True
        if self._away:
            self._speech.note(f"{self.shown} takes things again")
        self._away, self._refused = False, None
        return True

    def _send(self, body: bytes, headers: Mapping[str, str]) -> None:
        import httpx

        try:
            with self._client.stream("POST", self._url, content=body, headers=headers) as answer:
                reason = f"{answer.status_code} {_said(answer)}".strip()
                if answer.is_success:
                    return
                if 400 <= answer.status_code < 500 and answer.status_code not in PASSING:
                    raise Refusal(answer.status_code, reason)
                raise Away(reason, _retry_after(answer))
        except httpx.TransportError as error:
            raise Away(str(error) or type(error).__name__) from None

    def _passing(self, problem: Exception) -> bool | float:
        """Return whether to try again, or in how many seconds; say the first time that the sink is away."""
        if not isinstance(problem, Away):
            return False
        if not self._away:
            self._speech.note(f"{self.shown} does not take what is posted ({problem}); trying again")
        self._away = True
        return True if problem.retry_after_seconds is None else problem.retry_after_seconds

    def _tell_refused(self, refusal: Refusal) -> None:
        if refusal.status != self._refused:
            self._speech.note(
                f"{self.shown} refuses what is posted ({refusal}): it is passed over, and so is what it refuses like this "
                "from now on"
            )
        self._refused, self._away = refusal.status, False


def shown(url: str) -> str:
    """Return an address without what may be secret in it: the password, the query, and the path of many a webhook."""
    import httpx

    return str(httpx.URL(url).copy_with(userinfo=b"", path="", query=None, fragment=None))


def _said(answer: httpx.Response) -> str:
    if answer.is_redirect:
        return "it is somewhere else: give that address"
    said = b""
    for part in answer.iter_raw(MOST_SAID_BYTES):
        said += part
        if len(said) >= MOST_SAID_BYTES:
            break
    return " ".join(said[:MOST_SAID_BYTES].decode("utf-8", "replace").split())


def _retry_after(answer: httpx.Response) -> float | None:
    told = answer.headers.get("Retry-After", "")
    if not (told.isascii() and told.isdecimal()):
        return None
    return max(FIRST_WAIT_SECONDS, min(float(told), LONGEST_RETRY_AFTER_SECONDS))
