"""A line that states that a part of the platform failed, whichever words it has for that: by the part that it names.

It is the weakest evidence of all: what failed is known, and neither why nor whose it was. It counts where no other line says
more, and then names what the part belongs to and no machine. A warning, a sentence and what is tried again state nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.shapes import event
from collectors.formats.job_log.statements import STATED
from collectors.formats.quotations import is_quoted
from collectors.records import LogEvent

WORDS = (
    "ailed", "Fail to ", "nable to", "annot", "ould not", "rror", "FAILED", "ERR",
    "No such device", "Invalid argument", "ermission denied",
)  # fmt: skip
"""A line with none of these states no failure."""
PARTS = {  # name in codes.toml -> what belongs to it
    "PART_OF_FABRIC": r"""
        infiniband rdma\w* ibverbs roce\w* mlx[45] hca efa libfabric ofi ucx openib opensm subnet\smanager gid queue\spairs?
        memory\sregions? gpu\s?direct nvidia[-\s]peermem nv\speer\smem gdrcopy sharp ib\sdevices? nvshmem ibgda psm[23] hfi1?
        cxi\w? slingshot omni-?path verbs rdmacm umad
    """,
    "PART_OF_PLATFORM": r"""
        nvml nvidia[-\s](?:kernel\s)?(?:driver|module)s? nvidia-[a-z]{3,20} container\s(?:runtime|toolkit) fabric\s?manager
        nvswitch\w* device[-\s]plugin gpu[-\s]operator kubelet containerd oci\sruntime runc shim\stask pod\ssandbox cni cgroups?
        seccomp enroot pyxis apptainer singularity spank slurm\w{0,6} munged? cuda\sdriver mps\s(?:server|control\sdaemon) mig
        kata\w{0,20} cri-?o crictl multus sr-?iov calico cilium flannel coredns etcd imex vgpu dkms neuron-\w{2,20} vfio
        dcmi davinci\w* hl-smi habanalabs rocm-smi amd-smi /dev/kfd dcgm hostengine dockerd? podman image\spull
    """,
    "PART_OF_STORAGE": r"""
        lustre nfs gpfs mmfs ceph\w{0,3} beegfs wekafs s3fs gcsfuse juicefs goofys mount-s3 gluster\w{0,4} alluxio hdfs orangefs
        rbd zfs csi persistentvolume\w{0,6} mount\.\w{2,8}
    """,
}
HEAD = 80  # characters: a logger's level stands in them
MAX_CHARACTERS = 600

_PART = re.compile(
    "(?i)"
    + "|".join(rf"(?P<{name}>(?<![\w/.-])(?:{'|'.join(words.split())})(?![\w/]))" for name, words in PARTS.items())
)
_LEVEL = re.compile(
    r"\[?\b(?:ERROR|FATAL|CRITICAL|error|fatal|Error)\b\]?[:\] ]|\blevel=(?:error|fatal)\b|\b[EF]\d{4} \d\d:\d\d"
)
_FAILED = r"(?:[Ff]ailed|Fail to|FAILED|[Uu]nable|[Cc]annot|[Cc]an't|[Cc]ould not|[Ee]rror|ERROR)"
_VERB = re.compile(rf"\b{_FAILED}\b")
_REASON = (  # strerror(3), of a call that a program names
    r"(?:No such device|Invalid argument|Operation not permitted|Permission denied|Cannot allocate memory|Bad address|"
    r"Connection timed out|No data available)"
)
_FORM = re.compile(
    r"^\W{0,4}(?:[\w.()/-]{1,40}(?:\[\d{1,9}\])?: ){0,2}"
    r"(?:[Ff]ail(?:ed)? to |[Uu]nable to |[Cc]ould not |[Cc]annot |[Ee]rror (?:while |when )?\w{3,12}ing )"
    r"|^(?:[\w./-]{1,40}(?:\[\d{1,9}\])?: ){1,2}(?:error|ERROR|fatal)\b"
    r"|^\W{0,4}(?:\[[\w ]{1,20}\]){0,3}\s?\w{4,60} failed!?(?:[ :,(]|$)"
    rf"|^(?:[\w./-]{{1,40}}: ){{0,2}}[a-z]\w{{2,40}}(?:\(.{{0,40}}\))?: {_REASON}\s*$|ERROR, error -\d{{1,3}}\b"
)
_OTHERWISE = re.compile(
    r"(?i)\b(?:retr(?:y|ies|ying)|try(?:ing)? again|fall(?:s|ing)? ?back|fallback|ignor(?:e|ed|ing)|skip(?:ped|ping)?|non-?fatal|"
    r"disabled|optional|recovered|continu(?:e|ing)|harmless|expected|warn(?:ing)?|info|debug|deprecat\w+|instead|will use|if you|"
    r"please (?:ignore|see)|no error|0 errors?)\b"
)
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_SENTENCE = re.compile(r"(?:[a-z]{2,} ){7}[a-z]{2,}")
_SOURCE = re.compile(r"[;{]\s*$|=>|&&|\|\||\w\(.{0,80}\);|^\s{0,12}(?:#|//|\*|def |class |raise |return |if |print\()")


def may_state(text: str) -> bool:
    """Whether a line may state the failure of a part, whatever its numbers are."""
    return any(word in text for word in WORDS) and _PART.search(_in_words(text)) is not None


def events_of(line: Line) -> Iterator[LogEvent]:
    """Yield the failure of a part of the platform that a line states; none for a line that talks about one."""
    text = line.text[:MAX_CHARACTERS]
    if not _states(text) or _OTHERWISE.search(text) or _SOURCE.search(text) or text.rstrip().endswith("?"):
        return
    found, verb = _PART.search(_in_words(text)), _VERB.search(text)
    if found is not None and not is_quoted(text, verb.start() if verb else 0):
        yield event(line, STATED, code=found.lastgroup, message=text.strip())


def _states(text: str) -> bool:
    """Whether a line has the form of a logger's error, a program's, or a call's that failed."""
    if (level := _LEVEL.search(text, 0, HEAD)) and _VERB.search(text, level.end()):
        return True
    return _FORM.search(text) is not None and not _SENTENCE.search(text)


def _in_words(text: str) -> str:
    """Return a text with the words of its identifiers apart: ``rdma_create_ep`` and ``RegisterRdmaRegion`` name RDMA."""
    return _CAMEL.sub(" ", text).replace("_", " ")
