"""obstore's errors as what follows from them.

Its texts are never passed on: they quote requests and answers, and so may quote a signature or a key.
"""

from __future__ import annotations

import re

TRANSIENT = frozenset({408, 409, 425, 429})  # and all from 500, but for those that will not change:
NEVER = frozenset({501, 505})
VARIABLES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    **dict.fromkeys(("az", "abfs", "abfss"), "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}
NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")  # the second is Azure's
CREDENTIALS = ("credential error", "token request", "//169.254.")  # the last is where a machine's role is asked for


class Taken(Exception):
    """The name exists, or another request is about to take it: 412 and 409 come as one error. Look who has it."""


class Away(OSError):
    """No answer, or one that asks to come again. The request was carried out, or was not, or will be."""


class TooLong(OSError):
    """An object with more bytes than were asked for."""


def fault_of(path: str, fault: Exception, *, creates: bool = True) -> Exception:
    """What an error of obstore means; an error that is not obstore's is returned as it is.

    A conflict with a request that creates nothing is one to send again.
    """
    from obstore import exceptions

    status = _status(str(fault)) if isinstance(fault, exceptions.BaseError) else None
    has_no_bucket = any(code in str(fault) for code in NO_BUCKET)
    if isinstance(fault, FileNotFoundError):
        return FileNotFoundError(f"{path}: {'no such bucket' if has_no_bucket else 'no such object'}")
    # A 404 can also be the machine's answer to the question for a role: that says nothing about the object.
    if status == 404 and has_no_bucket:
        return FileNotFoundError(f"{path}: no such bucket")
    if isinstance(fault, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return Taken(path) if creates else Away(f"{path}: {reason(str(fault))}")
    if isinstance(fault, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError) or status in (401, 403):
        return PermissionError(f"{path}: {_denied(path, str(fault))}")
    if isinstance(fault, exceptions.NotSupportedError | exceptions.InvalidPathError):
        return OSError(f"{path}: this store has no such request, or no such names")
    if isinstance(fault, exceptions.BaseError):
        if status is None or status in TRANSIENT or (status >= 500 and status not in NEVER):
            return Away(f"{path}: {_why(path, str(fault))}")
        return OSError(f"{path}: {_why(path, str(fault))}")
    if isinstance(fault, ValueError):
        return OSError(f"{path}: an object cannot have this name")
    return fault


def answered(path: str, status: int | None) -> OSError:
    """What a status means that no request should be answered with; None for no answer at all."""
    if status is None:
        return Away(f"{path}: the store did not answer")
    if status in (401, 403):
        return PermissionError(f"{path}: {_denied(path, f'status code: {status}')}")
    again = status in TRANSIENT or (status >= 500 and status not in NEVER)
    return (Away if again else OSError)(f"{path}: the store answered {status}")


def reason(text: str) -> str:
    """What can be said of an error without quoting it.

    >>> reason("... Server returned non-2xx status code: 503 Slow: <Error><Code>SlowDown</Code>key=SECRET</Error>")
    'the store answered 503 SlowDown'
    >>> reason("error sending request ... Connection refused ... https://host?sig=SECRET")
    'the store cannot be reached: connection refused'
    >>> reason("Error performing PUT http://169.254.169.254/latest/api/token - status code: 403 Forbidden")
    'no usable credentials'
    """
    status = _status(text)
    if _lacks_credentials(text):
        return "no usable credentials"
    if status is not None:
        code = re.search(r"<Code>(\w{1,60})</Code>", text)
        return f"the store answered {status}" + (f" {code[1]}" if code else "")
    words = text.lower()
    if "connection refused" in words:
        return "the store cannot be reached: connection refused"
    if "timed out" in words or "timedout" in words:
        return "the store did not answer in time"
    return "the connection broke before the answer"


def _lacks_credentials(text: str) -> bool:
    """Whether no request was signed: nothing gave credentials to sign it with."""
    return any(sign in text.lower() for sign in CREDENTIALS)


def _denied(path: str, text: str) -> str:
    """Why a store lets nobody in, and where it looked for credentials.

    >>> _denied("s3://bucket/a", "... status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code></Error>")
    'the store answered 403 SignatureDoesNotMatch. Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY'
    """
    return _why(path, text) if _lacks_credentials(text) else f"{reason(text)}. Check {_variables(path)}"


def _why(path: str, text: str) -> str:
    """The reason of an error, with the variables to set if there are no credentials."""
    return _no_credentials(path) if _lacks_credentials(text) else reason(text)


def _no_credentials(path: str) -> str:
    """What to do where nothing gave credentials.

    >>> _no_credentials("gs://bucket/a")
    'no usable credentials: set GOOGLE_APPLICATION_CREDENTIALS in the environment, or run where the machine has a role'
    """
    elsewhere = ", and AWS_ENDPOINT_URL for a store that is not Amazon's" if path.startswith("s3") else ""
    return (
        f"no usable credentials: set {_variables(path)} in the environment{elsewhere}, or run where the machine has a "
        "role"
    )


def _variables(path: str) -> str:
    return VARIABLES.get(path.partition("://")[0], "the credentials")


def _status(text: str) -> int | None:
    found = re.search(r"status code: (\d{3})\b", text)
    return int(found[1]) if found else None
