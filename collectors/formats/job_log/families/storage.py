"""What the daemons and tools of distributed file systems say of themselves: requests that stay blocked, parts that are down.

Formats: Ceph 10 to 19 (``ceph health detail``, ``mon/HealthMonitor.cc``, the cluster log), IBM Storage Scale's ``mmfs.log`` and
commands, BeeGFS's log, Lustre's imports and ``lfs``, ``zpool status`` of OpenZFS 0.7 to 2.3. A file system that serves, and is
only not laid out as advised (too few placement groups, no replicas), says so in the same form: those checks are left out.
"""

from __future__ import annotations

from collectors.formats.job_log.shapes import Shape, shape

_CHECKS = (  # of Ceph's health checks those that keep requests from being answered
    r"SLOW_OPS|REQUEST_(?:SLOW|STUCK)|BLUESTORE_SLOW_OP_ALERT|BLUEFS_SPILLOVER|OSD_SLOW_PING_TIME_\w{4,5}|MDS_SLOW_METADATA_IO|"
    r"MDS_SLOW_REQUEST|MDS_DAMAGE|MDS_ALL_DOWN|MDS_CLIENT_LATE_RELEASE|MDS_HEALTH_\w{3,30}|FS_DEGRADED|FS_WITH_FAILED_MDS|"
    r"OSD_(?:HOST_|RACK_|ROOT_)?DOWN|OSD_FULL|OSD_BACKFILLFULL|OSD_UNREACHABLE|POOL_FULL|PG_AVAILABILITY|PG_DAMAGED|"
    r"OBJECT_UNFOUND|MON_DOWN|MON_DISK_CRIT|MGR_DOWN|CEPHADM_FAILED_DAEMON|CEPHADM_HOST_CHECK_FAILED|CACHE_POOL_NEAR_FULL"
)
_TROUBLE = (  # the same in the sentences of the summary
    r"\d{1,9} (?:(?:requests|ops|slow metadata IOs) are blocked > |slow (?:requests|ops), )|MDSs? reports? slow |"
    r"\d{1,6} (?:osds?|hosts?|racks?)(?: \(\d{1,6} osds\))? down|full osd|pool\(s\) full|\bmons? down|mds daemon damaged|"
    r"filesystems? (?:is|are) (?:degraded|offline)|pgs (?:inactive|down|incomplete|stale|stuck|peering)|objects unfound|"
    r"Reduced data availability|Possible data damage|no active mgr|have slow (?:ops|requests)|failed cephadm daemon|"
    r"failing to respond to capability release"
)


def _part(word: str, pattern: str) -> Shape:
    """Build the row of a line after which the file system is known to be in trouble, and no more than that."""
    return shape(word, pattern, "stated", code="PART_OF_STORAGE")


SHAPES = (
    *(
        _part(word, r"^\W{0,4}(?:health: )?(?P<message>" + word + r":?,? .{0,400}?(?:" + _TROUBLE + r").{0,200})")
        for word in ("HEALTH_WARN", "HEALTH_ERR")
    ),
    *(
        _part(word, r"^\s{0,8}\[" + word[1:4] + r"\] (?P<message>(?:" + _CHECKS + r")\b.{0,300})")
        for word in ("[WRN] ", "[ERR] ")
    ),
    *(
        _part(word, r"log_channel\(cluster\) log \[(?:WRN|ERR)\] ?: (?P<message>" + said + r".{0,300})")
        for word, said in (
            ("slow request", r"(?:\d{1,9} slow requests?, |slow request \d)"),
            ("Health check failed: ", r"Health check failed: (?!.{0,200}\((?!(?:" + _CHECKS + r")\)))"),
        )
    ),
    _part(
        "slow ops, oldest one",
        r"^\W{0,16}(?P<message>\d{1,9} slow ops, oldest one blocked for \d{1,9} sec.{0,200})",
    ),
    _part(
        " are blocked > ",
        r"^\W{0,8}(?:mds\.\S{1,80}: )?(?P<message>\d{1,9} (?:ops|slow metadata IOs|requests) are blocked > .{1,160})",
    ),
    *(  # IBM Storage Scale's own log, where a line has its time and level
        _part(word, r"^[\d:. +_TZ-]{10,40} \[[EX]\] (?P<message>.{0,200}" + word + r".{0,200})")
        for word in (
            "The current file system manager failed",
            "unmounted by the system with return code",
            "Lost membership in cluster",
            "is being expelled",
            "Disk failure",
        )
    ),
    *(  # BeeGFS
        _part(word, r"(?:^|\] >> |: )(?P<message>" + word + r".{1,200})")
        for word in (
            "Communication error: Receive timed out from: ",
            "Connect failed: beegfs-",
            "Retrying communication with node: beegfs-",
        )
    ),
    *(  # whoever writes it: a checkpoint that could not be written
        _part(
            word,
            r"(?P<message>(?:Failed|Unable|Could not|Error)(?: to)? (?:sav|writ)\w{1,3} .{0,60}?checkpoint.{0,160}?"
            r"(?:[Ff]ailed to write|[Ww]rite (?:failed|error)|[Ss]hort write).{0,100})",
        )
        for word in ("ailed to write", "rite failed", "rite error", "hort write")
    ),
    *(  # the commands of Storage Scale
        _part(
            word, r"^\s{0,4}mm[a-z]{3,16}: (?:\[[EX]\] )?(?:6027-\d{3,4} )?(?P<message>.{0,160}" + word + r".{0,160})"
        )
        for word in (
            "not ready to handle commands",
            "Command failed",
            "GPFS is down",
            "daemon is not active",
            "not mounted",
        )
    ),
    *(  # zpool status
        _part("state: " + word, r"^\s{1,4}(?P<message>state: " + word + r")\s*$")
        for word in ("DEGRADED", "FAULTED", "SUSPENDED", "UNAVAIL")
    ),
    *(  # lfs df, lfs check
        _part(
            word,
            r"^(?:error: check ')?(?P<message>\S{0,60}(?:OST|MDT)[0-9a-f]{4}\S{0,60}\s{0,24}: .{0,40}"
            + word
            + r".{0,40})",
        )
        for word in ("Resource temporarily unavailable", "inactive device", "Cannot send after transport")
    ),
    _part("state: EVICTED", r"^\s{0,8}(?P<message>state: EVICTED)\s*$"),  # lctl get_param osc.*.import
)
