"""Addresses of what the gateway connects to: what they may be, told before anybody connects."""

from __future__ import annotations

import re
from contextlib import suppress
from urllib.parse import parse_qsl, urlsplit

from pydantic import SecretStr

_HOST = re.compile(r"([0-9a-z_:%-]{1,63}(\.|$))+")
_VISIBLE = re.compile(r"[!-~]+")
_DATABASE = re.compile(r"(/\d*)?").fullmatch
_OPTION = re.compile(r"db=\d+|ssl_(ca_certs|certfile|keyfile)=.+|ssl_cert_reqs=(required|none)").fullmatch


def an_engine(url: str) -> str:
    """Check what upstream's Origin.parse takes, so that a fault is told with its place, and drop a final /v1."""
    if url.startswith("unix:"):
        socket = "/" + url.removeprefix("unix:").lstrip("/")
        if not url.startswith("unix:/") or socket == "/":
            raise ValueError("has to name the socket's file by its absolute path: unix:/run/vllm.sock")
        return f"unix:{socket}"
    try:
        parts = urlsplit(url)
        impossible = parts.port == 0
    except ValueError:
        impossible = True
    if impossible:
        raise ValueError("has a host or a port that cannot be: write http://host:8000")
    if (
        parts.scheme not in {"http", "https"}
        or not _HOST.fullmatch(parts.hostname or "")
        or not _VISIBLE.fullmatch(url)
    ):
        raise ValueError("has to be http://host:port, https://host:port or unix:/path")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or a password: put the engine's key into api_key")
    if "?" in url or "#" in url:
        raise ValueError("must not hold a query or a fragment: end it after the port or the path")
    prefix = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{prefix}"


def a_redis(url: SecretStr | None) -> SecretStr | None:
    """Check an address of Redis; of its options those that change how it answers would break what we do with it."""
    text, fine = "redis:///" if url is None else url.get_secret_value(), False
    with suppress(ValueError):  # a port that cannot be
        parts = urlsplit(text)
        there = parts.scheme == "unix" or (parts.scheme in {"redis", "rediss"} and bool(_DATABASE(parts.path)))
        fine = parts.port != 0 and there
    if not fine:
        raise ValueError("has to be redis://host:port/0, rediss://… or unix:///path")
    for name, value in parse_qsl(urlsplit(text).query, keep_blank_values=True):
        if not _OPTION(f"{name}={value}"):
            raise ValueError(f"has an option that is none here or has no such value: {name!r}; leave it out")
    return url
