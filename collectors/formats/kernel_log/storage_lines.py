"""Kernel lines about disks, local file systems, and file servers that stop answering or answer again, as rows.

Formats: Linux 3.10 to 6.12 (block, nvme, md, ext4, XFS, btrfs, iSCSI, NFS, CIFS, ceph), Lustre 2.5 to 2.16. Every pattern begins
where the text begins: the rest of a line may hold a name that a user chose.
"""

from __future__ import annotations

_TROUBLE_OF_NVME = (
    r"timeout, (?:aborting|reset|disable)|controller is down|Device not ready|Removing after probe failure|"
    r"failed to set|Abort status|reset controller"
)
_TROUBLE_OF_XFS = r"[Cc]orruption|[Ss]hutdown|[Ss]hutting down|I/O [Ee]rror"
_BLOCK = r"(?:\w{1,32}: )?(?:Buffer )?"  # "blk_update_request: "
_LUSTRE = r"[^'\"]*"  # a line ends with the job's name in quotes, which a user chose
_CLOSED = r"socket closed(?! \(con state OPEN\))"  # an open one that is idle is closed, and opened for the next request
_IMPORT = r"(?P<device>[\w.@:]{1,64}?(?:-(?:MDT|OST)[0-9a-f]{4})?)(?:-(?:osc|mdc|mgc|lwp|osp)\b[^\s:]{0,80})?"
_TARGET = r"(?P<device>[\w.]{1,40}-(?:MDT|OST)[0-9a-f]{4})?"
_FAILED = (
    r"failed(?: with|: rc =) -(?:5|107|108|110|11[1-6])\b"  # errno(3): the server, or the way to it, gave no answer
)
_UNSENT = r"(?:failed due to network error|timed out for sent delay)"
_LOST = "nfs_not_responding"

ROWS: tuple[tuple[str, str, str], ...] = (  # a word of the line, its pattern, the event; the group ``device``
    ("critical ", r"(?:\w{1,32}: )?critical (?:medium|target) error,? dev (?P<device>[\w-]{1,32})", "fs_error"),
    ("EXT4-fs (", r"EXT4-fs \((?P<device>[\w-]{1,32})\): (?:Remounting filesystem read-only|I/O error)", "fs_error"),
    ("BTRFS ", r"BTRFS (?:critical|error) \(device (?P<device>[\w-]{1,32})", "fs_error"),
    ("Disk failure", r"md/raid\w{0,8}:\w{1,16}: Disk failure on (?P<device>[\w-]{1,32})", "fs_error"),
    ("nvme", r"(?:nvme )?(?P<device>nvme\d+)(?:n\d+)?: (?:.*(?:" + _TROUBLE_OF_NVME + "))", "io_error"),
    ("I/O error", _BLOCK + r"I/O error(?:,| on) dev(?:ice)? (?P<device>[\w-]{1,32})", "io_error"),
    ("EXT4-fs", r"EXT4-fs error \(device (?P<device>[\w-]{1,32})\)", "fs_error"),
    (
        "XFS (",
        r"XFS \((?P<device>[\w-]{1,32})\): (?!.{1,64}\(\d+\) possible).*(?:" + _TROUBLE_OF_XFS + ")",
        "fs_error",
    ),
    (
        "libceph: ",
        rf"libceph: (?P<device>(?:osd|mon|mds)\d{{1,5}}) .{{0,120}}(?:down$|{_CLOSED}|socket error|connect error|session lost)",
        _LOST,
    ),
    ("libceph: ", r"libceph: (?P<device>(?:osd|mon|mds)\d{1,5}) .{0,120}(?:up$|session established)", "nfs_responding"),
    (
        "ceph: ",
        r"ceph: (?:\[[\w ]{1,80}\]: ?)?(?P<device>mds\d{1,5}) (?:reconnect denied|caps stale|rejected session)",
        _LOST,
    ),
    ("RPC call returned error", r"\w{3,12}: RPC call returned error (?:10[14]|11[0-3])\b", _LOST),
    ("CIFS", r"CIFS:? VFS: (?:\\\\(?P<device>\S{1,128}) )?.{0,200}rc = -(?:104|11[0-3])\b", _LOST),
    ("detected conn error", r"(?P<device>connection\d{1,6}:\d{1,6}): detected conn error", _LOST),  # iSCSI
    ("nfs: server", r"nfs: server (?P<device>\S{1,128}) (?:not responding|timed out)", _LOST),
    ("nfs: server", r"nfs: server (?P<device>\S{1,128}) OK", "nfs_responding"),
    ("NFS: state", r"NFS: state manager: .{1,80} failed on NFSv4 server (?P<device>\S{1,128}) with error \d", _LOST),
    ("CIFS", r"CIFS:? VFS: (?:\\\\|Server )(?P<device>\S{1,128}) has not responded in \d{1,6} seconds", _LOST),
    ("ceph: ", r"ceph: (?:\[[\w ]{1,80}\]: ?)?(?P<device>mds\d{1,5}) (?:hung|came back with stale)", _LOST),
    ("LustreError", rf"LustreError: {_LUSTRE}(?:evicted|timed out|not responding)", _LOST),
    ("Lustre", rf"Lustre: {_IMPORT}: Connection to {_LUSTRE}was lost", _LOST),
    (
        "LustreError",
        rf"LustreError: [\d:-]{{1,40}} {_TARGET}{_LUSTRE}(?:operation \w{{1,40}} to node|communicating with) {_LUSTRE}{_FAILED}",
        _LOST,
    ),
    ("Lustre", rf"Lustre: {_LUSTRE}Request sent has {_UNSENT}(?:{_LUSTRE}->{_TARGET})?", _LOST),
    ("LNet", rf"LNet(?:Error)?: {_LUSTRE}Timed out (?:tx|RDMA)\b", _LOST),
    ("Lustre", rf"Lustre: {_IMPORT}: Connection restored to ", "nfs_responding"),
)
