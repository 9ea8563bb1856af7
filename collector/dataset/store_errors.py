"""Say in one sentence why a request to an object store failed, and tell what may pass from what will not.

boto3 raises a ClientError for an answer that refuses, with the store's code and text, and other errors where
there was no whole answer. Texts of the latter have the endpoint in them, so they are not shown.
"""

import importlib
from http import HTTPStatus
from typing import Any, Final

from collector.dataset.store_address import StoreAddress
from collector.errors import SettingsError, StoreChanged, StoreError, StoreUnavailable
from collector.log import printable

MISSING: Final = {"NoSuchKey", "NotFound", "404"}
CHANGED: Final = {"PreconditionFailed", "ConditionalRequestConflict", "412"}
BUSY: Final = {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable", "Throttling"}
BUSY_STATUS: Final = {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.REQUEST_TIMEOUT}

_NO_BUCKET: Final = "the store has no bucket {bucket!r}; make it, or name another"
_WRONG_KEY: Final = "the store refuses the key ({code}); check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_NO_RIGHTS: Final = (
    "the key has no right to do this in {address};"
    " it needs to list the bucket, and to get, put and delete objects"
)
_WRONG_REGION: Final = "the bucket {bucket!r} is in another region; set AWS_REGION{region}"
_WRONG_CLOCK: Final = "the clock of this machine differs from the store's by minutes; set it right"
# The sentence for each code of S3 that says what to change.
SENTENCES: Final = {
    "NoSuchBucket": _NO_BUCKET,
    "AuthFailure": _WRONG_KEY,
    "ExpiredToken": _WRONG_KEY,
    "InvalidAccessKeyId": _WRONG_KEY,
    "InvalidToken": _WRONG_KEY,
    "SignatureDoesNotMatch": _WRONG_KEY,
    "AccessDenied": _NO_RIGHTS,
    "AllAccessDisabled": _NO_RIGHTS,
    "Forbidden": _NO_RIGHTS,
    "403": _NO_RIGHTS,
    "AuthorizationHeaderMalformed": _WRONG_REGION,
    "IllegalLocationConstraintException": _WRONG_REGION,
    "PermanentRedirect": _WRONG_REGION,
    "301": _WRONG_REGION,
    "RequestTimeTooSkewed": _WRONG_CLOCK,
}


def library_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that boto3 raises for a request; none where it is not installed."""
    try:
        names = _names()
    except ImportError:  # the error that is handled says how to install it
        return ()
    return names.BotoCoreError, names.ClientError


def is_missing(error: Exception) -> bool:
    """Return whether an error of boto3 says that the requested object does not exist."""
    return _code(error) in MISSING


def in_words(error: Exception, address: StoreAddress) -> StoreError | SettingsError:
    """Return the StoreError or SettingsError, with a sentence on what to do, for an error of boto3."""
    names, code = _names(), _code(error)
    if code in SENTENCES:
        region = _region(error)
        named = {"bucket": address.bucket, "address": address, "code": code}
        return StoreError(
            SENTENCES[code].format(**named, region=f"={region}" if region else " to the bucket's region")
        )
    if code in CHANGED:
        return StoreChanged(f"another upload writes to {address}; run this one again when it has ended")
    if isinstance(error, names.NoCredentialsError | names.PartialCredentialsError):
        return SettingsError(
            "there is no key for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if isinstance(error, names.SSLError):
        return StoreError("the store's certificate is not valid; set AWS_CA_BUNDLE to that of its authority")
    if _is_passing(error):
        reason = printable(code) or _broken_how(error)
        return StoreUnavailable(f"the store of {address} does not answer well ({reason}); try again later")
    details = _response(error).get("Error", {})
    reason = printable(f"{code} {details.get('Message', '')}") or type(error).__name__
    return StoreError(f"the store refuses a request for {address}: {reason}; is it the right address?")


def _is_passing(error: Exception) -> bool:
    """Return whether a later attempt may succeed: the store was busy or slow, or the connection broke."""
    names = _names()
    if isinstance(error, names.ConnectionError | names.HTTPClientError | names.IncompleteReadError):
        return True
    status = int(_response(error).get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    is_busy = status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED
    return is_busy or status in BUSY_STATUS or _code(error) in BUSY


def _broken_how(error: Exception) -> str:
    """Return in a few words how a connection to the store failed, without the text of the error."""
    names = _names()
    if isinstance(error, names.ConnectTimeoutError | names.ReadTimeoutError):
        return "it is silent"
    if isinstance(error, names.EndpointConnectionError):
        return "it cannot be reached"
    return "the connection broke"


def _response(error: Exception) -> dict[str, Any]:
    """Return the store's answer in an error of boto3 as a dict; empty if there was no answer."""
    return getattr(error, "response", None) or {}


def _code(error: Exception) -> str:
    """Return the code by which S3 names an error; empty if there was no answer."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def _region(error: Exception) -> str:
    """Return the bucket's region, as the store names it in an error of boto3; empty if it names none."""
    response = _response(error)
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return printable(str(headers.get("x-amz-bucket-region") or response.get("Error", {}).get("Region", "")))


def _names() -> Any:
    return importlib.import_module("botocore.exceptions")
