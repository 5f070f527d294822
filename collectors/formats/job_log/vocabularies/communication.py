"""The results of what carries a job's messages: NCCL, InfiniBand verbs, UCX, UCC, libfabric, PMIx, MPI; and of remote calls.

Sources: ``ncclGetErrorString`` of NCCL 2.29, ``ibv_wc_status_str`` of rdma-core 50, ``ucs_status_string`` of UCX 1.19,
``ucc_status.h``, ``pmix_common.h``,
``fi_errno.h`` of libfabric 2.0 (which prefixes ``errno.h``), the error classes of MPI 4.1, the status
codes of gRPC 1.70 and absl.
"""

from __future__ import annotations

NCCL = """
ncclUnhandledCudaError: unhandled cuda error
ncclSystemError: unhandled system error
ncclInternalError
ncclInvalidArgument
ncclInvalidUsage
ncclRemoteError: remote process exited or there was a network error
ncclTimeout: NCCL connection timeout
"""

VERBS = """
IBV_WC_LOC_LEN_ERR: local length error
IBV_WC_LOC_QP_OP_ERR: local QP operation error
IBV_WC_LOC_EEC_OP_ERR: local EE context operation error
IBV_WC_LOC_PROT_ERR: local protection error
IBV_WC_WR_FLUSH_ERR: Work Request Flushed Error
IBV_WC_MW_BIND_ERR: memory management operation error
IBV_WC_BAD_RESP_ERR: bad response error
IBV_WC_LOC_ACCESS_ERR: local access error
IBV_WC_REM_INV_REQ_ERR: remote invalid request error
IBV_WC_REM_ACCESS_ERR: remote access error
IBV_WC_REM_OP_ERR: remote operation error
IBV_WC_RETRY_EXC_ERR: transport retry counter exceeded
IBV_WC_RNR_RETRY_EXC_ERR: RNR retry counter exceeded
IBV_WC_LOC_RDD_VIOL_ERR
IBV_WC_REM_INV_RD_REQ_ERR
IBV_WC_REM_ABORT_ERR
IBV_WC_INV_EECN_ERR
IBV_WC_INV_EEC_STATE_ERR
IBV_WC_FATAL_ERR
IBV_WC_RESP_TIMEOUT_ERR: response timeout error
IBV_WC_GENERAL_ERR
IBV_WC_TM_ERR
IBV_EVENT_QP_FATAL
IBV_EVENT_QP_ACCESS_ERR
IBV_EVENT_CQ_ERR
IBV_EVENT_PORT_ERR
IBV_EVENT_DEVICE_FATAL
"""

UCX = """
UCS_ERR_NO_RESOURCE: No resources are available to initiate the operation
UCS_ERR_IO_ERROR: Input/output error
UCS_ERR_NO_MEMORY
UCS_ERR_INVALID_PARAM: Invalid parameter
UCS_ERR_UNREACHABLE: Destination is unreachable
UCS_ERR_INVALID_ADDR: Address not valid
UCS_ERR_NOT_IMPLEMENTED
UCS_ERR_MESSAGE_TRUNCATED: Message truncated
UCS_ERR_NO_PROGRESS
UCS_ERR_BUFFER_TOO_SMALL: Provided buffer is too small
UCS_ERR_NO_ELEM
UCS_ERR_SOME_CONNECTS_FAILED: Failed to connect some of the requested endpoints
UCS_ERR_NO_DEVICE
UCS_ERR_BUSY
UCS_ERR_CANCELED: Request canceled
UCS_ERR_SHMEM_SEGMENT: Shared memory error
UCS_ERR_ALREADY_EXISTS
UCS_ERR_OUT_OF_RANGE
UCS_ERR_TIMED_OUT: Operation timed out
UCS_ERR_EXCEEDS_LIMIT: User-defined limit was reached
UCS_ERR_UNSUPPORTED: Unsupported operation
UCS_ERR_REJECTED: Operation rejected by remote peer
UCS_ERR_NOT_CONNECTED: Endpoint is not connected
UCS_ERR_CONNECTION_RESET: Connection reset by remote peer
UCS_ERR_ENDPOINT_TIMEOUT: Endpoint timeout
"""

UCC = """
UCC_ERR_NO_MEMORY
UCC_ERR_NO_RESOURCE
UCC_ERR_INVALID_PARAM
UCC_ERR_NOT_SUPPORTED
UCC_ERR_NOT_IMPLEMENTED
UCC_ERR_TIMED_OUT
UCC_ERR_IO_ERROR
UCC_ERR_UNREACHABLE
UCC_ERR_CONNECTION_RESET
"""

PMIX = """
PMIX_ERR_UNREACH
PMIX_ERR_TIMEOUT
PMIX_ERR_LOST_CONNECTION PMIX_ERR_LOST_CONNECTION_TO_SERVER PMIX_ERR_LOST_PEER_CONNECTION
PMIX_ERR_COMM_FAILURE
PMIX_ERR_NOMEM PMIX_ERR_OUT_OF_RESOURCE
PMIX_ERR_PROC_ABORTED
PMIX_ERR_NOT_SUPPORTED
PMIX_ERR_BAD_PARAM
"""

LIBFABRIC = """
FI_EIO: Input/output error
FI_EOTHER: Unspecified error
FI_ETOOSMALL: Provided buffer is too small
FI_EOPBADSTATE: Operation not permitted in current state
FI_EAVAIL: Error available
FI_EBADFLAGS: Flags not supported
FI_ENOEQ: Missing or unavailable event queue
FI_EDOMAIN: Invalid resource domain
FI_ENOCQ: Missing or unavailable completion queue
FI_ECRC: CRC error
FI_ETRUNC: Truncation error
FI_ENOKEY: Required key not available
FI_ENOAV: Missing or unavailable address vector
FI_EOVERRUN: Queue has been overrun
FI_ENORX: Receiver not ready, no receive buffers available
FI_ENOMR: Memory registration limit exceeded
"""

MPI = """
MPI_ERR_BUFFER: invalid buffer pointer
MPI_ERR_COUNT: invalid count argument
MPI_ERR_TYPE: invalid datatype
MPI_ERR_TAG: invalid tag
MPI_ERR_COMM: invalid communicator
MPI_ERR_RANK: invalid rank
MPI_ERR_REQUEST: invalid request
MPI_ERR_ROOT: invalid root
MPI_ERR_GROUP: invalid group
MPI_ERR_OP: invalid reduce operation
MPI_ERR_TOPOLOGY: invalid communicator topology
MPI_ERR_DIMS: invalid topology dimension
MPI_ERR_ARG: invalid argument of some other kind
MPI_ERR_UNKNOWN
MPI_ERR_TRUNCATE: message truncated
MPI_ERR_OTHER: known error not in list
MPI_ERR_INTERN: internal error
MPI_ERR_IN_STATUS: error code in status
MPI_ERR_PENDING: pending request
MPI_ERR_ACCESS: invalid access mode
MPI_ERR_AMODE: invalid amode argument
MPI_ERR_BAD_FILE: invalid file name
MPI_ERR_FILE: invalid file
MPI_ERR_FILE_EXISTS
MPI_ERR_FILE_IN_USE
MPI_ERR_INFO: invalid info object
MPI_ERR_IO: input/output error
MPI_ERR_KEYVAL: invalid key value
MPI_ERR_NO_MEM: out of memory
MPI_ERR_NO_SPACE: not enough space on file system
MPI_ERR_NO_SUCH_FILE
MPI_ERR_PORT: invalid port
MPI_ERR_QUOTA: out of quota
MPI_ERR_READ_ONLY
MPI_ERR_RMA_CONFLICT
MPI_ERR_RMA_SYNC
MPI_ERR_SERVICE: invalid service name
MPI_ERR_SIZE: invalid size
MPI_ERR_SPAWN: could not spawn processes
MPI_ERR_WIN: invalid window
MPI_ERR_PROC_FAILED: Process Failure
MPI_ERR_PROC_FAILED_PENDING
MPI_ERR_PROC_ABORTED
MPI_ERR_REVOKED: Communication Object Revoked
"""

REMOTE_CALLS = """
CANCELLED Canceled
UNKNOWN
INVALID_ARGUMENT InvalidArgument
DEADLINE_EXCEEDED DeadlineExceeded
NOT_FOUND
ALREADY_EXISTS
PERMISSION_DENIED PermissionDenied
RESOURCE_EXHAUSTED ResourceExhausted
FAILED_PRECONDITION FailedPrecondition
ABORTED
OUT_OF_RANGE
UNIMPLEMENTED Unimplemented
INTERNAL
UNAVAILABLE Unavailable
DATA_LOSS DataLoss
UNAUTHENTICATED Unauthenticated
"""
