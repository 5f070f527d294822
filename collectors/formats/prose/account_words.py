"""What people call an error when they report it, by the names that the closed vocabularies have for it.

A program prints "an illegal memory access was encountered"; a person writes that training throws an illegal memory access. A row
is ``NAME: pattern``, in which <GPU> and the like stand for words; the first row that fits a sentence names it. The words are
those of titles and reports in public trackers. Many are written in Chinese; of German the commonest are read.
"""

from __future__ import annotations

import re
from functools import cache

_WORDS = {
    "<GPU>": r"(?:GPUs?|(?:graphics? |video )?cards?|accelerators?|NPUs?|XPUs?|HPUs?)",
    "<ONE>": r"(?:an?|the|one|two|three|some|its|\d)",
    "<NO_TIME>": r"(?! (?:hours?|days?|time|memory|util\w*))",
    "<BROKEN>": r"(?:broken|faulty|defective|damaged|dying|dead|died|failing|bad|failed)",
    "<IS>": r"(?:(?:is|are|was|were|has|have|had|got|gets?|went|goes|keeps?|became|become) (?:\w+ |been )?)",
    "<HOST>": r"(?:server|machine|node|host|computer|PC|workstation|box|system)",
    "<MISS>": r"(?:no|not|cannot|can't|couldn't|unable to|isn't|failed to)",
    "<SEEN>": r"(?:detected|found|recogni[sz]ed|visible|available|seen)",
    "<LITTLE>": r"(?:small|full|little|low|short|exhaust\w*|insufficient|not enough|ran out|runs? out|too large|exceed\w*)",
    "<PORT>": r"(?:ports?|links?|NICs?|HCAs?|cables?|transceivers?|switch(?:es)?)",
    "<FILE>": r"(?:files?|downloads?|shards?|checkpoints?|weights?|archives?|datasets?|images?|cache|safetensors|ckpt|parquet)",
    "<SLOW>": r"(?:slow(?:s|ed|er|ness|ly|ing)?(?: down)?|bottleneck\w*|long time|too long|very long|stall(?:s|ed|ing)?)",
    "<LOADER>": (
        r"(?:data ?-?load(?:er|ers|ing)|load(?:ing|s)? (?:the )?(?:data|images|batch\w*|dataset)|data (?:reading|preprocessing))"
    ),
    "<ITSELF>": r"(?:(?:by )?itself|randomly|suddenly|automatically|without (?:any )?warning)",
    "<RESTARTS>": r"(?:restart(?:s|ed)|reboot(?:s|ed))",
    "<ALWAYS>": r"(?:keeps?|kept|continu\w+|constant\w*|always|gradual\w*|linear\w*|slowly|little by little)",
    "<GRADIENT>": r"(?:loss|grad(?:ient)?s?(?:[ _]norms?)?|outputs?|training)",
    "<STAGES>": r"(?:FSDP|DDP|ZeRO|pipeline|PP|stages?|validat\w+|eval\w*|checkpoint\w*|logg\w+|broadcast\w*|barrier\w*)",
    "<DEADLOCK>": r"dead ?lock(?:s|ed|ing)?",
    "<NO_DRIVER>": r"(?!.*\b(?:driver|kernel|firmware|BIOS)\b)",
    "<SPOT>": r"(?:spot|preemptible) (?:instances?|VMs?|nodes?|TPUs?|hosts?)",
    "<STORE>": r"(?:NFS|HDFS|Lustre|CephFS|BeeGFS|GPFS|WekaFS|JuiceFS|blobfuse\d?|gcsfuse|s3fs|mountpoint-s3|FSx|EFS|lizardfs)",
    "<MEMORY>": r"(?:memory|RAM)(?: usage| use| consumption)?",
    "<HUB>": r"(?:hugging ?face(?:\.co)?|hf|modelscope|wandb|github|pypi|s3|gcs|(?:the )?(?:hub|registry))",
}

# The order is that of what decides more: what is broken, before what a program met.
ROWS = r"""
gpu_gone: \b(?:lost|loses?|losing|lack\w*|dropp\w+|drops) <ONE>(?: of \w+)? (?:\w+ )?<GPU>\b<NO_TIME>
gpu_gone: \b<GPU>(?: ?#?\d{1,2})? (?:\w+ly )?(?:<IS>)?(?:lost|missing|missed|disappear\w*|vanish\w*|gone|<BROKEN>)\b
gpu_gone: \b<GPU>(?: ?#?\d{1,2})? (?:\w+ly )?(?:<IS>)?(?:drop\w*|fall\w*|fell) (?:off|out)\b
gpu_gone: \b(?:fall(?:s|en|ing)?|fell) off the bus\b|掉卡|显卡(?:丢失|消失|掉)
gpu_overheated: \b<GPU>\b[^.;]{0,40}\b(?:over-?heat\w*|too hot|thermal(?:ly)? (?:throttl\w*|shut ?down|slowdown))
gpu_overheated: \b(?:over-?heat\w*|thermal throttling) (?:of )?(?:the |my |a |one )?<GPU>\b
gpu_memory_fails: \b(?:high|increas\w+|rising|many|growing|constant\w*|repeated)\b[^.;]{0,40}\b(?:ECC|SBE|DBE) [^.;]{0,20}errors?
gpu_memory_fails: \b(?:high|increas\w+|rising|many|growing)\b[^.;]{0,30}\b(?:un)?correct(?:able|ed) [^.;]{0,20}errors?
gpu_memory_fails: \buncorrect(?:able|ed) (?:ECC )?(?:memory )?errors?\b|\bdouble[- ]bit (?:ECC )?errors?\b
gpu_memory_fails: \brow[- ]remap\w* (?:fail\w*|pending)
host_powers_off: \b<HOST>\b[^.;]{0,24}\b(?:powers? (?:itself )?off|powered off|shuts? (?:itself )?down)\b
host_powers_off: \b<HOST>\b[^.;]{0,24}\b(?:reboot|restart|<RESTARTS>) <ITSELF>\b
host_powers_off: \b(?:my|the|our|whole) <HOST> (?:always |just |often )?<RESTARTS>(?= *(?:[.,;]|when|while|during|$))
host_powers_off: \b(?:power (?:supply|supplies|cable|cord)|PSU|riser)s? (?:<IS>)?(?:insufficient|<BROKEN>)\b
kernel_bug: \bkernel (?:panics?|oops|bug|crash\w*)\b
cudaErrorIllegalAddress: illegal (?:memory|address) access|非法(?:内存|地址)访问
cudaErrorMisalignedAddress: misaligned address
cudaErrorIllegalInstruction: CUDA[^.;]{0,20}illegal instruction
cudaErrorAssert: device[- ]side assert
ZE_RESULT_ERROR_DEVICE_LOST: (?:\b|_)device[-_ ](?:is |was |has been |got )?lost\b|\bdevice loss\b
segmentation_fault: \bseg(?:mentation)?[- ]?fault\w*|\bSIGSEGV\b|\bcore dump(?:s|ed)?\b|段错误
UCS_ERR_SHMEM_SEGMENT: (?:shared memory|/dev/shm|\bshm\b)[^.;]{0,40}\b<LITTLE>\b|共享内存(?:不足|不够)
UCS_ERR_SHMEM_SEGMENT: \b(?:out of|insufficient|not enough|no more|too little) (?:shared memory|shm|/dev/shm)
cudaErrorMemoryAllocation: \b(?:CUDA|<GPU>|VRAM|HBM|HIP|device)\b[^.;]{0,24}(?:\bout[- ]of[- ]memory|\bOOM(?:s|ed|ing)?\b)
cudaErrorMemoryAllocation: \b(?:out[- ]of[- ]memory|OOM(?:s|ed|ing)?)\b[^.;]{0,24}\b(?:CUDA|VRAM|HBM|device memory|<GPU>)\b
cudaErrorMemoryAllocation: OutOfMemory(?:Error)?\b|\bCUDA_?OOM\b|显存(?:不足|溢出|不够|爆)|爆显存
cudaErrorMemoryAllocation: \b(?:GPU|VRAM|Grafik\w{0,8})[- ]?speicher\b[^.;]{0,24}\b(?:voll|reicht nicht|ausgegangen|erschöpft)\b
cudaErrorMemoryAllocation: \b(?:kein|zu wenig) (?:freier )?Speicher(?: mehr)? (?:auf|in) (?:der|den) (?:GPUs?|Grafikkarten?)\b
ENOMEM: \b(?:Arbeits|Haupt)speicher\b[^.;]{0,24}\b(?:voll|reicht nicht|ausgegangen|erschöpft)\b
segmentation_fault: \bSpeicherzugriffsfehler\b
ENOSPC: \b(?:Festplatte|Platte|Partition|Dateisystem|Laufwerk)\b[^.;]{0,24}\bvoll\b|\bkein Speicherplatz\b
EACCES: \bZugriff verweigert\b|\b(?:keine|fehlende) Berechtigung\b|没有权限|权限不足
ENOMEM: \bOOM[- ]?kill\w*|内存(?:不足|溢出|泄漏|爆)|爆内存
ENOMEM: \b(?:<HOST>|CPU|system|container|pod)(?:'s)? (?:memory|RAM)?[^.;]{0,16}(?:out[- ]of[- ]memory|\bOOM(?:s|ed)?\b)
ENOMEM: \b(?:out of|exhaust\w+|(?:eat|use)s? up(?: all)?)(?: the| my| of)* (?:host|CPU|system|main|physical)? ?RAM\b
ENOMEM: \b(?:killed|kills?)\b[^.;]{0,60}\b(?:took|taking|takes|used|using|uses?)\b[^.;]{0,20}\b\d{1,4} ?[GT]i?B?\b
ENOMEM: \bworkers?\b[^.;]{0,30}\bis killed by signal\b(?!: [A-JL-Z])
ENOMEM: \bSIGKILL\b|\bsignal 9\b|(?<!terminated with )\bexit(?:ed|s)?(?: with)?(?: status| code)*:? (?:-9|137)\b
ENOMEM: \b(?:is|are|was|be|being|been|gets?|got) (?:always |suddenly |randomly )?killed (?:when|while|during|in|at|after)\b
ENOMEM: ^\W{0,3}killed\w? (?:error|in|during|while|when|at|after)\b
memory_grows: \bmemory leak\w*|\bleak(?:s|ed|ing)? (?:GPU |CPU |host |system )?(?:memory|RAM)\b
memory_grows: \b<MEMORY>\b[^.;]{0,24}\b<ALWAYS>\b[^.;]{0,16}\b(?:grow\w*|increas\w*|ris\w+|climb\w*)
memory_grows: \b<MEMORY>\b[^.;]{0,30}\b(?:grow(?:s|ing)|increas(?:es|ing)|explod\w+|gets? larger|used more and more)\b
OOM: \bout[- ]of[- ]memory\b|\bOOM(?:s|ed|ing)?\b
ENOSPC: \b(?:disk|partition|volume|file ?system|/tmp|inodes?)\b[^.;]{0,30}\b(?:is|was|got|gets|were|are) (?:\w+ )?full\b
ENOSPC: \bno (?:free )?(?:disk )?space(?: is)? left\b|\b(?:out of|not enough) disk(?: space)?\b|磁盘(?:空间不足|已?满)
EDQUOT: \bquota <IS>?(?:exceeded|exhausted|full|reached)\b|\b(?:over|exceed\w*)(?: the| my| our)? (?:disk |storage )?quota\b
ESTALE: \bstale (?:NFS )?file handles?\b
EROFS: \bread-?only file ?system\b
EIO: \b(?:input/output|i/o|io|disk) errors?\b
EACCES: \bPermissionError\b|\bpermission denied\b|\black of (?:write|read) access\b
damaged_file: \b<FILE>\b[^.;]{0,30}\b(?:<IS>|seems? )(?:corrupt\w*|damaged|truncated|incomplete|broken)\b
damaged_file: \b(?:corrupt(?:ed)?|truncated|damaged|incomplete) (?:\w+ )?<FILE>\b|\b<FILE>\b[^.;]{0,30}\bcorrupted\b
damaged_file: \bchecksum (?:mismatch\w*|error|fail\w*)|\bheader is malformed\b|(?:文件|权重|数据|模型)(?:已)?(?:损坏|不完整)
HTTP_TOO_MANY_REQUESTS: \b429 ?(?:エラー|错误)|\b429 (?:client )?errors?\b
HTTP_TOO_MANY_REQUESTS: \brate[- ]?limit(?:ed|s|ing)?\b|\btoo many requests\b|\b(?:HTTP|error|status)(?: code)? 429\b|\b429 error
HTTP_SERVICE_NOT_AVAILABLE: \b<HUB>\b[^.;]{0,30}\b(?:<IS>|seems? (?:to be )?)(?:down|unavailable|unreachable|offline|blocked)\b
HTTP_SERVICE_NOT_AVAILABLE: \b(?:HTTP|error|status)(?: code)? 50[0234]\b|\b50[0234] (?:error|server error|bad gateway|when\b)
HTTP_SERVICE_NOT_AVAILABLE: <MISS> (?:connect|access|reach|download)(?: to| from)? <HUB>\b
IBV_EVENT_PORT_ERR: \b<PORT>\b[^.;]{0,24}\b<IS>(?:down|flapp\w+|<BROKEN>)\b|\b<PORT> flap\w*
IBV_EVENT_PORT_ERR: \b(?:flapping|<BROKEN>) (?:IB |InfiniBand |network |optical )?<PORT>\b
IBV_EVENT_PORT_ERR: \b(?:Port|Netzwerkkarte|Netzwerkkabel|Link)\b[^.;]{0,32}\b(?:ausgefallen|defekt|unterbrochen|kaputt)\b
IBV_EVENT_PORT_ERR: \bNetzwerk\b[^.;]{0,40}\b(?:ausgefallen|unterbrochen)\b|网卡(?:故障|坏了|断开)|网络(?:中断|断开)
IBV_WC_RETRY_EXC_ERR: \b(?:transport )?retry (?:count|counter) exceeded\b|\bpacket loss\b|\bdropped packets\b
program_error: \b(?:Import|ModuleNotFound|Attribute|Type|Key|Index|Value|NotImplemented|Assertion|Name|Syntax|Recursion)Error\b
misconfigured: \bversions? (?:mismatch\w*|conflicts?|(?:is|are|was|were|do|does)(?: not|n't)? (?:match|(?:in)?compatible))\b
misconfigured: \b(?:is|are|was|were) (?:not |in)compatible with\b|\b(?:was )?(?:not|n't) (?:built|compiled) (?:with|for)\b
misconfigured: \b(?:unsupported|unrecogni[sz]ed|unknown|invalid) (?:option|argument|flag|parameter|config\w*|value for)\b
misconfigured: \bmust be (?:divisible by|a multiple of)\b|\bnot divisible by\b|\bsize mismatch for\b|版本(?:不匹配|冲突|不兼容)
misconfigured: \breceived \d{1,3} items? of ancdata\b|\btoo many files? open\b|\btoo many open file\b
no_place: \brequested node configuration is not available\b|\blaunch failed requeued held\b
cudaErrorInsufficientDriver: \b(?:requires?|needs?) a newer (?:NVIDIA |GPU |CUDA )*driver\b
misconfigured: \bundefined symbol\b|\bsymbol lookup error\b|\btoo many open files\b
misconfigured: \bno kernel image is available\b|\bport (?:conflict|collision|is already in use)s?\b
misconfigured: \b(?:password|passwordless|key)[- ]?(?:less)? ?ssh\b
heap_corrupted: \bdouble free\b|\bheap corruption\b|\bmalloc\(\): |\bmunmap_chunk\b|\bcorrupted size vs\b
regressed: ^<NO_DRIVER>.*\bregress(?:ion|ed|es)\b[^.;]{0,24}\b(?:since|after|from|between|in)\b[^.;]{0,16}\d
regressed: ^<NO_DRIVER>.*\b(?:slower|latency|throughput)\b[^.;]{0,24}\bnew(?:er)? versions?\b
not_finite: \b<GRADIENT>\b[^.;]{0,24}\b(?:<IS>|to |turns? |into |becomes |=|all )(?:NaNs?|Infs?)\b
not_finite: \bNaNs? (?:loss(?:es)?|grad\w*|values?|outputs?)\b
not_finite: \b(?:loss|grad\w*)[- ]?(?:scale )?(?:is |are )?(?:nan|overflow\w*)\b|出现 ?nan|nan ?错误
on_first_gpu: \b(?:process(?:es)?|memory|contexts?)\b[^.;]{0,30}\b(?:on|of) (?:the )?(?:first GPU|rank[ =]?0)\b
ranks_apart: \b<DEADLOCK>\b[^.;]{0,60}\b<STAGES>\b
ranks_apart: \b<STAGES>\b[^.;]{0,60}\b<DEADLOCK>\b
slow_loader: \b<LOADER>\b[^.;]{0,50}\b<SLOW>\b|\b<SLOW>\b[^.;]{0,24}\b<LOADER>\b
slow_loader: \b<GPU>s? (?:are |is )?(?:waiting|waits?|starv\w+)\b[^.;]{0,24}\b(?:data|CPUs?|<LOADER>|IO|I/O)\b
slow_loader: (?:\btime\b|\d{1,3} ?%)[^.;]{0,30}\b(?:consumed|spent|taken|goes) (?:by|in|on|to|into) (?:the )?<LOADER>
slow_store: \b(?:sav|writ)(?:e|es|ing) (?:a |the |model )*checkpoints?\b[^.;]{0,40}\b(?:<SLOW>|takes (?:so |very |too )?long)\b
slow_store: \b<STORE>\b[^.;]{0,50}\b(?:<SLOW>|hangs?|hung|stuck|unresponsive|disconnect\w*|D state|lost|drops?)\b
no_place: \bpods?\b[^.;]{0,60}\b(?:stays?|stuck|remain\w*|hangs?)\b[^.;]{0,24}\bpending\b
no_place: \b(?:no|lack of|insufficient) (?:\w+ )?(?:GPU )?capacity\b|\bCapacityError\b
no_place: \b<SPOT>\b[^.;,]{0,24}\b(?:<IS>)?(?:terminated|reclaimed|pre-?empted|interrupted)\b
cudaErrorSystemNotReady: \b(?:CUDA|cudaError|initiali[sz]ation)\b[^.;]{0,30}\b80[234]\b|\b80[234] (?:system )?error\b
NVML_ERROR_UNKNOWN: \bfail(?:s|ed) to initiali[sz]e NVML\b
cudaErrorNoDevice: \b<MISS>(?: \w+)? (?:detect|find|see|recogni[sz]e)\w*(?: \w+)? <GPU>\b
cudaErrorNoDevice: \b<GPU> (?:is |are |was |were )?(?:not|n't|no longer)(?: being)? <SEEN>\b
cudaErrorNoDevice: \b(?:lost|loses?|losing) access to (?:\w+ )?<GPU>\b|\bno (?:CUDA )?<GPU> (?:are |is )?<SEEN>\b
cudaErrorInsufficientDriver: \bdriver\b[^.;]{0,24}\b(?:(?:is|was) too old|not loaded|insufficient|crash\w*|not running)\b
cudaErrorSystemNotReady: \bfabric ?manager\b[^.;]{0,30}\b(?:not (?:running|started|installed)|version|fail\w*|down|crash\w*)\b
"""


@cache
def _rows() -> tuple[tuple[str, re.Pattern[str]], ...]:
    found = []
    for row in ROWS.strip().splitlines():
        name, _, words = row.partition(": ")
        for mark, meant in _WORDS.items():
            words = words.replace(mark, meant)
        found.append((name, re.compile(f"(?i){words}")))
    return tuple(found)


def find(said: str) -> tuple[str, re.Match[str]] | None:
    """Return the name of the error that a sentence reports, and where; None for none."""
    return next(((name, found) for name, words in _rows() if (found := words.search(said))), None)
