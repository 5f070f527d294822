"""What services that a job calls answer with by number: the statuses of HTTP, and the results of libcurl.

Sources: IANA's registry of HTTP status codes (RFC 9110, 6585), ``curl/curl.h`` of libcurl 8.11. An answer of the job's own
servers is left out: a private address, or a host without a domain. Such a server is a process of the job.
Forms: requests, httpx, aiohttp, Rust's reqwest, clients of OpenAI's interface, ``google.api_core``.
"""

from __future__ import annotations

import re

_FROM_OUTSIDE = (
    r"^(?!.{0,2000}?\bhttps?://(?:localhost|10\.|127\.|0\.0\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|\[|"
    r"[\w-]{1,63}(?:[:/\s\"']|$))).{0,600}?"
)

# huggingface_hub's "thrown while requesting" is of a request that it asks again.
HTTP_AT = re.compile(
    _FROM_OUTSIDE + r"(?:\bHTTP(?:/\d(?:\.\d)?)?[ _-](?:[Ee]rror|[Ss]tatus)(?: code)?(?: of| is)?[ :=(\"']{1,3}|"
    r"\b[Ss]tatus[ _]?[Cc]ode(?: of| is)?[ :=(\"']{1,3}|\bHTTP(?:Status)?Error: |: (?=\d{1,3} (?:Client|Server) Error\b)|"
    r"\b(?:[Cc]lient|[Ss]erver) error '(?=\d{3} )|\bHTTP status (?:client|server) error \((?=\d{3} )|\bError code: (?=\d{3} - )|"
    r"<Response \[|"
    r"^\W{0,4}(?=\d{3} (?:Client|Server) Error: )|\w: (?=\d{3}, message=)|: (?=\d{3} (?:GET|POST|PUT|HEAD|DELETE|PATCH) https?://))"
    r"(\d{1,3})\b(?! thrown while)(?=[ )\]:,.\"']|$)"
)

HTTP = """
400 HTTP_BAD_REQUEST
401 HTTP_UNAUTHORIZED
402 HTTP_PAYMENT_REQUIRED
403 HTTP_FORBIDDEN
404 HTTP_NOT_FOUND
405 HTTP_METHOD_NOT_ALLOWED
406 HTTP_NOT_ACCEPTABLE
407 HTTP_PROXY_AUTHENTICATION_REQUIRED
408 HTTP_REQUEST_TIMEOUT
409 HTTP_CONFLICT
410 HTTP_GONE
411 HTTP_LENGTH_REQUIRED
412 HTTP_PRECONDITION_FAILED
413 HTTP_CONTENT_TOO_LARGE
414 HTTP_URI_TOO_LONG
415 HTTP_UNSUPPORTED_MEDIA_TYPE
416 HTTP_RANGE_NOT_SATISFIABLE
422 HTTP_UNPROCESSABLE_CONTENT
425 HTTP_TOO_EARLY
429 HTTP_TOO_MANY_REQUESTS
431 HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE
500 HTTP_INTERNAL_SERVER_ERROR
501 HTTP_NOT_IMPLEMENTED_BY_SERVER
502 HTTP_BAD_GATEWAY
503 HTTP_SERVICE_NOT_AVAILABLE
504 HTTP_GATEWAY_TIMEOUT
505 HTTP_HTTP_VERSION_NOT_SUPPORTED
507 HTTP_INSUFFICIENT_STORAGE
508 HTTP_LOOP_DETECTED
511 HTTP_NETWORK_AUTHENTICATION_REQUIRED
"""

CURL_AT = re.compile(
    _FROM_OUTSIDE + r"\b[Cc](?:url|URL)(?:E| request| command)?(?: returned| failed| exited)?(?: with)?(?: an)? ?"
    r"(?:error|code|exit|status)"
    r"(?: code)?[ :=(]{1,3}(\d{1,3})\b"
)

CURL = """
1 CURLE_UNSUPPORTED_PROTOCOL
2 CURLE_FAILED_INIT
3 CURLE_URL_MALFORMAT
5 CURLE_COULDNT_RESOLVE_PROXY
6 CURLE_COULDNT_RESOLVE_HOST
7 CURLE_COULDNT_CONNECT
9 CURLE_REMOTE_ACCESS_DENIED
16 CURLE_HTTP_STREAM
18 CURLE_PARTIAL_FILE
22 CURLE_HTTP_RETURNED_ERROR
23 CURLE_WRITE_ERROR
26 CURLE_READ_ERROR
27 CURLE_OUT_OF_MEMORY
28 CURLE_OPERATION_TIMEDOUT
35 CURLE_SSL_CONNECT_ERROR
47 CURLE_TOO_MANY_REDIRECTS
48 CURLE_UNKNOWN_OPTION
51 CURLE_PEER_FAILED_VERIFICATION
52 CURLE_GOT_NOTHING
53 CURLE_SSL_ENGINE_NOTFOUND
55 CURLE_SEND_ERROR
56 CURLE_RECV_ERROR
58 CURLE_SSL_CERTPROBLEM
59 CURLE_SSL_CIPHER
60 CURLE_PEER_FAILED_VERIFICATION
67 CURLE_LOGIN_DENIED
77 CURLE_SSL_CACERT_BADFILE
78 CURLE_REMOTE_FILE_NOT_FOUND
92 CURLE_HTTP_STREAM
"""
