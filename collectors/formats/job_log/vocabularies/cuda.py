"""The errors of CUDA's runtime: its name, its driver's and HIP's where they differ, and its text.

Source: ``cudaGetErrorName`` and ``cudaGetErrorString`` of libcudart 12.9.79, ``CUresult`` in its ``cuda.h``, and ROCm's
``hip_error.cpp``; a text that ends in "…" is cut. Numbers from 100 on are the same in every version, and in the driver.
What HIP, MUSA and other runtimes call as CUDA does, but for the prefix, has no entry.
"""

from __future__ import annotations

CUDA = """
cudaErrorInvalidValue CUDA_ERROR_INVALID_VALUE: invalid argument
cudaErrorMemoryAllocation CUDA_ERROR_OUT_OF_MEMORY hipErrorOutOfMemory: out of memory
cudaErrorInitializationError CUDA_ERROR_NOT_INITIALIZED hipErrorNotInitialized: initialization error
cudaErrorCudartUnloading CUDA_ERROR_DEINITIALIZED hipErrorDeinitialized: driver shutting down
cudaErrorProfilerDisabled CUDA_ERROR_PROFILER_DISABLED: profiler disabled while using external profiling tool
cudaErrorProfilerNotInitialized CUDA_ERROR_PROFILER_NOT_INITIALIZED: profiler not initialized: call cudaProfilerInitialize()
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
cudaErrorLaunchFileScopedTex: launch failed because kernel uses unsupported, file-scoped textures (texture objects are…
cudaErrorLaunchFileScopedSurf: launch failed because kernel uses unsupported, file-scoped surfaces (surface objects are…
cudaErrorSyncDepthExceeded: cudaDeviceSynchronize failed because caller's grid depth exceeds cudaLimitDevRuntimeSyncDepth
cudaErrorLaunchPendingCountExceeded: launch failed because launch would exceed cudaLimitDevRuntimePendingLaunchCount
cudaErrorInvalidDeviceFunction: invalid device function
100 cudaErrorNoDevice CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected
101 cudaErrorInvalidDevice CUDA_ERROR_INVALID_DEVICE: invalid device ordinal
102 cudaErrorDeviceNotLicensed CUDA_ERROR_DEVICE_NOT_LICENSED: device doesn't have valid Grid license
103 cudaErrorSoftwareValidityNotEstablished: integrity checks failed
127 cudaErrorStartupFailure: startup failure in cuda runtime
200 cudaErrorInvalidKernelImage CUDA_ERROR_INVALID_IMAGE hipErrorInvalidImage: device kernel image is invalid
201 cudaErrorDeviceUninitialized CUDA_ERROR_INVALID_CONTEXT hipErrorInvalidContext: invalid device context
202 CUDA_ERROR_CONTEXT_ALREADY_CURRENT
205 cudaErrorMapBufferObjectFailed CUDA_ERROR_MAP_FAILED hipErrorMapFailed: mapping of buffer object failed
206 cudaErrorUnmapBufferObjectFailed CUDA_ERROR_UNMAP_FAILED hipErrorUnmapFailed: unmapping of buffer object failed
207 cudaErrorArrayIsMapped CUDA_ERROR_ARRAY_IS_MAPPED: array is mapped
208 cudaErrorAlreadyMapped CUDA_ERROR_ALREADY_MAPPED: resource already mapped
209 cudaErrorNoKernelImageForDevice CUDA_ERROR_NO_BINARY_FOR_GPU hipErrorNoBinaryForGpu: no kernel image is available for…
210 cudaErrorAlreadyAcquired CUDA_ERROR_ALREADY_ACQUIRED: resource already acquired
211 cudaErrorNotMapped CUDA_ERROR_NOT_MAPPED: resource not mapped
212 cudaErrorNotMappedAsArray CUDA_ERROR_NOT_MAPPED_AS_ARRAY: resource not mapped as array
213 cudaErrorNotMappedAsPointer CUDA_ERROR_NOT_MAPPED_AS_POINTER: resource not mapped as pointer
214 cudaErrorECCUncorrectable CUDA_ERROR_ECC_UNCORRECTABLE hipErrorECCNotCorrectable: uncorrectable ECC error encountered
215 cudaErrorUnsupportedLimit CUDA_ERROR_UNSUPPORTED_LIMIT: limit is not supported on this architecture
216 cudaErrorDeviceAlreadyInUse CUDA_ERROR_CONTEXT_ALREADY_IN_USE hipErrorContextAlreadyInUse: exclusive-thread device already…
217 cudaErrorPeerAccessUnsupported CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: peer access is not supported between these two devices
218 cudaErrorInvalidPtx CUDA_ERROR_INVALID_PTX hipErrorInvalidKernelFile: PTX JIT compilation failed
219 cudaErrorInvalidGraphicsContext CUDA_ERROR_INVALID_GRAPHICS_CONTEXT: invalid OpenGL or DirectX context
220 cudaErrorNvlinkUncorrectable CUDA_ERROR_NVLINK_UNCORRECTABLE: uncorrectable NVLink error detected during the execution
221 cudaErrorJitCompilerNotFound CUDA_ERROR_JIT_COMPILER_NOT_FOUND: PTX JIT compiler library not found
222 cudaErrorUnsupportedPtxVersion CUDA_ERROR_UNSUPPORTED_PTX_VERSION: provided PTX was compiled with an unsupported toolchain
223 cudaErrorJitCompilationDisabled CUDA_ERROR_JIT_COMPILATION_DISABLED: PTX JIT compilation was disabled
224 cudaErrorUnsupportedExecAffinity CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY: provided execution affinity is not supported
225 cudaErrorUnsupportedDevSideSync CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC: provided PTX contains unsupported call to…
226 cudaErrorContained CUDA_ERROR_CONTAINED: Invalid access of peer GPU memory over nvlink or a hardware error
300 cudaErrorInvalidSource CUDA_ERROR_INVALID_SOURCE: device kernel image is invalid
301 cudaErrorFileNotFound CUDA_ERROR_FILE_NOT_FOUND: file not found
302 cudaErrorSharedObjectSymbolNotFound CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: shared object symbol not found
303 cudaErrorSharedObjectInitFailed CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: shared object initialization failed
304 cudaErrorOperatingSystem CUDA_ERROR_OPERATING_SYSTEM: OS call failed or operation not supported on this OS
400 cudaErrorInvalidResourceHandle CUDA_ERROR_INVALID_HANDLE hipErrorInvalidHandle: invalid resource handle
401 cudaErrorIllegalState CUDA_ERROR_ILLEGAL_STATE: operation cannot be performed in the present state
402 cudaErrorLossyQuery CUDA_ERROR_LOSSY_QUERY: attempted introspection would be semantically lossy
500 cudaErrorSymbolNotFound CUDA_ERROR_NOT_FOUND hipErrorNotFound: named symbol not found
600 cudaErrorNotReady CUDA_ERROR_NOT_READY: device not ready
700 cudaErrorIllegalAddress CUDA_ERROR_ILLEGAL_ADDRESS: illegal memory access was encountered
701 cudaErrorLaunchOutOfResources CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: too many resources requested for launch
702 cudaErrorLaunchTimeout CUDA_ERROR_LAUNCH_TIMEOUT hipErrorLaunchTimeOut: launch timed out and was terminated
703 cudaErrorLaunchIncompatibleTexturing CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING: launch uses incompatible texturing mode
704 cudaErrorPeerAccessAlreadyEnabled CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: peer access is already enabled
705 cudaErrorPeerAccessNotEnabled CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: peer access has not been enabled
708 cudaErrorSetOnActiveProcess CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: cannot set while device is active in this process
709 cudaErrorContextIsDestroyed CUDA_ERROR_CONTEXT_IS_DESTROYED: context is destroyed
710 cudaErrorAssert CUDA_ERROR_ASSERT: device-side assert triggered
711 cudaErrorTooManyPeers CUDA_ERROR_TOO_MANY_PEERS: peer mapping resources exhausted
712 cudaErrorHostMemoryAlreadyRegistered CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: part or all of the requested memory range…
713 cudaErrorHostMemoryNotRegistered CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: pointer does not correspond to a registered memory…
714 cudaErrorHardwareStackError CUDA_ERROR_HARDWARE_STACK_ERROR: hardware stack error
715 cudaErrorIllegalInstruction CUDA_ERROR_ILLEGAL_INSTRUCTION: illegal instruction was encountered
716 cudaErrorMisalignedAddress CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address
717 cudaErrorInvalidAddressSpace CUDA_ERROR_INVALID_ADDRESS_SPACE: operation not supported on global/shared address space
718 cudaErrorInvalidPc CUDA_ERROR_INVALID_PC: invalid program counter
719 cudaErrorLaunchFailure CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure
720 cudaErrorCooperativeLaunchTooLarge CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: too many blocks in cooperative launch
721 cudaErrorTensorMemoryLeak CUDA_ERROR_TENSOR_MEMORY_LEAK: tensor memory not completely freed
800 cudaErrorNotPermitted CUDA_ERROR_NOT_PERMITTED: operation not permitted
801 cudaErrorNotSupported CUDA_ERROR_NOT_SUPPORTED: operation not supported
802 cudaErrorSystemNotReady CUDA_ERROR_SYSTEM_NOT_READY: system not yet initialized
803 cudaErrorSystemDriverMismatch CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver…
804 cudaErrorCompatNotSupportedOnDevice CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: forward compatibility was attempted on non…
805 cudaErrorMpsConnectionFailed CUDA_ERROR_MPS_CONNECTION_FAILED: MPS client failed to connect to the MPS control daemon or…
806 cudaErrorMpsRpcFailure CUDA_ERROR_MPS_RPC_FAILURE: remote procedural call between the MPS server and the MPS client failed
807 cudaErrorMpsServerNotReady CUDA_ERROR_MPS_SERVER_NOT_READY: MPS server is not ready to accept new MPS client requests
808 cudaErrorMpsMaxClientsReached CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: hardware resources required to create MPS client have…
809 cudaErrorMpsMaxConnectionsReached CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: hardware resources required to support device…
810 cudaErrorMpsClientTerminated CUDA_ERROR_MPS_CLIENT_TERMINATED: MPS client has been terminated by the server
811 cudaErrorCdpNotSupported CUDA_ERROR_CDP_NOT_SUPPORTED: is using CUDA Dynamic Parallelism, but the current configuration,…
812 cudaErrorCdpVersionMismatch CUDA_ERROR_CDP_VERSION_MISMATCH: unsupported interaction between different versions of CUDA…
900 cudaErrorStreamCaptureUnsupported CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: operation not permitted when stream is capturing
901 cudaErrorStreamCaptureInvalidated CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: operation failed due to a previous error during…
902 cudaErrorStreamCaptureMerge CUDA_ERROR_STREAM_CAPTURE_MERGE: operation would result in a merge of separate capture sequences
903 cudaErrorStreamCaptureUnmatched CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: capture was not ended in the same stream as it began
904 cudaErrorStreamCaptureUnjoined CUDA_ERROR_STREAM_CAPTURE_UNJOINED: capturing stream has unjoined work
905 cudaErrorStreamCaptureIsolation CUDA_ERROR_STREAM_CAPTURE_ISOLATION: dependency created on uncaptured work in another stream
906 cudaErrorStreamCaptureImplicit CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: operation would make the legacy stream depend on a…
907 cudaErrorCapturedEvent CUDA_ERROR_CAPTURED_EVENT: operation not permitted on an event last recorded in a capturing stream
908 cudaErrorStreamCaptureWrongThread CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: attempt to terminate a thread-local capture…
909 cudaErrorTimeout CUDA_ERROR_TIMEOUT: wait operation timed out
910 cudaErrorGraphExecUpdateFailure CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: graph update was not performed because it included…
911 cudaErrorExternalDevice CUDA_ERROR_EXTERNAL_DEVICE: async error has occured in external entity outside of CUDA
912 cudaErrorInvalidClusterSize CUDA_ERROR_INVALID_CLUSTER_SIZE: kernel launch error has occurred due to cluster…
913 cudaErrorFunctionNotLoaded CUDA_ERROR_FUNCTION_NOT_LOADED: function handle is not loaded when calling an API that requires…
914 cudaErrorInvalidResourceType CUDA_ERROR_INVALID_RESOURCE_TYPE: one or more resources passed in are not valid resource…
915 cudaErrorInvalidResourceConfiguration CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: one or more resources are insufficient or…
916 CUDA_ERROR_KEY_ROTATION
999 cudaErrorUnknown CUDA_ERROR_UNKNOWN
"""
