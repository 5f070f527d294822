"""What other accelerators' software prints into a job's log: ROCm, Ascend's CANN, JAX and XLA, TensorFlow.

Formats: ROCr's ``runtime.cpp``, HCCL's and the runtime's error codes (EI0002 and EI0006 are waits for another rank: echoes),
XLA's and TensorFlow's coordination service and ``nccl_utils.cc``.
"""

from __future__ import annotations

import re

from collectors.formats.job_log.shapes import Block, shape

_TASK = r"/job:\w{1,40}/replica:\d{1,4}/task:(?P<members>\d{1,7})"

_DIAGNOSTICS = (  # dcgmi diag; what it finds of the software ("Deployment") is no fault of a GPU
    r"(?:GPU )?[Mm]emory(?: Bandwidth)?|PCIe|pcie|nvbandwidth|memtest|memory_bandwidth|Pulse Test|pulse_test|[Dd]iagnostic|"
    r"Targeted (?:Stress|Power)|targeted_(?:stress|power)|SM Stress|EUD Test|Page Retirement/Row Remap"
)

_FABRIC_MANAGER = (
    r"(?:^|nv-fabricmanager(?:\[\d{1,9}\])?: |^\[[^\]]{1,40}\] \[ERROR\] \[tid \d{1,9}\] )"  # syslog, or its own log
)

SHAPES = (
    shape(  # TensorFlow; as a warning it is tried again with less
        "CUDA_ERROR_OUT_OF_MEMORY",
        r"\bE (?:external/\S{1,80}|tensorflow/\S{1,120}?)cuda_driver\.cc:\d{1,6}\] "
        r"(?P<message>failed to allocate .{1,120}CUDA_ERROR_OUT_OF_MEMORY)",
        "oom",
    ),
    shape(
        "HIP_ERROR_OutOfMemory",
        r"\bE (?:external/\S{1,80}|tensorflow/\S{1,120}?|\S{0,40})rocm_(?:driver|executor)\.cc:\d{1,6}\] "
        r"(?P<message>failed to allocate .{1,120}HIP_ERROR_OutOfMemory)",
        "oom",
    ),
    *(  # TensorFlow's allocator and its choice of algorithms go on with less; a library beside them may not
        shape(word, pattern, "memory_warned")
        for word, pattern in (
            (
                "_bfc) ran out of memory",
                r"Allocator \(GPU_\d{1,3}_bfc\) ran out of memory trying to .{1,120}not a failure",
            ),
            (
                "Resource exhausted: Out",
                r"\bW .{1,160}Resource exhausted: Out of memory while trying to allocate \d{1,15} bytes",
            ),
        )
    ),
    *(  # HCL, Habana's collective library and its runtime; what a check of theirs finds is no device's
        shape(word, pattern, name, exception=raised)
        for word, pattern, name, raised in (
            (
                "The condition [ ",
                r"\.(?:cpp|h|hpp):{1,2}\d{1,6}\(\w{1,80}\): (?P<message>The condition \[ .{1,160}\] failed\..{0,99})",
                "traceback",
                "HCL check",
            ),
            (
                " failed with synapse error: ",
                r"(?P<message>syn[A-Z]\w{2,40}\(.{0,160}\) failed with synapse error: \d{1,4})",
                "cuda_error",
                None,
            ),
            ("PT_DEVMEM Allocation failed", r"(?P<message>PT_DEVMEM Allocation failed.{0,120})", "oom", None),
            ("synDeviceAcquire failed", r"(?P<message>synDeviceAcquire failed.{0,120})", "cuda_error", None),
        )
    ),
    *(  # TensorRT-LLM
        shape(
            word,
            r"(?:\[TensorRT-LLM\]\[ERROR\]|\[TRT-LLM\] (?:\[RANK (?P<rank>\d{1,6})\] )?\[E\]|what\(\): ).{0,200}?"
            r"(?P<message>" + word + r".{1,300})",
            name,
            exception=raised,
        )
        for word, name, raised in (
            ("CUDA runtime error in ", "cuda_error", None),
            ("Assertion failed: ", "traceback", "TllmException"),
        )
    ),
    shape(  # TensorFlow, of TPU workers whose heartbeats tell that they are ending
        "lame workers found: ",
        r"(?P<message>lame workers found: .{1,160})",
        "stated",
        code="PART_OF_PLATFORM",
    ),
    shape("HW Exception by GPU", r"(?P<message>HW Exception by GPU node-\d{1,3}.{0,200})", "cuda_error"),
    shape("Memory access fault by GPU", r"(?P<message>Memory access fault by GPU node-\d{1,3}.{0,200})", "cuda_error"),
    shape("HSA_STATUS_ERROR", r"(?P<message>HSA_STATUS_ERROR\w{0,60}.{0,160})", "cuda_error"),
    shape(
        "Failed to initialize NVML",
        r"(?:^|^[IWEF]\d{4} [\d:.]{8,16} {1,8}\d{1,9} [\w./-]{1,80}:\d{1,6}\] |[Ee]rror: .{0,80}: )"
        r"(?P<message>Failed to initialize NVML: [\w/ ,-]{1,80})\.?\s*$",
        "cuda_error",
    ),
    shape("dcmi mod", r"(?P<message>dcmi mod\w{2,3} initialize\w? failed.{0,80})", "cuda_error"),
    shape("failed call to hipInit", r"(?P<message>failed call to hipInit: .{1,80})", "cuda_error"),
    *(  # NVIDIA's device plug-in
        shape(word, r"(?P<message>" + said + r")", "cuda_error")
        for word, said in (
            ("No devices found. Waiting", r"No devices found\. Waiting indefinitely"),
            ("Incompatible ", r"Incompatible (?:platform|strategy) detected.{0,40}"),
        )
    ),
    shape(
        "communicate with the NVIDIA driver",
        r"^(?P<message>NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver)",
        "cuda_error",
    ),
    shape("No devices were found", r"^(?P<message>No devices were found)\.?\s*$", "cuda_error"),
    # A fan alone reads so on boards without one; a GPU that answers to nothing has several such values.
    shape(" ERR! ", r"^\|(?P<message>.{0,40}?ERR!.{1,60}?ERR!.{0,80})\|\s*$", "diagnostic_failed"),
    shape(
        "GPU requires reset",
        r"(?P<message>(?:(?:^|, )\[GPU requires reset\](?=,|\s*$)|NVML: GPU requires reset|: GPU requires reset(?=[.\s]*$)))",
        "diagnostic_failed",
    ),
    shape("CUDA Error: no CUDA", r"^CUDA Error: (?P<message>no CUDA-capable device is detected.{0,100})", "cuda_error"),
    shape(
        "cudaError",
        r"(?P<message>\bcudaError(?:IllegalAddress|LaunchFailure|ECCUncorrectable|NvlinkUncorrectable|HardwareStackError|"
        r"NoKernelImageForDevice|UnsupportedPtxVersion|MemoryAllocation|SystemNotReady|InsufficientDriver|NoDevice|MisalignedAddress|Assert)\b.{0,160})",
        "cuda_error",
    ),
    shape("Cuda Runtime (", r"Cuda Runtime \((?P<message>[^)]{1,160})", "cuda_error"),
    shape("Error Code 2: OutOfMemory", r"(?P<message>Error Code 2: OutOfMemory.{0,100})", "oom"),
    shape("emory error on GPU", r"(?P<message>Out of memory error on GPU \d{1,3}\b.{0,100})", "oom"),
    shape("Out of GPU memory", r"(?P<message>Out of GPU memory trying to allocate .{1,60})", "oom"),
    shape(
        "is not compatible with the current",
        r"(?P<message>with CUDA capability sm_\d{1,3} is not compatible with the current PyTorch installation)",
        "cuda_error",
    ),
    shape("Test HIP failure", r"Test HIP failure \S{1,80}:\d{1,6} '(?P<message>[^']{1,160})", "cuda_error"),
    shape("Test CUDA failure", r"Test CUDA failure \S{1,80}:\d{1,6} '(?P<message>[^']{1,160})", "cuda_error"),
    shape("Test NCCL failure", r"Test NCCL failure \S{1,80}:\d{1,6} '(?P<message>[^']{1,200})", "nccl_error"),
    *(  # systemd's words, in a language that it leaves alone
        shape(
            word,
            r"(?P<message>nvidia-fabricmanager\.service: (?:Failed|(?:Control|Main) process exited, code=(?:exited, status=[1-9]|"
            r"killed|dumped)|Start request repeated too quickly).{0,80}|Failed to start .{0,40}fabric ?manager service.{0,40}|"
            r"Job for nvidia-fabricmanager\.service failed because .{1,80})",
            "cuda_error",
        )
        for word in (
            "fabricmanager.service: F",
            "fabricmanager.service: C",
            "fabricmanager.service: M",
            "fabricmanager.service: S",
            "fabricmanager.service failed",
            "Failed to start ",
        )
    ),
    *(
        shape(
            word,
            _FABRIC_MANAGER + r"(?P<message>.{0,100}" + word + r".{0,160})",
            "cuda_error",
            exception="FabricManagerError",
        )
        for word in (
            "device information from NVSwitch driver failed",
            "fabric manager NVIDIA GPU driver interface version",
            "failed to find the GPU handle",
            "NVSwitches don't match",
            "NVLinks don't match",
        )
    ),
    *(  # NCCL blames the fabric manager or the NVSwitches itself (src/transport/nvls.cc)
        shape(
            word,
            r"(?P<message>(?:Failed to bind NVLink SHARP \(NVLS\) Multicast memory|"
            r"Cuda failure .{1,80}cuMulticast\w{1,30}).{0,200})",
            "cuda_error",
        )
        for word in ("Failed to bind NVLink SHARP", "cuMulticast")
    ),
    *(
        shape(
            word,
            r"(?P<message>Unable to open /dev/kfd .{1,80}|Driver not initialized \(amdgpu not found in modules\))",
            "cuda_error",
        )
        for word in ("open /dev/kfd", "amdgpu not found")
    ),
    shape(
        "ran out of memory trying",
        r"(?P<message>Allocator \(GPU_\d{1,3}_bfc\) ran out of memory .{1,100}requested by op)",
        "oom",
    ),
    shape("HIP out of memory", r"(?P<message>HIP out of memory.{0,200})", "oom"),
    shape("HIP error", r"(?P<message>HIP error: .{0,200})", "cuda_error"),
    shape("NPU out of memory", r"(?P<message>NPU out of memory.{0,200})", "oom"),
    shape("MULTI BIT ECC", r"(?P<message>HBM MULTI BIT ECC ERROR.{0,100})", "cuda_error", code="507054"),
    shape(
        "Heartbeat Lost Occurred",
        r"Heartbeat Lost Occurred.{0,400}Lost rank:? ?\[(?P<members>[\d, ]{1,400})\]",
        "heartbeat_lost",
    ),
    shape("EI0002", r"\b(?P<code>EI0002): (?P<message>.{0,300})", "communication_timeout"),
    shape("EI0006", r"\b(?P<code>EI0006): (?P<message>.{0,300})", "communication_timeout"),
    shape("tream synchronize timeout", r"(?P<message>Stream synchronize timeout.{0,200})", "communication_timeout"),
    shape(
        "stuck notify num",
        r"(?P<message>task timeout occurred .{0,120}stuck notify num.{0,40})",
        "communication_timeout",
    ),
    shape(
        "reason=[task timeout]",
        r"(?P<message>\w{1,60} execute failed, reason=\[task timeout\])",
        "communication_timeout",
    ),
    shape(
        "EI00",
        r"\b(?P<exception>EI00(?:01|03|04|05|08|14|16|17|19|20))(?:\)|\b): (?P<message>.{0,300})",
        "traceback",
    ),
    *(
        shape(word, r"\b(?P<code>EI00(?:09|10|12|13|15|18))(?:\)|\b): (?P<message>.{0,300})", "nccl_error")
        for word in ("EI0009", "EI001")
    ),
    *(
        shape(word, r"\b(?P<code>E[IL]00(?:11|04))(?:\)|\b): (?P<message>Failed to allocate.{0,300})", "oom")
        for word in ("EI0011", "EL0004")
    ),
    shape(
        " is timed out. It may exit",
        r"The node: ?(?P<members>\d{1,7}) is timed out\. It may exit with exception",
        "heartbeat_lost",
    ),
    shape("EL0001", r"\b(?P<code>EL0001)(?:\)|\b): (?P<message>.{0,300})", "cuda_error"),
    *(
        shape(
            word,
            r"(?P<message>\b(?:UCE ERROR|HBM_MULTIBIT_ECC_ERROR|hbm Multi-bit ECC error|DEVICE_MEM_ERROR).{0,160})",
            "cuda_error",
        )
        for word in ("UCE ERROR", "MULTIBIT_ECC", "ulti-bit ECC error", "DEVICE_MEM_ERROR")
    ),
    *(  # npu-smi info
        shape(
            word,
            r"^\|\s{0,8}\d{1,3}\s{1,12}\w{3,20}\s{1,24}\|\s(?P<message>" + word.strip("| ") + r")\s{1,20}\|",
            "diagnostic_failed",
        )
        for word in ("| Critical ", "| Alarm ")
    ),
    shape("EJ0001", r"\b(?P<code>EJ0001): (?P<message>.{0,300})", "cuda_error"),
    shape("EZ9999", r"\b(?P<code>EZ9999): (?P<message>.{0,300})", "cuda_error"),
    shape("heartbeat timeout", r"[Tt]ask " + _TASK + r" heartbeat timeout", "heartbeat_lost"),
    shape(
        "Aborting communicator",
        r"Aborting communicator: \S{1,40} due to async NCCL error: (?P<message>.{0,300})",
        "nccl_error",
    ),
    shape(
        "coordination service",
        r"(?P<message>(?:Polled an error from coordination service|Failed to send RPC to coordination service).{0,200})",
        "connection_closed",
    ),
    shape("Aborting RingReduce with", r"(?P<message>Aborting RingReduce with .{1,200})", "connection_closed"),
    shape("Collective ops is aborted by", r"(?P<message>Collective ops is aborted by: .{1,200})", "connection_closed"),
    shape(
        "NCCL operation ",
        r"NCCL operation .{1,160}? failed: (?!invalid usage)(?P<message>[^.]{1,200})",
        "nccl_error",
    ),
    shape(
        "| Fail",
        r"^\| (?P<message>(?:" + _DIAGNOSTICS + r") {1,30}\| Fail(?: - GPUs?: (?P<device>\d[\d, ]{0,60}?))?) {1,60}\|",
        "diagnostic_failed",
    ),
    *(  # why a test of dcgmi could not run, where it is no GPU's fault (dcgm_errors.h)
        shape(
            word,
            r"^\| (?:Warning|Error|Info)(?:: GPU ?\d{1,3})? {1,30}\| (?P<message>.{0,40}\bGPU ?(?P<device>\d{1,3})\b.{0,400}?"
            r"(?:busy or unavail|already in use|conflicting|[Pp]ermission|[Ff]abric ?[Mm]anager|insufficient).{0,200}?)"
            r" {0,8}\|\s*$",
            "diagnostic_prevented",
        )
        for word in ("| Warning", "| Error", "| Info")
    ),
    shape("| Fail", r"^\| (?P<message>-> \d{1,3} {1,40}\| Failure) {1,60}\|", "diagnostic_failed"),
    shape("OOM when allocating", r"(?P<message>OOM when allocating tensor.{0,200})", "oom"),
    shape(  # XLA, of a GPU and of a TPU
        "RESOURCE_EXHAUSTED",
        r"(?P<message>RESOURCE_EXHAUSTED: (?:Out of memory|Failed to allocate request for|Attempting to (?:reserve|allocate)|"
        r"Error (?:allocating|loading).{0,60}Attempting to|.{0,120}Ran out of memory in memory space).{0,200})",
        "oom",
    ),
    shape(  # TensorFlow; a machine without a GPU has another answer
        "failed call to cuInit: ",
        r"(?P<message>failed call to cuInit: (?:CUDA_ERROR_(?:UNKNOWN|NOT_INITIALIZED|SYSTEM_\w{3,20}|COMPAT_\w{3,40})|"
        r"UNKNOWN ERROR \(\d{1,4}\)).{0,100})",
        "cuda_warned",
    ),
    shape(  # of its diagnostics: the module and the library of the driver
        " does not match DSO version",
        r"(?P<message>kernel version [\d.]{3,16} does not match DSO version [\d.]{3,16}.{0,80})",
        "cuda_warned",
    ),
    shape(  # NVIDIA's samples
        "CUDA error at ",
        r"CUDA error at \S{1,160}:\d{1,6} code=\d{1,4}\((?P<message>cudaErrorUnknown\) \"cuda(?:GetDevice|SetDevice).{0,60})",
        "cuda_warned",
    ),
    shape(
        "hsa api call failure",
        r"(?P<message>hsa api call failure at: .{1,120})",
        "cuda_warned",
    ),
    *(
        shape(word, r"(?P<message>" + said + r".{0,200})", "traceback", exception=name)
        for word, said, name in (
            (
                "Loaded runtime CuDNN library: ",
                r"Loaded runtime CuDNN library: [\d.]{3,12} but source was compiled with",
                "ImportError",
            ),
            ("rocBLAS error: ", r"^rocBLAS error: (?=\S)", "RocblasError"),
        )
    ),
    *(  # its daemon of the first generation
        shape(
            word,
            r"\["
            + word[1:]
            + r"\w{2,60}\] (?P<message>(?:Failed to|No devices|Unable to|Could not|.{1,60} failed).{0,240})",
            "stated",
            code="PART_OF_PLATFORM",
        )
        for word in ("[NRTD:", "[NMGR:", "[TDRV:", "[KMGR:")
    ),
    *(  # AWS Neuron's runtime: its log has the component and the function before the message
        shape(
            word,
            r"\b(?:ERROR|CRITICAL) {1,8}" + word + r"\w{1,60} {1,40}(?P<message>" + said + r".{0,240})",
            name,
            code=code,
        )
        for word, said, name, code in (
            ("TDRV:", r"(?:Failed to allocate \d|.{0,80}out of memory|Could not allocate )", "oom", None),
            ("TDRV:tdrv_init", r"Failed ", "stated", "PART_OF_PLATFORM"),
            ("NRT:nrt_init", r"(?:Unable|Failed) ", "stated", "PART_OF_PLATFORM"),
            ("NRT:nrt_allocate_neuron", r".{0,120}(?:not available|[Ff]ailed|busy)", "stated", "PART_OF_PLATFORM"),
        )
    ),
)

BLOCKS = (
    Block(
        "cudaGetDeviceCount returned",
        re.compile(r"^cudaGetDeviceCount returned \d{1,4}\s*$"),
        (re.compile(r"-> (?P<message>.{1,100})"),),
        "cuda_error",
        closes="first",
    ),
    Block(  # nvidia-smi -q, of a GPU behind NVSwitches
        "Fabric",
        re.compile(r"^\s{0,12}Fabric\s*$"),
        (
            re.compile(r"\s{2,20}State\s{1,60}: (?P<message>In Progress|Not Started)\s*$"),
            re.compile(r"\s{2,20}Status\s{1,60}: (?P<message>(?!Success|N/A)[A-Z].{2,60})$"),
        ),
        "cuda_error",
        closes="first",
        fields={"exception": "NVLink fabric"},
        within_lines=4,
    ),
    Block(
        "Remapped Rows",
        re.compile(r"^\s{0,12}Remapped Rows\s*$"),
        (re.compile(r"\s{4,20}(?P<message>(?:Pending|Remapping Failure Occurred)\s{1,40}: Yes)\s*$"),),
        "diagnostic_failed",
        closes="first",
        within_lines=5,
    ),
    Block(
        "imed out task names:",
        re.compile(r"[Tt]imed out task names:"),
        (re.compile(r"\s{0,8}" + _TASK),),
        "collective_behind",
        closes="all",
        needs=("ranks",),
    ),
    Block(
        "stopped sending heartbeats",
        re.compile(r"\(stopped sending heartbeats\):"),
        (re.compile(r"\s{0,8}" + _TASK),),
        "heartbeat_lost",
        closes="all",
        needs=("ranks",),
    ),
)
