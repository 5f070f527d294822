"""What a fault class is: one row of the table in ``fault_classes``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from analyzers.model.finding import Cause

ActionKind = Literal[
    "none", "probe", "restart_role", "reattempt", "restart_job", "rollback", "reset_gpu", "reboot_node", "evict"
]  # the weakest first
Trait = Literal[
    "job_may_run",  # the job runs, or may run: a claim that only supports others does not stand beside it
    "alone",  # it stands only where nothing else is claimed, and supports nothing
    "words_only",  # no line of a program shows it: a machine that is named is tested, and nothing else is done
    "supports",  # it supports other claims, and stands by itself only where there is none
    "no_dump",  # it rests on a missing dump alone
    "no_stack",  # it rests on a missing stack alone
    "own_state",  # the process's own state shows it: that the rank waits for files or has left is no excuse
    "on_device",  # the rank waits for its device: what its host does meanwhile is no excuse
    "alike",  # without named ranks it is about all ranks that stand alike
    "any_size",  # the set of suspects is named, however large
    "stacks_add",  # stacks that point at other ranks widen the set of suspects
    "while_absent",  # a live rank that has a process again is not evicted for it
    "may_start",  # a live rank may still be starting: only its process's state evicts it
    "asked",  # the job was ended from outside: what held it up before is the root, where anything did
    "from_outside",  # the job was ended from outside, and nothing is wrong
    "ended",  # a process that ended, as each does once the job is ended from outside
    "waits_outside",  # the ranks of its scope wait for what is outside their role or job: no wait of others accuses them
    "own_input",  # what a rank alone reads: that it holds the others up shows who, and does not accuse its machine
    "own_code",  # a place in the program's own code: with no other evidence its code or data holds it as well as its machine
    "in_step",  # its role's instances wait for each other at every step: that all rest does not show which of them holds it up
    "gray",  # its hardware works and is not well: it agrees with a slow node, and changes no verdict of a hang or a crash
    "own_failure",  # a process failed for a reason of its own: that another ended without a word follows from it
    "raised_again",  # the same code raises it again on the same data: a plain restart is no mend
    "device_decides",  # an error of the device as its program saw it: the kernel's own event of that device shows the cause
    "kernel_decides",  # its process ended and no line says why: the kernel's own event of its machine's hardware does
    "disk_decides",  # a file could not be read or written: the kernel's own error of that node's disk shows the cause
    "of_disk",  # what failed is a disk of the node: a test of its GPUs shows nothing of it
    "was_ended",  # another ended it, and nothing shows who: it is no doer
    "unanswered",  # its node did not answer: whether it does now comes before any test on it
    "of_process",  # another process in its place has none of it: an instance of a role is restarted, and keeps its machine
    "everywhere",  # every rank failed alike: the code of this version is broken
]


@dataclass(frozen=True, slots=True)
class FaultClass:
    """One row. A ``name`` with * stands for all that fit it, and {} in ``words`` for what * stands for.

    ``claimed_by``: the analyzers that claim it; "verdict": it is made while their claims are weighed.
    ``causes``: the causes that a claim of this class may have.
    ``strongest``: the strongest action that it leads to with no other evidence; of an event of a device, the strongest that
    the table of hardware events may ask for (``analyzers/knowledge/xid.toml``).
    ``words``: what happened, as a sentence goes on after the rank's name and a colon.
    ``proof``: why its evidence alone is enough to evict, as a sentence goes on; empty: it is not.
    ``advice``: why ``strongest`` is the action where the first of ``causes`` is the cause; empty: the cause decides.
    """

    name: str
    claimed_by: tuple[str, ...]
    causes: tuple[Cause, ...]
    strongest: ActionKind
    words: str
    proof: str = ""
    advice: str = ""
    traits: tuple[Trait, ...] = ()
