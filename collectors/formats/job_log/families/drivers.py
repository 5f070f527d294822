"""Software that makes devices usable and failed at it: kernel modules that were not built or loaded, driver containers, MIG, MPS.

Formats: ``nvidia-installer`` 418 to 610 and the driver container of NVIDIA's GPU operator, DKMS 2 and 3, kmod's ``modprobe`` and
``rmmod``, ``nvidia-smi mig``, the log of CUDA's MPS, Kubernetes' ``kubectl get pods`` of what the operators of devices, networks
and volumes run, perftest's look at the devices, ROCm's and Habana's tools.
"""

from __future__ import annotations

from collectors.formats.job_log.shapes import Shape, shape

_BEGIN = (
    r"^(?:[IWEF]\d)?[\W\d]{0,40}(?:[a-z][\w-]{0,40}\.go:\d{1,6}\] )?(?:(?:stdout|stderr) [FP] )?"
    r"(?:(?:ERROR|[Ee]rror|FATAL)!?:? {1,4})?"
)
_MODULES = (
    r"(?:nvidia[\w-]{0,12}|amdgpu|amdkfd|gdrdrv|habanalabs\w{0,8}|neuron|nv_peer_mem|mlx[45]_\w{2,6}|ib_\w{2,12}|rdma_\w{2,6}|irdma|efa|"
    r"lustre|lnet|beegfs|mmfs\w{0,4}|ceph|nfs\w{0,4}|vfio\w{0,12})"
)
_OPERANDS = (  # the pods that operators run on each node
    r"(?:nvidia-[\w-]{3,60}|gpu-(?:operator|feature-discovery)[\w-]{0,60}|dcgm[\w-]{0,40}|amd-?gpu-[\w-]{3,60}|rocm-[\w-]{3,40}|"
    r"habana[\w-]{3,60}|(?:mofed|rdma|sriov|multus|network-operator|whereabouts|calico|cilium|kube-flannel|aws-node|kube-proxy|"
    r"coredns|csi|efs-csi|ebs-csi|fsx-csi|rook-ceph)[\w-]{0,60})"
)


def _part(word: str, pattern: str) -> Shape:
    """Build the row of a line after which a part of the platform is known not to work, and no more than that."""
    return shape(word, pattern, "stated", code="PART_OF_PLATFORM")


SHAPES = (
    *(
        _part(word, _BEGIN + r"(?P<message>" + word + r".{0,300})")
        for word in (
            "Could not resolve Linux kernel version",
            "Could not unload NVIDIA driver kernel modules",
            "Could not locate Linux kernel headers",
            "Unable to find the kernel source tree",
            "Unable to load the kernel module",
            "Unable to load the 'nvidia",
            "Unable to build the NVIDIA kernel module",
            "Failed to install the kernel module",
            "The Nouveau kernel driver is currently in use",
            "An NVIDIA kernel module 'nvidia",
            "An error occurred while performing the step: ",
            "Bad return status for module build on kernel",
            "could not load NVML library",
            "Failed to initialize NVML: ",
            "Failed to display compute instances: ",
            "Failed to display GPU instances: ",
            "Did not detect devices",
            "Unable to find the Infiniband/RoCE device",
            "No IB devices found",
        )
    ),
    *(
        _part(word, r"^(?:\S{1,40}[:$#] )?(?P<message>" + word + r"(?:ERROR|FATAL): .{0,60}\b" + _MODULES + r"\b.{0,160})")
        for word in ("modprobe: ", "insmod: ", "rmmod: ")
    ),
    _part("dkms", r"^(?P<message>(?:Error! |dkms: ).{0,80}\b(?:" + _MODULES + r").{0,40}\b(?:failed|Bad return status).{0,80})"),
    *(
        _part(
            word,
            r"^\W{0,4}(?:[\w-]{1,60}\s{1,30})?(?P<message>" + _OPERANDS + r"\s{1,60}\d{1,3}/\d{1,3}\s{1,30}"
            r"(?:Init:)?(?:CrashLoopBackOff|Error|\w{0,20}ImagePull\w{0,10}|CreateContainer\w{3,20}|RunContainerError))\b",
        )
        for word in ("CrashLoopBackOff", "Error ", "ImagePull", "CreateContainer")
    ),
    *(  # the daemons of CUDA's multi-process service
        _part(word, r"\b(?:Control|Server)\s{1,8}\d{1,9}\] (?P<message>" + word + r".{0,160})")
        for word in ("Server encountered a fatal exception", "Failed to start : ", "Failed to get ", "Server exited with status")
    ),
    *(  # Apptainer and Singularity
        _part("FATAL:   ", r"^FATAL: {3}(?P<message>" + said + r".{0,300})")
        for said in (r"container creation failed: ", r"while (?:\w{4,16}) ", r"[Cc]ould not open image ", r"[Ff]ailed to ")
    ),
    *(
        _part(word, r"(?P<message>" + word + r"\W{0,4}[\w.-]{2,40})")
        for word in ("unknown or invalid runtime name: ", "Unknown runtime specified ")
    ),
    shape(  # torch, where the rest of its traceback was left out
        "on your system is too old",
        r"^RuntimeError: (?P<message>The NVIDIA driver on your system is too old \(found version \d{1,9}\).{0,200})",
        "traceback",
        exception="RuntimeError",
    ),
    _part("ROCk module is NOT loaded", r"^\W{0,8}(?:\[\d{1,3}m)?(?P<message>ROCk module is NOT loaded.{0,80})"),
)  # fmt: skip
