"""The errors of CUDA's runtime: its name, its driver's and HIP's where they differ, and its text.

Source: ``cudaGetErrorName`` and ``cudaGetErrorString`` of libcudart 12.9.79, ``CUresult`` in its ``cuda.h``, and ROCm's
``hip_error.cpp``; a long text is cut. What HIP, MUSA and other runtimes call as CUDA does, but for the prefix, has no entry.
"""

from __future__ import annotations

CUDA = """
cudaErrorInvalidValue CUDA_ERROR_INVALID_VALUE: invalid argument
cudaErrorMemoryAllocation CUDA_ERROR_OUT_OF_MEMORY hipErrorOutOfMemory: out of memory
cudaErrorInitializationError CUDA_ERROR_NOT_INITIALIZED hipErrorNotInitialized: initialization error
cudaErrorCudartUnloading CUDA_ERROR_DEINITIALIZED hipErrorDeinitialized: driver shutting down
cudaErrorProfilerDisabled CUDA_ERROR_PROFILER_DISABLED: profiler disabled while using external profiling tool
cudaErrorProfilerNotInitialized CUDA_ERROR_PROFILER_NOT_INITIALIZED: profiler not initialized: call
cudaErrorProfilerAlreadyStarted CUDA_ERROR_PROFILER_ALREADY_STARTED: profiler already started
cudaErrorProfilerAlreadyStopped CUDA_ERROR_PROFILER_ALREADY_STOPPED: profiler already stopped
cudaErrorInvalidConfiguration: invalid configuration argument
cudaErrorInvalidPitchValue: invalid pitch argument
cudaErrorInvalidSymbol: invalid device symbol
cudaErrorInvalidHostPointer: invalid host pointer
cudaErrorInvalidDevicePointer: invalid device pointer
cudaErrorInvalidTexture: invalid texture reference
cudaErrorInvalidTextureBinding: texture is not bound to a pointer
cudaErrorInvalidChannelDescriptor: invalid channel descriptor
cudaErrorInvalidMemcpyDirection: invalid copy direction for memcpy
cudaErrorAddressOfConstant: invalid address of constant
cudaErrorTextureFetchFailed: fetch from texture failed
cudaErrorTextureNotBound: cannot fetch from a texture that is not bound
cudaErrorSynchronizationError: incorrect use of __syncthreads()
cudaErrorInvalidFilterSetting: linear filtering not supported for non-float type
cudaErrorInvalidNormSetting: read as normalized float not supported for data type
cudaErrorMixedDeviceExecution: device emulation mode and device execution mode cannot be mixed
cudaErrorNotYetImplemented: feature not yet implemented
cudaErrorMemoryValueTooLarge: memory size or pointer value too large to fit in 32 bit
cudaErrorStubLibrary CUDA_ERROR_STUB_LIBRARY: CUDA driver is a stub library
cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version
cudaErrorCallRequiresNewerDriver: API call is not supported in the installed CUDA driver
cudaErrorInvalidSurface: invalid surface reference
cudaErrorDuplicateVariableName: duplicate global variable looked up by string name
cudaErrorDuplicateTextureName: duplicate texture looked up by string name
cudaErrorDuplicateSurfaceName: duplicate surface looked up by string name
cudaErrorDevicesUnavailable CUDA_ERROR_DEVICE_UNAVAILABLE: CUDA-capable device(s) is/are busy or unavailable
cudaErrorIncompatibleDriverContext: incompatible driver context
cudaErrorMissingConfiguration: __global__ function call is not configured
cudaErrorPriorLaunchFailure: unspecified launch failure in prior launch
cudaErrorLaunchMaxDepthExceeded: launch would exceed maximum depth of nested launches
cudaErrorLaunchFileScopedTex: launch failed because kernel uses unsupported, file-scoped
cudaErrorLaunchFileScopedSurf: launch failed because kernel uses unsupported, file-scoped
cudaErrorSyncDepthExceeded: cudaDeviceSynchronize failed because caller's grid depth
cudaErrorLaunchPendingCountExceeded: launch failed because launch would exceed
cudaErrorInvalidDeviceFunction: invalid device function
cudaErrorNoDevice CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected
cudaErrorInvalidDevice CUDA_ERROR_INVALID_DEVICE: invalid device ordinal
cudaErrorDeviceNotLicensed CUDA_ERROR_DEVICE_NOT_LICENSED: device doesn't have valid Grid license
cudaErrorSoftwareValidityNotEstablished: integrity checks failed
cudaErrorStartupFailure: startup failure in cuda runtime
cudaErrorInvalidKernelImage CUDA_ERROR_INVALID_IMAGE hipErrorInvalidImage: device kernel image is invalid
cudaErrorDeviceUninitialized CUDA_ERROR_INVALID_CONTEXT hipErrorInvalidContext: invalid device context
CUDA_ERROR_CONTEXT_ALREADY_CURRENT
cudaErrorMapBufferObjectFailed CUDA_ERROR_MAP_FAILED hipErrorMapFailed: mapping of buffer object failed
cudaErrorUnmapBufferObjectFailed CUDA_ERROR_UNMAP_FAILED hipErrorUnmapFailed: unmapping of buffer object failed
cudaErrorArrayIsMapped CUDA_ERROR_ARRAY_IS_MAPPED: array is mapped
cudaErrorAlreadyMapped CUDA_ERROR_ALREADY_MAPPED: resource already mapped
cudaErrorNoKernelImageForDevice CUDA_ERROR_NO_BINARY_FOR_GPU hipErrorNoBinaryForGpu: no kernel image is available
cudaErrorAlreadyAcquired CUDA_ERROR_ALREADY_ACQUIRED: resource already acquired
cudaErrorNotMapped CUDA_ERROR_NOT_MAPPED: resource not mapped
cudaErrorNotMappedAsArray CUDA_ERROR_NOT_MAPPED_AS_ARRAY: resource not mapped as array
cudaErrorNotMappedAsPointer CUDA_ERROR_NOT_MAPPED_AS_POINTER: resource not mapped as pointer
cudaErrorECCUncorrectable CUDA_ERROR_ECC_UNCORRECTABLE hipErrorECCNotCorrectable: uncorrectable ECC error encountered
cudaErrorUnsupportedLimit CUDA_ERROR_UNSUPPORTED_LIMIT: limit is not supported on this architecture
cudaErrorDeviceAlreadyInUse CUDA_ERROR_CONTEXT_ALREADY_IN_USE hipErrorContextAlreadyInUse: exclusive-thread device
cudaErrorPeerAccessUnsupported CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: peer access is not supported between these two
cudaErrorInvalidPtx CUDA_ERROR_INVALID_PTX hipErrorInvalidKernelFile: PTX JIT compilation failed
cudaErrorInvalidGraphicsContext CUDA_ERROR_INVALID_GRAPHICS_CONTEXT: invalid OpenGL or DirectX context
cudaErrorNvlinkUncorrectable CUDA_ERROR_NVLINK_UNCORRECTABLE: uncorrectable NVLink error detected during the
cudaErrorJitCompilerNotFound CUDA_ERROR_JIT_COMPILER_NOT_FOUND: PTX JIT compiler library not found
cudaErrorUnsupportedPtxVersion CUDA_ERROR_UNSUPPORTED_PTX_VERSION: provided PTX was compiled with an unsupported
cudaErrorJitCompilationDisabled CUDA_ERROR_JIT_COMPILATION_DISABLED: PTX JIT compilation was disabled
cudaErrorUnsupportedExecAffinity CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY: provided execution affinity is not supported
cudaErrorUnsupportedDevSideSync CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC: provided PTX contains unsupported call to
cudaErrorContained CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory over nvlink or a hardware
cudaErrorInvalidSource CUDA_ERROR_INVALID_SOURCE: device kernel image is invalid
cudaErrorFileNotFound CUDA_ERROR_FILE_NOT_FOUND: file not found
cudaErrorSharedObjectSymbolNotFound CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: shared object symbol not found
cudaErrorSharedObjectInitFailed CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: shared object initialization failed
cudaErrorOperatingSystem CUDA_ERROR_OPERATING_SYSTEM: OS call failed or operation not supported on this OS
cudaErrorInvalidResourceHandle CUDA_ERROR_INVALID_HANDLE hipErrorInvalidHandle: invalid resource handle
cudaErrorIllegalState CUDA_ERROR_ILLEGAL_STATE: operation cannot be performed in the present state
cudaErrorLossyQuery CUDA_ERROR_LOSSY_QUERY: attempted introspection would be semantically lossy
cudaErrorSymbolNotFound CUDA_ERROR_NOT_FOUND hipErrorNotFound: named symbol not found
cudaErrorNotReady CUDA_ERROR_NOT_READY: device not ready
cudaErrorIllegalAddress CUDA_ERROR_ILLEGAL_ADDRESS: illegal memory access was encountered
cudaErrorLaunchOutOfResources CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch
cudaErrorLaunchTimeout CUDA_ERROR_LAUNCH_TIMEOUT hipErrorLaunchTimeOut: launch timed out and was terminated
cudaErrorLaunchIncompatibleTexturing CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING: launch uses incompatible texturing
cudaErrorPeerAccessAlreadyEnabled CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: peer access is already enabled
cudaErrorPeerAccessNotEnabled CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: peer access has not been enabled
cudaErrorSetOnActiveProcess CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: cannot set while device is active in this process
cudaErrorContextIsDestroyed CUDA_ERROR_CONTEXT_IS_DESTROYED: context is destroyed
cudaErrorAssert CUDA_ERROR_ASSERT: device-side assert triggered
cudaErrorTooManyPeers CUDA_ERROR_TOO_MANY_PEERS: peer mapping resources exhausted
cudaErrorHostMemoryAlreadyRegistered CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: part or all of the requested memory
cudaErrorHostMemoryNotRegistered CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: pointer does not correspond to a registered
cudaErrorHardwareStackError CUDA_ERROR_HARDWARE_STACK_ERROR: hardware stack error
cudaErrorIllegalInstruction CUDA_ERROR_ILLEGAL_INSTRUCTION: illegal instruction was encountered
cudaErrorMisalignedAddress CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address
cudaErrorInvalidAddressSpace CUDA_ERROR_INVALID_ADDRESS_SPACE: operation not supported on global/shared address space
cudaErrorInvalidPc CUDA_ERROR_INVALID_PC: invalid program counter
cudaErrorLaunchFailure CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure
cudaErrorCooperativeLaunchTooLarge CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: too many blocks in cooperative launch
cudaErrorTensorMemoryLeak CUDA_ERROR_TENSOR_MEMORY_LEAK: tensor memory not completely freed
cudaErrorNotPermitted CUDA_ERROR_NOT_PERMITTED: operation not permitted
cudaErrorNotSupported CUDA_ERROR_NOT_SUPPORTED: operation not supported
cudaErrorSystemNotReady CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized
cudaErrorSystemDriverMismatch CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver
cudaErrorCompatNotSupportedOnDevice CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: forward compatibility was attempted
cudaErrorMpsConnectionFailed CUDA_ERROR_MPS_CONNECTION_FAILED: MPS client failed to connect to the MPS control
cudaErrorMpsRpcFailure CUDA_ERROR_MPS_RPC_FAILURE: remote procedural call between the MPS server and the MPS
cudaErrorMpsServerNotReady CUDA_ERROR_MPS_SERVER_NOT_READY: MPS server is not ready to accept new MPS client requests
cudaErrorMpsMaxClientsReached CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: hardware resources required to create MPS client
cudaErrorMpsMaxConnectionsReached CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: hardware resources required to support
cudaErrorMpsClientTerminated CUDA_ERROR_MPS_CLIENT_TERMINATED: MPS client has been terminated by the server
cudaErrorCdpNotSupported CUDA_ERROR_CDP_NOT_SUPPORTED: is using CUDA Dynamic Parallelism, but the current
cudaErrorCdpVersionMismatch CUDA_ERROR_CDP_VERSION_MISMATCH: unsupported interaction between different versions of
cudaErrorStreamCaptureUnsupported CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: operation not permitted when stream is
cudaErrorStreamCaptureInvalidated CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: operation failed due to a previous error
cudaErrorStreamCaptureMerge CUDA_ERROR_STREAM_CAPTURE_MERGE: operation would result in a merge of separate capture
cudaErrorStreamCaptureUnmatched CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: capture was not ended in the same stream as it
cudaErrorStreamCaptureUnjoined CUDA_ERROR_STREAM_CAPTURE_UNJOINED: capturing stream has unjoined work
cudaErrorStreamCaptureIsolation CUDA_ERROR_STREAM_CAPTURE_ISOLATION: dependency created on uncaptured work in
cudaErrorStreamCaptureImplicit CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: operation would make the legacy stream depend on
cudaErrorCapturedEvent CUDA_ERROR_CAPTURED_EVENT: operation not permitted on an event last recorded in a
cudaErrorStreamCaptureWrongThread CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: attempt to terminate a thread-local
cudaErrorTimeout CUDA_ERROR_TIMEOUT: wait operation timed out
cudaErrorGraphExecUpdateFailure CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: graph update was not performed because it
cudaErrorExternalDevice CUDA_ERROR_EXTERNAL_DEVICE: async error has occured in external entity outside of CUDA
cudaErrorInvalidClusterSize CUDA_ERROR_INVALID_CLUSTER_SIZE: kernel launch error has occurred due to cluster
cudaErrorFunctionNotLoaded CUDA_ERROR_FUNCTION_NOT_LOADED: function handle is not loaded when calling an API that
cudaErrorInvalidResourceType CUDA_ERROR_INVALID_RESOURCE_TYPE: one or more resources passed in are not valid
cudaErrorInvalidResourceConfiguration CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: one or more resources are
CUDA_ERROR_KEY_ROTATION
cudaErrorUnknown CUDA_ERROR_UNKNOWN
"""
