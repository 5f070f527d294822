"""What a person can do: collect more where a verdict names nothing, get recorder dumps, continue a stopped process. Pure."""

from __future__ import annotations

from shlex import quote

from analyzers.model.verdict import Verdict
from service.reports.advice import WRITES_AT_TIMEOUT, WRITTEN, no_nccl, of_two_sets, what_to_do
from service.reports.hostlists import fold_hosts
from service.reports.story import by_agents, ended_from_outside, of_fleet, plural_ranks

_PROBED = "PYTHONPATH=DIR torchrun … -m faulthound_probe train.py"
_BY_NCCL = "NCCL needs TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr_ from the job's start"
_BY_GLOO = f"gloo, which no variable makes write a dump, needs the probe (`faulthound-agent probe --write DIR`, then `{_PROBED}`)"
_OF_NCCL = "NCCL_DEBUG=INFO "
_OF_WORKER_SERVER = (
    "The flight-recorder dumps of the other ranks, by each one's worker server (PyTorch's debug server), where it runs",
    "curl -s -X POST http://HOST:PORT/handler/fr_trace_json > fr_rankN.json",
)

_AGAIN = (
    "The same again a minute later: a stack that has not moved is stuck",
    "py-spy dump --json --nonblocking --pid PID > stacks_again_rankN.json",
)
_NATIVE = (
    "In which library the threads are, by their native frames; it pauses each process for a moment",
    "py-spy dump --json --native --pid PID > stacks_native_rankN.json",
)

ASK_AGAIN = ("Then ask again, old and new files together", "faulthound diagnose DIR")

_OF_FRAMEWORKS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (
        ("vllm", "enginecore", "shm_broadcast", "workerproc", "rpc call to"),
        "vLLM's own logs",
        "VLLM_LOGGING_LEVEL=DEBUG NCCL_DEBUG=INFO vllm serve …",
    ),
    (
        ("sglang", "self.watchdog_timeout", "rollout engine"),
        "SGLang's own logs",
        "NCCL_DEBUG=INFO python -m sglang.launch_server … --log-level debug",
    ),
    (
        ("xlaruntimeerror", "jaxlib", "coordination service"),
        "JAX's own logs",
        "TF_CPP_MIN_LOG_LEVEL=0 NCCL_DEBUG=INFO python …",
    ),
    (("horovod", "ready ranks"), "Horovod's own logs", "HOROVOD_LOG_LEVEL=debug horovodrun …"),
    (
        ("hccl", "ei0002", "ei0006", "acl stream"),
        "CANN's own logs",
        "ASCEND_GLOBAL_LOG_LEVEL=1 ASCEND_SLOG_PRINT_TO_STDOUT=1 …",
    ),
)
"""Words of a framework whose collectives PyTorch's recorder does not see → whose logs say more, and how they are asked for."""


_COMPARED = {"op_timings", "collective_timings", "straggler_reports", "samples"}
_OF_WAITS = {"flight_recorder", "stacks", "process", "log_event", "ras_communicator", "ring"}
"""Sources that compare workers of a job that runs, and those that show waits and ends."""

_TRACED = """with torch.profiler.profile() as prof: …; prof.export_chrome_trace(f"rank{rank}.json.gz")"""
_READ = "nvidia-smi -q > smi_$(hostname)_$(date +%s).txt"

_LEFT_BY: tuple[tuple[tuple[str, ...], tuple[tuple[str, str], ...]], ...] = (
    (
        ("state: terminated", "crashloopbackoff", "back-off restarting"),
        (
            ("What the container printed before it ended", "kubectl logs POD --previous --timestamps"),
            ("How it ended: its exit status, its reason, its limits", "kubectl describe pod POD"),
        ),
    ),
    (
        ("ray worker", "raylet", "the actor is dead", "the actor died"),
        (("The dead worker's own log, on its node", "tail -n 100 /tmp/ray/session_latest/logs/worker-*-PID.*"),),
    ),
)
"""Words of a platform whose processes have ended → what it keeps of them, and how that is asked for."""


def _shown(verdict: Verdict) -> str:
    """Return the words of the evidence, in lower case and with single spaces."""
    texts = [one.text for one in verdict.evidence] + ([verdict.first_symptom.text] if verdict.first_symptom else [])
    return " ".join(" ".join(texts).lower().split())


def _of_framework(verdict: Verdict) -> tuple[str, str] | None:
    """Return the step for the framework that the evidence shows; None where the recorder is the one to ask."""
    shown = _shown(verdict)
    unread = _OF_NCCL if no_nccl(verdict) else ""
    asked = ((words, whose, how.replace(unread, "")) for words, whose, how in _OF_FRAMEWORKS)
    found = ((whose, how) for words, whose, how in asked if any(word in shown for word in words))
    return next(((f"When it happens again, {whose}", how) for whose, how in found), None)


def leave(verdict: Verdict) -> str:
    """Return that what runs is to be left alone; of files that show no process that runs, that it is if it does."""
    seen = verdict.coverage.sources
    runs = by_agents(verdict) or of_fleet(verdict) or seen.get("stacks") or seen.get("process")
    return f"Do not stop any process or job {'yet' if runs else 'that still runs'}."


def _recorder(verdict: Verdict) -> str:
    """Return how collectives are recorded, as the library needs it that they run on; both where it is not seen."""
    if no_nccl(verdict):
        return _BY_GLOO
    return _BY_NCCL if "nccl" in verdict.coverage.backends else f"{_BY_NCCL}; {_BY_GLOO}"


def unrecorded(verdict: Verdict) -> str:
    """Return how a job is started so that agents get its flight recorders; empty where they did, or it would not matter."""
    seen = verdict.coverage.sources
    if verdict.symptom != "hang" or not by_agents(verdict) or seen.get("flight_recorder") or seen.get("ring"):
        return ""
    open_still = verdict.abstained or verdict.action.kind == "probe"
    return f"no flight recorder could be asked: {_recorder(verdict)}" if open_still else ""


def first_of_all(verdict: Verdict) -> str:
    """Return what to ask before a machine is touched whose process a signal killed or stopped; empty where none is named."""
    if killed := _at(verdict, "process_killed"):
        return (
            f"First: who killed the process? {killed}, the journal of that time shows a daemon that kills for memory "
            "(earlyoom, systemd-oomd, a kubelet) or a scheduler, `memory.events` of its cgroup counts what was killed at a limit "
            "(oom_kill), and `last` shows who was logged in. Then:"
        )
    if verdict.coverage.all_ended or not (where := _at(verdict, "stopped")):
        return ""
    return (
        f"First: who stopped the process? A person, a debugger or a scheduler may have; then the machine is well. {where}, "
        "`ps -eo pid,stat,lstart,args` shows it with T, and `grep TracerPid /proc/PID/status` whether a debugger holds it "
        "(0: none). If it was not stopped on purpose, `kill -CONT PID` lets it go on, and no restart is needed. Only if it "
        "cannot, or stops again:"
    )


def _at(verdict: Verdict, fault_class: str) -> str:
    """Return where the culprits of this fault class are; empty where there are none."""
    roots = {root.root for root in verdict.roots if fault_class in (root.fault_class, *root.agreeing)}
    named = [one for one in verdict.culprits if one.root in roots]
    nodes = fold_hosts([one.id for one in named if one.kind == "node"])
    if named and not nodes:
        ranks = named[0].ranks
        return f"On the node of {plural_ranks(ranks, 4)}" if ranks else "On the node that ran it"
    return f"On {nodes}" if nodes else ""


def beside_plan(verdict: Verdict, kind: str) -> str:
    """Say how what is planned is done, where that is a check; the plan is the one answer, and its reason names the others."""
    return what_to_do(verdict) if kind == "probe" == verdict.action.kind else ""


def before_collecting(verdict: Verdict) -> str:
    """Return what comes before the next steps: of a job that was ended nothing more can be collected."""
    if _gives_no_stacks(verdict):
        return "Its processes have ended, and give no stacks any more. What they left shows more:"
    if not ended_from_outside(verdict):
        return f"{leave(verdict)} More evidence first:"
    return "The job has ended: nothing more can be collected from it. Where it stands still again, before it is ended:"


def next_steps(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return what to collect when no culprit is named: a reason and a command each, the most useful first."""
    have = verdict.coverage.sources
    if of_fleet(verdict):  # what machines share is not in their processes
        return ()
    if by_agents(verdict):  # of an agent, which can be asked: no login on a node is needed
        job = quote(verdict.job) if verdict.job else "JOB"
        again = f"faulthound export {job} --force again.fhz && faulthound diagnose again.fhz"
        return (
            ("What the job's agents can get now", f"faulthound jobs collect {job}"),
            ("Then export it, and ask again", again),
        )
    if _gives_no_stacks(verdict):
        return _of_ended(verdict)
    if verdict.symptom == "slow" or (have.keys() & _COMPARED and not have.keys() & _OF_WAITS):
        return _of_slow(verdict)
    first = verdict.suspects[0].ranks if verdict.suspects else ()
    where = f"on the nodes of {plural_ranks(first, 4)}" if first else "on every node"
    steps = []
    dumps, ranks = have.get("flight_recorder", 0), verdict.coverage.ranks_expected or 0
    if not dumps and (of_framework := _of_framework(verdict)) is not None:
        steps.append(of_framework)
    elif no_nccl(verdict) and dumps and (dumps < ranks or verdict.coverage.ranks_at_least):
        steps.append(_OF_WORKER_SERVER)  # gloo's dumps are had from there
    elif not no_nccl(verdict) and (not dumps or dumps < ranks or verdict.coverage.ranks_at_least):
        what = "The flight-recorder dumps of the other ranks, on every node" if dumps else "What each rank waits for"
        steps.append((f"{what}; {_recorder(verdict)}", "for p in /tmp/fr_*.pipe; do echo dump > $p; done"))
    if not have.get("stacks"):
        steps.append(
            (f"Where the threads are, {where}", "py-spy dump --json --nonblocking --pid PID > stacks_rankN.json")
        )
    if not have.get("process"):
        steps.append(
            (
                f"Whether a process is stopped or sleeps in the kernel, {where}",
                "ps -wweo pid,stat,wchan:32,etime,args > ps_$(hostname).txt",
            )
        )
    if no_nccl(verdict) and not have.get("ring"):
        steps.append((f"When it happens again, what each rank waits for; {_BY_GLOO}", _PROBED))
    if not have.get("kernel_event"):
        steps.append((f"What the kernel logs, {where}", "dmesg -T > dmesg_$(hostname).txt"))
    if not steps:
        steps.append(_NATIVE if of_two_sets(verdict) else _AGAIN)
    return (*steps[:3], ASK_AGAIN)


def _of_slow(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return what shows who is slow: readings of the devices, and what each rank computes; dumps show waits."""
    have, steps = verdict.coverage.sources, []
    if not have.get("op_timings"):
        steps.append(("What each rank computes: a trace of torch.profiler of each, of ten steps", _TRACED))
    steps.append(("Clocks, power, links and errors of the GPUs, on every node that has some, several times", _READ))
    return (*steps, ASK_AGAIN)


def _gives_no_stacks(verdict: Verdict) -> bool:
    """Whether every process has ended, or the launcher reports ends and nothing read was taken of one that still ran."""
    have = verdict.coverage.sources
    of_some = verdict.coverage.has_ended and not have.get("stacks") and not have.get("process")
    return (verdict.coverage.all_ended or of_some) and not by_agents(verdict)


def _of_ended(verdict: Verdict) -> tuple[tuple[str, str], ...]:
    """Return what is left of a job whose processes have ended: its logs, its recorders' dumps and the nodes' kernel logs."""
    have = verdict.coverage.sources
    steps = []
    if verdict.symptom == "hang" and not have.get("flight_recorder") and not no_nccl(verdict):
        steps.append((f"What flight recorders wrote at the time-out, on every node; {WRITES_AT_TIMEOUT}", WRITTEN))
    if (of_framework := _of_framework(verdict)) is not None:
        steps.append(of_framework)
    left = next((asked for words, asked in _LEFT_BY if any(word in _shown(verdict) for word in words)), ())
    steps += left or (
        ("The logs of all ranks; a launcher keeps each one's own", "torchrun --log-dir logs --redirects 3 … train.py"),
    )
    if not have.get("kernel_event"):
        steps.append(("What the kernel logged, on every node", "dmesg -T > dmesg_$(hostname).txt"))
    steps.append(
        ("How the scheduler records the end of each node's part", "sacct -j JOB -o JobID,State,ExitCode,NodeList%80")
    )
    return (*steps[:3], ASK_AGAIN)
