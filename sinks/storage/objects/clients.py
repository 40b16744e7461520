"""Makes obstore's clients. Credentials come from the environment, from the machine's role, or from options.

They are in the client alone: nothing of epochal that has a repr, is logged or is recorded has them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from epochal.sinks.storage.objects.requests import Client
from epochal.txn.errors import Refused

if TYPE_CHECKING:
    from obstore.store import S3Store

TIMEOUT = "20s"  # for one request; obstore has no limit for reading else
CONNECT_TIMEOUT = "5s"
BY_HOST = ("virtual_hosted_style_request", "aws_virtual_hosted_style_request")
ACCOUNT_OPTIONS = ("account_name", "azure_storage_account_name")
ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
TRUE = ("1", "true", "t", "yes", "y", "on")  # as obstore reads a variable


@dataclass(frozen=True, slots=True)
class Provider:
    """Where the address of a store may be given."""

    endpoint_options: tuple[str, ...]
    endpoint_variables: tuple[str, ...]  # in the order in which they count


AWS = Provider(
    ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url"),
    ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
)
GOOGLE = Provider(("base_url", "google_base_url"), ("GOOGLE_BASE_URL",))
AZURE = Provider(("endpoint", "azure_storage_endpoint", "azure_endpoint"), ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"))
PROVIDERS = {**dict.fromkeys(("s3", "s3a", "s3n"), AWS), "gs": GOOGLE}  # all others are Azure's


@dataclass(frozen=True, slots=True)
class Clients:
    """How clients of one bucket are made."""

    url: str
    # These two tell stores with buckets of one name apart. No endpoint is the provider's own; Azure alone has accounts.
    endpoint: str = field(repr=False)
    account: str = field(repr=False)
    is_azure: bool
    make: Callable[[], Client] = field(repr=False)


def clients_for(url: str, options: Mapping[str, str] | None = None) -> Clients:
    """Clients for the bucket of a URL such as ``s3://bucket``.

    `options` are obstore's for that store (``access_key_id``, ``endpoint``, ``account_key``, ...) and override the
    environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``AZURE_STORAGE_ACCOUNT_KEY``, ...); ``timeout`` is that
    of one request, such as "20s".
    """
    given = dict(options or {})
    timeout = given.pop("timeout", TIMEOUT)
    provider = PROVIDERS.get(urlsplit(url).scheme, AZURE)
    endpoint = _first(given, provider.endpoint_options, provider.endpoint_variables)
    account = _first(given, ACCOUNT_OPTIONS, (ACCOUNT,)) if provider is AZURE else ""
    client: dict[str, Any] = {"timeout": timeout, "connect_timeout": CONNECT_TIMEOUT}
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    config: dict[str, Any] = given
    if provider is AWS:
        # A copy with this condition keeps the metadata. The probe finds out whether the store heeds it.
        config = {"conditional_put": "etag", "copy_if_not_exists": "header: If-None-Match: *", **given}
    _check_installed()

    def make() -> Client:
        from obstore.exceptions import BaseError
        from obstore.store import from_url

        try:
            # Tries again are ours: one that obstore makes by itself would meet its own object and say that it exists.
            store = from_url(url, config=config, client_options=client, retry_config={"max_retries": 0})  # type: ignore[call-overload,arg-type,unused-ignore]  # the options are the store's own
        except (BaseError, ValueError):
            names = ", ".join(sorted(given)) or "the environment"
            hint = f"; {ACCOUNT} is not set" if provider is AZURE and not account else ""
            raise Refused(
                f"{url}: obstore makes no client of {names}{hint}. Nothing was written. Correct them"
            ) from None
        return Client(store, url, _beside(url, endpoint, given, client) if provider is AWS else None)

    return Clients(url, endpoint, account, provider is AZURE, make)


def _beside(url: str, endpoint: str, given: Mapping[str, Any], client: Mapping[str, Any]) -> Callable[[str], S3Store]:
    """Stores whose empty name is ``folder/``: their bucket, or their endpoint, goes on to the folder."""

    def make(folder: str) -> S3Store:
        from obstore.store import S3Store

        bucket, path = urlsplit(url).netloc, quote(folder, safe="/~")
        config: dict[str, Any] = {n: value for n, value in given.items() if n not in (*BY_HOST, *AWS.endpoint_options)}
        if in_host(given) and endpoint:
            config |= {"endpoint": f"{endpoint.rstrip('/')}/{path}", "virtual_hosted_style_request": "true"}
        else:
            config |= {"endpoint": endpoint} if endpoint else {}
            config["virtual_hosted_style_request"] = "false"
            bucket = f"{bucket}/{path}"
        return S3Store(bucket, config=config, client_options=client)  # type: ignore[arg-type,unused-ignore]

    return make


def in_host(options: Mapping[str, Any]) -> bool:
    """Whether the bucket is in the name of the host, by options or else the environment."""
    given = next((options[name] for name in BY_HOST if name in options), os.environ.get(BY_HOST[-1].upper(), ""))
    return str(given).lower() in TRUE


def _first(given: Mapping[str, str], options: tuple[str, ...], variables: tuple[str, ...]) -> str:
    """What one of some options says, or else one of some variables of the environment."""
    for name in options:
        if name in given:
            return str(given[name])
    return next((os.environ[name] for name in variables if os.environ.get(name)), "")


def _check_installed() -> None:
    try:
        import obstore  # noqa: F401
    except ImportError:
        raise Refused(
            "object stores are reached by obstore, which is not installed: pip install 'epochal[objects]'"
        ) from None
