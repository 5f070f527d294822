"""The errors of services that a job calls: names of hosts, and object stores.

Sources: ``gai_strerror(3)`` of glibc 2.36, the error codes of Amazon S3's REST interface, which other object stores follow,
those of Azure's blobs, ``CoreErrors`` of AWS's library for C++, which Arrow prints, and botocore's ``exceptions.py`` 1.40.
"""

from __future__ import annotations

RESOLVER = """
EAI_NONAME ENOTFOUND: Name or service not known
EAI_AGAIN: Temporary failure in name resolution
EAI_FAIL: Non-recoverable failure in name resolution
EAI_NODATA: No address associated with hostname
EAI_SERVICE: Servname not supported for ai_socktype
"""

OBJECT_STORES = """
AccessDenied ACCESS_DENIED AuthorizationFailure
AllAccessDisabled
BucketAlreadyExists
EntityTooLarge
ExpiredToken EXPIRED_TOKEN
IncompleteBody
InternalError INTERNAL_FAILURE
InvalidAccessKeyId INVALID_ACCESS_KEY_ID
InvalidBucketName
InvalidObjectState
InvalidPart
InvalidRange
InvalidToken
NoSuchBucket NO_SUCH_BUCKET ContainerNotFound
NoSuchKey NO_SUCH_KEY RESOURCE_NOT_FOUND BlobNotFound
NoSuchUpload
OperationAborted
QuotaExceeded
RequestTimeTooSkewed
RequestTimeout REQUEST_TIMEOUT OperationTimedOut
ServiceUnavailable SERVICE_UNAVAILABLE ServerBusy
SignatureDoesNotMatch SIGNATURE_DOES_NOT_MATCH AuthenticationFailed
SlowDown SLOW_DOWN THROTTLING
STORE_NOT_REACHED NETWORK_CONNECTION
"""

ENDPOINTS = """
STORE_NOT_REACHED: Could not connect to the endpoint URL…
STORE_NOT_REACHED: Failed to connect to proxy URL…
STORE_CLOSED: Connection was closed before we received a valid response…
STORE_TIMED_OUT: Connect timeout on endpoint URL…
STORE_TIMED_OUT: Read timeout on endpoint URL…
STORE_CERTIFICATE: SSL validation failed for…
STORE_NO_CREDENTIALS: Unable to locate credentials
"""
