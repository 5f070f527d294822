"""The errors of services that a job calls: names of hosts, and object stores.

Sources: ``gai_strerror(3)`` of glibc 2.36, the error codes of Amazon S3's REST interface, which other object stores follow.
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
AccessDenied
AllAccessDisabled
BucketAlreadyExists
EntityTooLarge
ExpiredToken
IncompleteBody
InternalError
InvalidAccessKeyId
InvalidBucketName
InvalidObjectState
InvalidPart
InvalidRange
InvalidToken
NoSuchBucket
NoSuchKey
NoSuchUpload
OperationAborted
QuotaExceeded
RequestTimeTooSkewed
RequestTimeout
ServiceUnavailable
SignatureDoesNotMatch
SlowDown
"""
