"""The command line of ``faulthound-agent``: one function a verb."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.agent.settings import KEYS, Misconfigured, Settings, load

DONE, NO, USAGE, TAKEN, UNKNOWN = 0, 1, 2, 3, 3
EPILOG = """\
examples:
  faulthound-agent check                                     is this node's evidence on its way?
  faulthound-agent once --skip gpu,dcgm                      what does this node show now?
  faulthound-agent run --service https://faulthound:4747     what the systemd unit runs

Settings come from /etc/faulthound/agent.toml, then FAULTHOUND_SERVICE, FAULTHOUND_TOKEN_FILE, … then flags.
The token comes from --token-file or FAULTHOUND_TOKEN, never from the command line itself.
"""
EXAMPLES = {
    "run": "  faulthound-agent run --service https://faulthound:4747 --token-file /etc/faulthound/token\n"
    "  faulthound-agent run --path proc=/host/proc --path sys=/host/sys    in a container",
    "once": "  faulthound-agent once --collectors kernel,host\n"
    "  faulthound-agent once --json | head -1\n"
    "  faulthound-agent once --out now.fhb && faulthound read now.fhb",
    "check": "  faulthound-agent check; echo $?     0 all is well, 1 warning, 2 critical, 3 unknown (Nagios)",
    "status": "  faulthound-agent status --json",
    "probe": "  faulthound-agent probe --write ./training     then: import faulthound_probe",
}
HELP = {
    "service": "address of the service, https://HOST:PORT",
    "token_file": "file with the token, one line; read again when the service does not know the token",
    "ca_file": "PEM file with the authority that signed the service's certificate",
    "node": "this node's name (default: its host name)",
    "state": "folder of the spool and the cursors (default: /var/lib/faulthound)",
    "collectors": "run these only, separated by commas",
    "skip": "leave these out",
    "spool_bytes": "bound of the spool; beyond it the oldest batches are dropped and counted",
    "ship_seconds": "how often a batch is made (default: 10)",
    "deny_file": "verbs that this node refuses, one a line (default: /etc/faulthound/deny)",
}


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it tells of every request
    try:
        # The probe is for whoever trains, who may not read the agent's settings and needs none of them.
        settings = Settings() if options.verb is _probe else load(options.config, os.environ, vars(options))
        code: int = options.verb(settings, options)
    except Misconfigured as error:
        if options.verb is _check:  # Nagios reads stdout
            print(f"UNKNOWN: {error}")
            return UNKNOWN
        print(f"faulthound-agent: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


def _run(settings: Settings, _options: argparse.Namespace) -> int:
    from collectors.agent.agent import AlreadyRunning, serve

    try:
        serve(settings)
    except AlreadyRunning as error:
        print(f"faulthound-agent: {error}", file=sys.stderr)
        return TAKEN
    return DONE


def _once(settings: Settings, options: argparse.Namespace) -> int:
    from collectors.agent.once import as_json, as_text, look, table
    from collectors.records import block

    records, outcomes = look(settings)
    if options.out is not None:
        try:
            options.out.write_bytes(block.encode(records, pack=True))
        except OSError as error:
            raise Misconfigured(
                f"--out {options.out} cannot be written ({error.strerror}): name another file"
            ) from error
    elif options.json:
        for record in records:
            print(as_json(record).decode())
    else:
        for record in records:
            print(as_text(record))
    print(table(outcomes), file=sys.stderr)
    return NO if any(one.kind in {"failed", "overran"} for one in outcomes) else DONE


def _check(settings: Settings, _options: argparse.Namespace) -> int:
    from collectors.agent.check import check

    code, line = check(settings)
    print(line)
    return code


def _status(settings: Settings, options: argparse.Namespace) -> int:
    import msgspec

    from collectors.agent.check import is_alive, read_status
    from collectors.live.sources.clock import NodeClock

    status = read_status(settings)
    if status is None:
        print(f"faulthound-agent: no agent has written {settings.state}/status.json: start one, or give --state",
              file=sys.stderr)  # fmt: skip
        return NO
    alive = is_alive(status, NodeClock().now())
    print(msgspec.json.encode(status).decode() if options.json else _status_text(status, alive=alive))
    return DONE if alive else NO


def _status_text(status: Any, *, alive: bool) -> str:
    lines = [
        f"{status.node}: agent {status.version}, process {status.pid}, {'running' if alive else 'not running'}",
        f"  service     {status.service}  {status.service_trouble or 'takes the records'}",
        f"  shipped     {status.shipped_batches} batches, {status.shipped_bytes:,} bytes, newest {_time(status.shipped_at)}",
        f"  spooled     {status.spooled_batches} batches, {status.spooled_bytes:,} bytes  {status.spool_trouble}".rstrip(),
        f"  lost        {status.dropped_batches} dropped ({status.dropped_records} records), {status.refused_batches} refused",
        f"  {'collector':<12} {'every':>7} {'runs':>8} {'nothing':>8} {'failed':>7} {'overran':>8} {'records':>9}  newest reason",
    ]
    lines += [
        f"  {one.name:<12} {one.every_seconds:>6g}s {one.runs:>8} {one.nothing:>8} {one.failures:>7} {one.overran:>8}"
        f" {one.records:>9}  {one.error}".rstrip()
        for one in status.collectors
    ]
    return "\n".join(lines)


def _time(at: float | None) -> str:
    return "never" if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")


def _probe(_settings: Settings, options: argparse.Namespace) -> int:
    source = Path(__file__).resolve().parents[1] / "faulthound_probe.py"
    target = options.write / source.name
    try:
        options.write.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    except OSError as error:
        print(f"faulthound-agent: {target} cannot be written: {error.strerror}: name another folder", file=sys.stderr)
        return USAGE
    print(f"{target}: import faulthound_probe in the training script, before torch.distributed is used")
    return DONE


def _parser() -> argparse.ArgumentParser:
    from collectors.agent import agent_version

    form = argparse.RawDescriptionHelpFormatter
    about = (
        "Reads what this node shows of a training job, from outside the job, and ships it to the Faulthound service."
    )
    parser = argparse.ArgumentParser(prog="faulthound-agent", description=about, epilog=EPILOG, formatter_class=form)
    parser.add_argument("--version", action="version", version=f"faulthound-agent {agent_version()}")
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    def verb(name: str, function: Any, help: str) -> argparse.ArgumentParser:
        epilog = f"examples:\n{EXAMPLES[name]}"
        one = verbs.add_parser(name, help=help, description=help, epilog=epilog, formatter_class=form)
        one.set_defaults(verb=function, log_level="info")
        if function is not _probe:
            _add_settings(one)
        return one

    verb("run", _run, "run until SIGTERM")
    once = verb("once", _once, "run every collector once and print what it reads")
    once.add_argument("--json", action="store_true", help="one JSON object a record")
    once.add_argument("--out", type=Path, metavar="FILE", help="write a block, which `faulthound read` reads")
    verb("check", _check, "say in one line whether this node's evidence is on its way; changes nothing")
    status = verb("status", _status, "show what the running agent tells of itself")
    status.add_argument("--json", action="store_true", help="as one JSON object")
    probe = verb("probe", _probe, "copy the optional probe, one file without dependencies, beside a training script")
    probe.add_argument("--write", type=Path, metavar="DIR", required=True, help="folder to copy it into")
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings")
    group.add_argument("--config", type=Path, metavar="FILE", help="TOML file (default: /etc/faulthound/agent.toml)")
    for key in KEYS:
        group.add_argument(f"--{key.replace('_', '-')}", dest=key, metavar="…", help=HELP[key])
    group.add_argument("--path", action="append", metavar="ROOT=DIR", help="where proc, sys, dev, run or files begin")
    levels = ("debug", "info", "warning", "error")
    group.add_argument("--log-level", choices=levels, default="info", help="what is told on stderr")
