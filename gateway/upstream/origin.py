"""Where an engine is, and the head of a request to it."""

from __future__ import annotations

import functools
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, cast
from urllib.parse import unquote, urlsplit

_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNSAFE_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_METHOD = re.compile(r"[A-Z]+")
_PATH = re.compile(r"/[!-~]*")  # visible ASCII: no space, control character or line break
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Origin:
    """Scheme, host and port (or the path of a Unix socket), and a prefix of all paths (``/prefix`` or empty)."""

    scheme: Literal["http", "https", "unix"]
    host: str = "localhost"
    port: int = 0
    base: str = ""
    socket: str = ""

    @classmethod
    def parse(cls, url: str) -> Origin:
        """Read ``http(s)://host[:port][/prefix]``, ``unix:/path`` or ``http+unix://%2Fpath``.

        A final ``/v1``, as clients write it into their ``base_url``, is dropped: our paths bring it along.
        Raises ``ValueError`` with one line that says what is wrong and does not repeat the URL.
        """
        if url.startswith("unix:"):
            return cls._of_socket(re.sub(r"^unix:(//(?=/))?", "", url))
        parts = urlsplit(url)  # ValueError: broken brackets
        if parts.scheme == "http+unix":
            return cls._of_socket(unquote(parts.netloc), parts.path)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("an engine's URL is http://host:port, https://host:port or unix:/path")
        if parts.username is not None or parts.query or parts.fragment:
            raise ValueError("an engine's URL has no user, query or fragment (a key goes into api_key)")
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode()
        if not re.fullmatch(r"([0-9a-z_:%-]{1,63}(\.|$))+", host):
            raise ValueError("an engine's URL has a host name of letters, digits, dots and hyphens")
        scheme = cast("Literal['http', 'https']", parts.scheme)
        return cls(scheme, host, parts.port or _PORTS[scheme], cls._prefix(parts.path))  # ValueError: no port number

    @classmethod
    def _of_socket(cls, path: str, base: str = "") -> Origin:
        if not path.startswith("/"):
            raise ValueError("a Unix socket is named by its absolute path: unix:/run/vllm.sock")
        return cls("unix", base=cls._prefix(base), socket=path)

    @staticmethod
    def _prefix(path: str) -> str:
        base = path.rstrip("/").removesuffix("/v1").rstrip("/")
        if base and not _PATH.fullmatch(base):
            raise ValueError("the path of an engine's URL is not percent-encoded")
        return base

    @property
    def url(self) -> str:
        """Everything before a path, for clients that take URLs."""
        return f"{'https' if self.scheme == 'https' else 'http'}://{self.authority}{self.base}"

    @property
    def authority(self) -> str:
        """What stands in the Host field."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port in {0, _PORTS.get(self.scheme)} else f"{host}:{self.port}"


def head_start(method: str, path: str, origin: Origin, headers: Iterable[tuple[bytes, bytes]] = ()) -> bytes:
    """Return a request's head without its length and its end, to be built once and completed by ``head_end``.

    Asks for ``identity``. Raises ``ValueError`` for anything that could end a line or the request line early.
    """
    if not _METHOD.fullmatch(method) or not _PATH.fullmatch(path):
        raise ValueError("not a method and a percent-encoded path")
    start = f"{method} {origin.base}{path} HTTP/1.1\r\nhost: {origin.authority}\r\naccept-encoding: identity\r\n"
    return start.encode("ascii") + header_lines(headers)


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return header fields as they stand on the wire; ``ValueError`` for a name or value that cannot be one."""
    lines = []
    for name, value in headers:
        if not _NAME.fullmatch(name) or _UNSAFE_VALUE.search(value):
            raise ValueError("not a header field")
        lines.append(b"%b: %b\r\n" % (name, value))
    return b"".join(lines)


def head_end(length: int) -> bytes:
    """Return the last lines of the head of a request with a body of ``length`` bytes."""
    return b"content-length: %d\r\n\r\n" % length


def request_head(
    method: str, path: str, origin: Origin, headers: Iterable[tuple[bytes, bytes]] = (), length: int = 0
) -> bytes:
    """Return the whole head of a request with a body of ``length`` bytes (see ``head_start``)."""
    end = b"\r\n" if method in {"GET", "HEAD"} and not length else head_end(length)
    return head_start(method, path, origin, headers) + end


@functools.cache  # reading the authorities takes as long as starting half the gateway
def tls_context(ca_file: str | None = None, *, verify: bool = True) -> ssl.SSLContext:
    """Return a client's TLS context: the system's authorities, or those of ``ca_file``; unverified only if asked."""
    context = ssl.create_default_context(cafile=ca_file)
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
