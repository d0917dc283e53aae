"""Read a package index the way the user's pip is set up to, without pip: simple API, find-links, netrc, proxies.

`pypi-simple` and `unearth` read no pip configuration, and bring requests, pydantic or httpx2 for what `urllib` does
here with the system's certificates.
"""

from __future__ import annotations

import base64
import configparser
import html.parser
import json
import netrc
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from skillgen.kernel.errors import IO as IO_EXIT
from skillgen.kernel.errors import SkillgenError

PYPI = "https://pypi.org/simple"
ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"


@dataclass(frozen=True)
class Link:
    """One file that an index or a find-links page offers."""

    filename: str
    url: str
    sha256: str | None = None
    yanked: bool = False


@dataclass(frozen=True)
class Settings:
    """Where to look, as pip's environment variables and configuration files say."""

    indexes: tuple[str, ...] = (PYPI,)
    find_links: tuple[str, ...] = ()
    cert: str | None = None
    proxy: str | None = None
    trusted_hosts: tuple[str, ...] = ()
    timeout: float = 60.0


def config_files(env: Mapping[str, str]) -> Iterator[Path]:
    """pip's configuration files, least important first."""
    named = env.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = Path(env.get("HOME", str(Path.home())))
    for folder in reversed(env.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)):
        yield Path(folder) / "pip" / "pip.conf"
    yield Path("/etc/pip.conf")
    if sys.platform == "darwin":
        yield Path("/Library/Application Support/pip/pip.conf")
        yield home / "Library/Application Support/pip/pip.conf"
    yield home / ".pip" / "pip.conf"
    yield Path(env.get("XDG_CONFIG_HOME", str(home / ".config"))) / "pip" / "pip.conf"
    yield Path(sys.prefix) / "pip.conf"
    if named:
        yield Path(named)


def load_settings(env: Mapping[str, str] = os.environ) -> Settings:
    """Merge pip's configuration files and PIP_* variables; the later source wins, option by option."""
    options: dict[str, str] = {}
    for path in config_files(env):
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(path.read_text(encoding="utf-8"))
        except OSError:
            continue
        except (configparser.Error, UnicodeDecodeError) as error:
            raise SkillgenError(
                "bad-pip-config", f"cannot read pip's configuration: {error}", where=str(path), exit_code=IO_EXIT
            ) from None
        for section in ("global", "download"):
            if parser.has_section(section):
                options.update({key.replace("_", "-"): value for key, value in parser.items(section)})
    options.update({k[4:].lower().replace("_", "-"): v for k, v in env.items() if k.startswith("PIP_") and v})
    offline = options.get("no-index", "").lower() in {"1", "true", "yes", "on"}
    indexes = (options.get("index-url", PYPI), *options.get("extra-index-url", "").split())
    return Settings(
        indexes=() if offline else tuple(url.rstrip("/") for url in indexes),
        find_links=tuple(options.get("find-links", "").split()),
        cert=options.get("cert"),
        proxy=options.get("proxy"),
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
        timeout=float(options.get("timeout", options.get("default-timeout", 60))),
    )


class Client:
    """Opens URLs with the user's certificates, proxies and credentials."""

    def __init__(self, settings: Settings, env: Mapping[str, str] = os.environ) -> None:
        self.settings = settings
        self._env = env
        self._passwords: dict[str, tuple[str, str]] = {}
        self._contexts: dict[bool, ssl.SSLContext] = {}

    def open(self, url: str, *, accept: str = "*/*", tries: int = 3) -> Any:
        """The response to a request for `url`; OSError when it cannot be had."""
        parts = urllib.parse.urlsplit(url)
        if parts.username:
            secret = (urllib.parse.unquote(parts.username), urllib.parse.unquote(parts.password or ""))
            parts = parts._replace(netloc=parts.netloc.rpartition("@")[2])
            self._passwords[parts.netloc] = secret
        request = urllib.request.Request(parts.geturl(), headers={"Accept": accept, "User-Agent": "skillgen"})
        login = self._login(parts) if parts.scheme in {"http", "https"} else None
        if login:
            token = base64.b64encode(":".join(login).encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {token}")
        opener = urllib.request.build_opener(*self._handlers(parts))
        for attempt in range(tries):
            try:
                return opener.open(request, timeout=self.settings.timeout)
            except urllib.error.HTTPError as error:
                if error.code < 500 or attempt == tries - 1:
                    raise
            except (OSError, HTTPException):
                if parts.scheme == "file" or attempt == tries - 1:
                    raise
            time.sleep(0.2 * 2**attempt)
        raise AssertionError("unreachable")

    def _context(self, trusted: bool) -> ssl.SSLContext:
        if trusted not in self._contexts:
            context = ssl.create_default_context(cafile=self.settings.cert)
            if trusted:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            self._contexts[trusted] = context
        return self._contexts[trusted]

    def _login(self, parts: urllib.parse.SplitResult) -> tuple[str, str] | None:
        if parts.netloc in self._passwords:
            return self._passwords[parts.netloc]
        path = self._env.get("NETRC", str(Path(self._env.get("HOME", "~")).expanduser() / ".netrc"))
        try:
            found = netrc.netrc(path).authenticators(parts.hostname or "")
        except (OSError, netrc.NetrcParseError):
            return None
        return (found[0], found[2] or "") if found else None

    def _handlers(self, parts: urllib.parse.SplitResult) -> Iterator[urllib.request.BaseHandler]:
        if parts.scheme != "file":
            trusted = parts.hostname in {name.partition(":")[0] for name in self.settings.trusted_hosts}
            yield urllib.request.HTTPSHandler(context=self._context(trusted))
        if self.settings.proxy:
            yield urllib.request.ProxyHandler({"http": self.settings.proxy, "https": self.settings.proxy})


class _Anchors(html.parser.HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__()
        self.base = base
        self.links: list[Link] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if tag == "base" and href:
            self.base = urllib.parse.urljoin(self.base, href)
        elif tag == "a" and href:
            url, _, fragment = urllib.parse.urljoin(self.base, href).partition("#")
            digest = urllib.parse.parse_qs(fragment).get("sha256", [None])[0]
            name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
            self.links.append(Link(name, url, digest, "data-yanked" in values))


def parse_page(body: bytes, content_type: str, url: str) -> list[Link]:
    """The files on one page of the simple API, JSON (PEP 691) or HTML (PEP 503)."""
    if "json" in content_type:
        return [
            Link(f["filename"], urllib.parse.urljoin(url, f["url"]), f["hashes"].get("sha256"), bool(f.get("yanked")))
            for f in json.loads(body)["files"]
        ]
    parser = _Anchors(url)
    parser.feed(body.decode("utf-8", "replace"))
    return parser.links


def read_page(client: Client, url: str) -> list[Link]:
    """The files on the page at `url`; OSError when it cannot be had."""
    with client.open(url, accept=ACCEPT) as response:
        return parse_page(response.read(), response.headers.get("Content-Type") or "", response.geturl())


def find_links(client: Client, place: str) -> list[Link]:
    """The files of one --find-links place: a folder, a file:// folder, or a page."""
    folder = Path(urllib.request.url2pathname(urllib.parse.urlsplit(place).path) if "file:" in place[:5] else place)
    if folder.is_dir():
        return [Link(path.name, path.resolve().as_uri()) for path in sorted(folder.iterdir()) if path.is_file()]
    return read_page(client, folder.resolve().as_uri() if folder.is_file() else place)


def project_links(client: Client, project: str) -> tuple[list[Link], list[str]]:
    """Every file that the find-links places and the indexes offer for `project`, and what went wrong on the way."""
    links: list[Link] = []
    problems: list[str] = []
    for place in client.settings.find_links:
        try:
            links += find_links(client, place)
        except (OSError, ValueError, HTTPException) as error:
            problems.append(f"{place}: {_reason(error)}")
    for index in client.settings.indexes:
        page = f"{index}/{project}/"
        url = page + "index.html" if index.startswith("file:") else page
        try:
            links += read_page(client, url)
        except (OSError, ValueError, KeyError, HTTPException) as error:
            problems.append(f"{_public(index)}: {_reason(error)}")
    return links, problems


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.reason}"
    inner = getattr(error, "reason", None) or error
    return "not found" if isinstance(inner, FileNotFoundError) else str(inner) or type(inner).__name__


def _public(url: str) -> str:
    """`url` without a user's name and password."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
