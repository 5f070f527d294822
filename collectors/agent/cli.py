"""The command line of ``faulthound-agent``: one function a verb."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, TextIO

from collectors.agent.settings import KEYS, Misconfigured, Settings, load

DONE, NO, USAGE, TAKEN, UNKNOWN = 0, 1, 2, 3, 3
ABOUT = "Reads this node's evidence of a training job, from outside the job, and ships it to the Faulthound service."
EPILOG = """\
examples:
  faulthound-agent check                                     does this node's evidence reach the service?
  faulthound-agent once --skip gpu,dcgm                      what can be read on this node now?
  faulthound-agent run --service https://faulthound:4747     what the systemd unit runs
  faulthound-agent check --help                              a verb's options, examples and exit codes

Settings come from /etc/faulthound/agent.toml, then from FAULTHOUND_SERVICE, FAULTHOUND_TOKEN_FILE, …, then from flags.
The token comes from --token-file or FAULTHOUND_TOKEN, never from the command line itself.
"""
EXAMPLES = {
    "run": """\
  faulthound-agent run --service https://faulthound:4747 --token-file /etc/faulthound/token
  faulthound-agent run --path proc=/host/proc --path sys=/host/sys    in a container

exit codes: 0 stopped by SIGTERM or Ctrl-C, 2 a setting cannot be used, 3 another agent has the state folder""",
    "once": """\
  faulthound-agent once --collectors kernel,host
  faulthound-agent once --json | head -1
  faulthound-agent once --out now.fhb && faulthound read now.fhb

exit codes: 0 every collector ran, 1 a collector failed or overran its bound, 2 a setting cannot be used""",
    "check": """\
  faulthound-agent check; echo $?
  faulthound-agent check --json

exit codes, as Nagios reads them: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN (a setting cannot be used)""",
    "status": """\
  faulthound-agent status
  faulthound-agent status --json

exit codes: 0 an agent runs, 1 none runs, 2 a setting cannot be used""",
    "probe": """\
  faulthound-agent probe --write ./training     then, in the script: import faulthound_probe

exit codes: 0 copied, 2 the folder cannot be written""",
    "roles": """\
  faulthound-agent roles --write ./rl     then, in each process: import faulthound_roles

exit codes: 0 copied, 2 the folder cannot be written""",
}
HELP = {
    "service": ("https://HOST:PORT", "address of the service"),
    "token_file": ("FILE", "file with the token, one line; read again when the service does not accept the token"),
    "ca_file": ("FILE", "PEM file with the authority that signed the service's certificate"),
    "node": ("NAME", "name of this node (default: its host name)"),
    "state": (
        "DIR",
        "folder of the spool and the cursors (default: /var/lib/faulthound; ~/.local/state/faulthound where that is closed)",
    ),
    "collectors": ("A,B", "run only these collectors"),
    "skip": ("A,B", "leave these collectors out"),
    "spool_bytes": ("N", "bound of the spool; beyond it the oldest batches are dropped and counted (default: 256 MiB)"),
    "ship_seconds": ("N", "interval between batches, 0.1 to 300 (default: 10)"),
    "deny_file": ("FILE", "verbs of commands that this node refuses, one a line (default: /etc/faulthound/deny)"),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(USAGE, f"{self.prog}: {message}: see `{self.prog} --help`\n")


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    write_logs(options.log_level.upper())
    try:
        # These files are for the owner of a job, who may not read the agent's settings and needs none of them.
        settings = (
            Settings()
            if options.verb is _copy
            else load(options.config, os.environ, vars(options), looking=options.verb in {_check, _status})
        )
        code: int = options.verb(settings, options)
    except Misconfigured as error:
        if options.verb is _check:  # Nagios reads stdout
            _show(f"UNKNOWN: {error}")
            return UNKNOWN
        return _fail(str(error), USAGE)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


class _Formatter(logging.Formatter):
    """Names and errors, those of tracebacks too, are of processes, and steer no terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record, its unprintable characters as escapes."""
        from collectors.records.printable import printable

        return printable(super().format(record))


def write_logs(level: str) -> None:
    """Send the log to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])


def _fail(text: str, code: int) -> int:
    _show(f"faulthound-agent: {text}", sys.stderr)
    return code


def _run(settings: Settings, _options: argparse.Namespace) -> int:
    from collectors.agent.agent import AlreadyRunning, serve

    try:
        serve(settings)
    except AlreadyRunning as error:
        return _fail(str(error), TAKEN)
    return DONE


def _once(settings: Settings, options: argparse.Namespace) -> int:
    from collectors.agent.once import as_json, as_text, run_once, table
    from collectors.records import block

    records, outcomes = run_once(settings)
    if options.out is not None:
        try:
            options.out.write_bytes(block.encode(records, pack=True))
        except OSError as error:
            text = f"--out {options.out} cannot be written ({error.strerror}): name another file"
            raise Misconfigured(text) from error
    else:
        for record in records:
            _show(as_json(record) if options.json else as_text(record))
    _show(table(outcomes), sys.stderr)
    return NO if any(one.kind in {"failed", "overran"} for one in outcomes) else DONE


def _show(text: str | bytes, stream: TextIO | None = None) -> None:
    """Print a text or a JSON document; the names and errors in it are of processes, and steer no terminal."""
    from collectors.records.printable import printable, printable_json

    print(printable_json(text) if isinstance(text, bytes) else printable(text), file=stream)


def _check(settings: Settings, options: argparse.Namespace) -> int:
    from collectors.agent.check import check

    problems = check(settings)
    _show(problems.json().encode() if options.json else problems.text())
    return problems.level


def _status(settings: Settings, options: argparse.Namespace) -> int:
    import msgspec

    from collectors.agent.status import read_status
    from collectors.live.sources.clock import NodeClock

    status = read_status(settings)
    if status is None:
        return _fail(f"no agent has written {settings.state}/status.json: start one, or give --state", NO)
    alive = status.is_alive(NodeClock().now())
    _show(msgspec.json.encode(status) if options.json else _status_text(status, alive=alive))
    return DONE if alive else NO


def _status_text(status: Any, *, alive: bool) -> str:
    at = None if status.shipped_at is None else datetime.fromtimestamp(status.shipped_at, UTC)
    newest = "never" if at is None else at.isoformat(timespec="seconds")
    lines = [
        f"{status.node}: agent {status.version}, process {status.pid}, {'running' if alive else 'not running'}",
        f"  service     {status.service}  {status.service_trouble or 'accepts the records'}",
        f"  shipped     {status.shipped_batches} batches, {status.shipped_bytes:,} bytes, newest {newest}",
        f"  spooled     {status.spooled_batches} batches, {status.spooled_bytes:,} bytes  {status.spool_trouble}".rstrip(),
        f"  lost        {status.dropped_batches} dropped ({status.dropped_records} records), {status.refused_batches} refused",
        "  collector      every     runs  nothing  failed  overran killed   records  newest reason",
    ]
    lines += [
        f"  {one.name:<12} {one.every_seconds:>6g}s {one.runs:>8} {one.nothing:>8} {one.failures:>7} {one.overran:>8}"
        f" {one.killed_parses:>6} {one.records:>9}  {one.error}".rstrip()
        for one in status.collectors
    ]
    return "\n".join(lines)


def _copy(_settings: Settings, options: argparse.Namespace) -> int:
    source = Path(__file__).resolve().parents[1] / f"{options.file}.py"
    target = options.write / source.name
    try:
        options.write.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        return _fail(f"--write: {target} cannot be written ({error.strerror}): name another folder", USAGE)
    print(f"{target}: {options.then}")
    return DONE


def _parser() -> argparse.ArgumentParser:
    from collectors.agent import agent_version

    form = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="faulthound-agent", description=ABOUT, epilog=EPILOG, formatter_class=form)
    parser.add_argument("--version", action="version", version=f"faulthound-agent {agent_version()}")
    verbs = parser.add_subparsers(required=True, title="verbs", metavar="VERB")

    def verb(name: str, function: Callable[..., int], about: str, json: str = "") -> argparse.ArgumentParser:
        epilog = f"examples:\n{EXAMPLES[name]}"
        usage = f"faulthound-agent {name} [options]"
        one = verbs.add_parser(
            name, usage=usage, help=about, description=f"{about}.", epilog=epilog, formatter_class=form
        )
        one.set_defaults(verb=function, log_level="info")
        if json:
            one.add_argument("--json", action="store_true", help=json)
        if function is not _copy:
            _add_settings(one)
        return one

    verb("run", _run, "Run until SIGTERM or Ctrl-C")
    once = verb("once", _once, "Run every collector once and print what it reads", "print one JSON object a record")
    once.add_argument(
        "--out", type=Path, metavar="FILE", help="write a block instead, which `faulthound read FILE` prints"
    )
    verb(
        "check", _check, "Check that this node's evidence reaches the service; change nothing", "print one JSON object"
    )
    verb("status", _status, "Show the status that the running agent has written", "print one JSON object")
    probe = verb("probe", _copy, "Copy the optional probe, one file without dependencies, beside a training script")
    probe.set_defaults(
        file="faulthound_probe", then="import faulthound_probe in the training script, before torch.distributed is used"
    )
    roles = verb("roles", _copy, "Copy the optional role client, one file without dependencies, beside a job's scripts")
    roles.set_defaults(file="faulthound_roles", then="import faulthound_roles in each process that has a role")
    for one in (probe, roles):
        one.add_argument("--write", type=Path, metavar="DIR", required=True, help="folder to copy it into")
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=Path, metavar="FILE", help="TOML file (default: /etc/faulthound/agent.toml)")
    for key in KEYS:
        metavar, about = HELP[key]
        group.add_argument(f"--{key.replace('_', '-')}", dest=key, metavar=metavar, help=about)
    help = "where a root of the node is: proc, sys, dev, run or files; may be repeated"
    group.add_argument("--path", action="append", metavar="ROOT=DIR", help=help)
    levels = ("debug", "info", "warning", "error")
    group.add_argument("--log-level", choices=levels, default="info", help="what is logged on stderr (default: info)")
