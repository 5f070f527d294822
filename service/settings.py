"""What an operator can set: environment variables FAULTHOUND_*, each with its bound and its default."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, PrivateAttr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PLACE = Path("~/.local/share/faulthound")
EARLIER_PLACE = Path("faulthound-data")  # in the current folder: an earlier version's default
FILE = "faulthound.db"


class Settings(BaseSettings):
    """The service's settings. A field's description is its documentation (docs/reference.md shows it)."""

    model_config = SettingsConfigDict(env_prefix="FAULTHOUND_", extra="ignore")

    host: str = Field("127.0.0.1", description="Address to listen on; beyond loopback only when a token exists.")
    port: int = Field(4747, ge=0, le=65535, description="Port to listen on; 0 takes a free one and prints it.")
    data: Path = Field(
        PLACE, description="Folder of the embedded database, of `serve` and of `tokens create --local`; `--data` wins."
    )
    database_url: str | None = Field(None, description="SQLAlchemy URL, postgresql+psycopg://…; unset: SQLite in data.")
    tls_certificate: Path | None = Field(
        None, description="PEM certificate chain; with tls_key the service speaks TLS."
    )
    tls_key: Path | None = Field(None, description="PEM private key.")

    address_connections: int = Field(
        0, ge=0, description="Most connections of one address; 0: a quarter of the files that the process may open."
    )
    head_seconds: float = Field(10.0, gt=0, le=600, description="In which the head of a request must have arrived.")
    batch_bytes: int = Field(8 << 20, ge=1024, description="Largest batch as it comes over the wire.")
    batch_unpacked_bytes: int = Field(64 << 20, ge=1024, description="Largest batch after unpacking.")
    batch_records: int = Field(100_000, ge=1, description="Most records in one batch.")
    json_bytes: int = Field(1 << 20, ge=1024, le=64 << 20, description="Largest batch that is sent as JSON, by hand.")
    queue_batches: int = Field(1_000, ge=1, description="Batches that may wait for the log; then 503.")
    queue_bytes: int = Field(256 << 20, ge=1024, description="Bytes that may wait for the log; then 503.")
    commit_seconds: float = Field(0.05, ge=0.0, le=1.0, description="Longest wait for companions of one commit.")
    node_batches_per_second: float = Field(
        20.0, gt=0, description="Batches a second of one node with one token, on average; then 429."
    )
    node_batches_burst: int = Field(600, ge=1, description="And at once, after an absence.")
    token_batches_per_second: float = Field(
        1_000.0, gt=0, description="Batches a second of all nodes with one token, on average; then 429."
    )
    token_batches_burst: int = Field(20_000, ge=1, description="And at once, after an absence.")

    node_bytes_per_second: float = Field(
        1 << 20, gt=0, description="Bytes a second of one node with one token, on average; then 429."
    )
    node_bytes_burst: int = Field(512 << 20, ge=1, description="And at once: twice what an agent's spool holds.")
    node_records_per_second: float = Field(
        500.0, gt=0, description="Records a second of one node with one token, or 256 unpacked bytes each; then 429."
    )
    node_records_burst: int = Field(
        1_000_000, ge=1, description="And at once: what half a day without a service leaves."
    )
    token_bytes_per_second: float = Field(
        64 << 20, gt=0, description="Bytes a second of all nodes with one token, on average; then 429."
    )
    token_bytes_burst: int = Field(16 << 30, ge=1, description="And at once, after an absence.")

    window_seconds: int = Field(600, ge=60, le=7200, description="How far back samples stay in memory.")
    retention_days: float = Field(14.0, gt=0, description="Age at which batches are deleted.")
    retention_bytes: int = Field(
        50 << 30,
        ge=1 << 20,
        description="Size of the log at which the oldest go, of the nodes that have most of it first.",
    )
    incident_days: float = Field(90.0, gt=0, description="How long the records of an incident are kept.")
    export_hours: float = Field(24.0, gt=0, description="Longest span that one export may have.")
    command_seconds: float = Field(60.0, gt=0, le=3600, description="How long a command waits for its agent.")
    engine: bool = Field(True, description="Whether this service runs an engine, which makes live verdicts.")
    judge_seconds: float = Field(
        20.0, gt=0, le=600,
        description="Longest judgement, and 0.3 s a thousand records; then again without the analyzer that ran.",
    )  # fmt: skip
    judge_bytes: int = Field(8 << 30, ge=256 << 20, description="Memory that one judgement may take.")
    evidence_node_bytes: int = Field(
        64 << 20, ge=1 << 20, description="Records of one node that the engine keeps for judgements, packed."
    )
    evidence_job_bytes: int = Field(2 << 30, ge=1 << 20, description="And of all nodes of one job.")
    evidence_bytes: int = Field(
        4 << 30, ge=1 << 20, description="And of all nodes; beyond these the oldest are given up, and counted."
    )
    knowledge: Path | None = Field(
        None, description="TOML file or folder that live verdicts lay over the packaged knowledge."
    )
    policy: Path | None = Field(
        None, description="TOML file of what may be done without asking; unset: everything is proposed to a person."
    )
    log_level: str = Field("info", description="debug, info, warning or error.")
    log_json: bool = Field(False, description="One JSON object a line instead of text.")

    _is_placed: bool = PrivateAttr(False)

    @model_validator(mode="after")
    def _find_data(self) -> Settings:
        """Where nothing names the folder it is ``PLACE``; what an earlier version keeps in this folder is not left behind."""
        self._is_placed = "data" in self.model_fields_set or self.database_url is not None
        earlier = EARLIER_PLACE / FILE
        try:
            self.data = self.data.expanduser()
        except RuntimeError:
            raise ValueError(f"{self.data} needs a home folder, and this user has none: name a folder") from None
        if not self.is_placed and earlier.is_file() and not (self.data / FILE).exists():
            self.data = EARLIER_PLACE
        return self

    @property
    def is_placed(self) -> bool:
        """Whether a flag or a variable names the database."""
        return self._is_placed

    @property
    def file(self) -> Path | None:
        """The embedded database; None where the database is a server's."""
        return None if self.database_url else (self.data / FILE).absolute()

    def url(self) -> str:
        """Return the database's URL: the one that was set, or SQLite in the data folder."""
        return self.database_url or f"sqlite:///{self.file}"


def load(given: Mapping[str, Any] | None = None) -> Settings:
    """Return the environment's settings and what is given; raise ``ValueError`` that names the setting and its bound."""
    try:
        settings = Settings(**{name: value for name, value in (given or {}).items() if value is not None})
    except ValidationError as error:
        wrong = error.errors()[0]
        name = "FAULTHOUND_" + "_".join(map(str, wrong["loc"])).upper()
        raise ValueError(f"{name}: {wrong['msg']}: docs/reference.md has every setting") from None
    for name in ("tls_certificate", "tls_key"):
        path = getattr(settings, name)
        if path is not None and not path.is_file():
            raise ValueError(f"FAULTHOUND_{name.upper()} names {path}, which is no file: give a PEM file")
    if settings.knowledge is not None and not settings.knowledge.exists():
        raise ValueError(
            f"FAULTHOUND_KNOWLEDGE names {settings.knowledge}, which does not exist: give a file or folder"
        )
    if settings.policy is not None and not settings.policy.is_file():
        raise ValueError(f"FAULTHOUND_POLICY names {settings.policy}, which is no file: give a TOML file")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise ValueError("TLS needs both: set FAULTHOUND_TLS_CERTIFICATE and FAULTHOUND_TLS_KEY, or neither")
    _check_tls(settings)
    return settings


def _check_tls(settings: Settings) -> None:
    if settings.tls_certificate is None or settings.tls_key is None:
        return
    files = f"FAULTHOUND_TLS_CERTIFICATE {settings.tls_certificate} and FAULTHOUND_TLS_KEY {settings.tls_key}"
    try:
        # Without a password: one that is asked for on a terminal would hold up an unattended service.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(settings.tls_certificate, settings.tls_key, password="")
    except OSError as error:
        raise ValueError(
            f"{files} cannot be used ({error.strerror or error}): "
            "give a PEM certificate and its own key, without a password, that this user may read"
        ) from None
