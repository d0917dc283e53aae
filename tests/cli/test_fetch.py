"""`fetch` against a local index: JSON and HTML pages, find-links, credentials, damaged and hostile wheels."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillgen.fetching.fetch import fetch
from skillgen.fetching.index import PYPI, Settings, load_settings
from skillgen.kernel.errors import IO, REFUSED, USAGE, SkillgenError


def make_wheel(folder: Path, name: str, members: dict[str, str] | None = None) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in (members or {"demo_pkg/__init__.py": f"FROM = {name!r}\n"}).items():
            archive.writestr(member, text)
    return path


class Index(http.server.ThreadingHTTPServer):
    """A loopback package index: `pages` maps a path to (content type, body)."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {}
        self.password: str | None = None
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/simple"

    def publish(self, *wheels: Path, kind: str = "json", digest: str | None = None) -> None:
        files = []
        for wheel in wheels:
            self.pages[f"/files/{wheel.name}"] = ("application/zip", wheel.read_bytes())
            sha = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
            files.append({"filename": wheel.name, "url": f"../../files/{wheel.name}", "hashes": {"sha256": sha}})
        if kind == "json":
            self.pages["/simple/demo-pkg/"] = (
                "application/vnd.pypi.simple.v1+json",
                json.dumps({"files": files}).encode(),
            )
        else:
            lines = [f'<a href="{f["url"]}#sha256={f["hashes"]["sha256"]}">{f["filename"]}</a>' for f in files]
            self.pages["/simple/demo-pkg/"] = ("text/html", "\n".join(lines).encode())


class Handler(http.server.BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path)
        if self.server.password and self.headers.get("Authorization") != self.server.password:
            self.send_error(401)
        elif page is None:
            self.send_error(404)
        else:
            self.send_response(200)
            self.send_header("Content-Type", page[0])
            self.send_header("Content-Length", str(len(page[1])))
            self.end_headers()
            self.wfile.write(page[1])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[Index]:
    with Index() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def env(index: str, **more: str) -> dict[str, str]:
    return {"PIP_CONFIG_FILE": "/dev/null", "PIP_INDEX_URL": index, "HOME": "/nonexistent", **more}


@pytest.mark.parametrize("kind", ["json", "html"])
def test_a_release_is_unpacked_and_verified(index: Index, tmp_path: Path, kind: str) -> None:
    wheel = make_wheel(tmp_path, "demo_pkg-1.0-py3-none-any.whl")
    index.publish(wheel, kind=kind)
    got = fetch("pypi:Demo.Pkg==1.0", tmp_path / "new" / "tree", env=env(index.url))
    assert (got.name, got.version, got.verified, got.files) == ("demo-pkg", "1.0", True, 1)
    assert (tmp_path / "new/tree/demo_pkg/__init__.py").read_text() == f"FROM = {wheel.name!r}\n"
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["tree"]


def test_any_platform_serves_and_the_choice_is_stable(index: Index, tmp_path: Path) -> None:
    names = ["cp311-cp311-win_amd64", "cp313-cp313-macosx_14_0_arm64", "cp310-cp310-manylinux_2_28_x86_64"]
    wheels = [make_wheel(tmp_path, f"demo_pkg-1.0-{name}.whl") for name in names]
    index.publish(*wheels)
    assert "manylinux" in fetch("pypi:demo-pkg==1.0", tmp_path / "a", env=env(index.url)).wheel
    index.publish(wheels[0])
    assert "win_amd64" in fetch("pypi:demo-pkg==1.0", tmp_path / "b", env=env(index.url)).wheel


def test_without_a_version_the_newest_final_release_comes(index: Index, tmp_path: Path) -> None:
    index.publish(*(make_wheel(tmp_path, f"demo_pkg-{v}-py3-none-any.whl") for v in ("0.9", "0.10", "0.11rc1")))
    assert fetch("demo-pkg", tmp_path / "a", env=env(index.url)).version == "0.10"


def test_versions_and_names_are_read_as_pip_reads_them(index: Index, tmp_path: Path) -> None:
    names = ["demo_pkg-1.0-py3", "demo_pkg-1.0.post1-py3", "demo_pkg-9-of-today-py3", "Demo.Pkg-0.9-1-py3"]
    index.publish(*(make_wheel(tmp_path, f"{name}-none-any.whl") for name in names))
    assert fetch("pypi:demo-pkg==1", tmp_path / "a", env=env(index.url)).version == "1.0"
    assert fetch("demo-pkg", tmp_path / "b", env=env(index.url)).version == "1.0.post1"
    assert fetch("pypi:demo-pkg==0.9.0", tmp_path / "c", env=env(index.url)).name == "demo-pkg"


def test_a_file_index_and_find_links_serve_without_a_network(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "demo_pkg-1.0-py3-none-any.whl")
    page = tmp_path / "simple/demo-pkg/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../{wheel.name}">{wheel.name}</a>')
    assert not fetch("pypi:demo-pkg==1.0", tmp_path / "a", env=env((tmp_path / "simple").as_uri())).verified
    offline = env("http://127.0.0.1:9/simple", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert fetch("pypi:demo-pkg==1.0", tmp_path / "b", env=offline).source == wheel.as_uri()


def test_a_wheel_file_needs_no_index(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "demo_pkg-1.0-py3-none-any.whl", {"demo_pkg-1.0.data/purelib/m.py": "", "n.py": ""})
    fetch(str(wheel), tmp_path / "a", env=env("http://127.0.0.1:9/simple"))
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["m.py", "n.py"]


def test_a_second_index_helps_out(index: Index, tmp_path: Path) -> None:
    index.publish(make_wheel(tmp_path, "demo_pkg-1.0-py3-none-any.whl"))
    chain = env(index.url + "/nothing-here", PIP_EXTRA_INDEX_URL=index.url)
    assert fetch("pypi:demo-pkg==1.0", tmp_path / "a", env=chain).version == "1.0"


@pytest.mark.parametrize("way", ["url", "netrc"])
def test_credentials_are_sent_and_never_shown(index: Index, tmp_path: Path, way: str) -> None:
    index.password = "Basic dXNlcjpwYXNz"
    index.publish(make_wheel(tmp_path, "demo_pkg-1.0-py3-none-any.whl"))
    with pytest.raises(SkillgenError, match="401"):
        fetch("pypi:demo-pkg==1.0", tmp_path / "a", env=env(index.url))
    if way == "url":
        variables = env(index.url.replace("//", "//user:pass@"))
    else:
        (tmp_path / "netrc").write_text("machine 127.0.0.1 login user password pass\n")
        (tmp_path / "netrc").chmod(0o600)
        variables = env(index.url, NETRC=str(tmp_path / "netrc"))
    assert "pass" not in fetch("pypi:demo-pkg==1.0", tmp_path / "a", env=variables).source
    with pytest.raises(SkillgenError) as caught:
        fetch("pypi:other==1.0", tmp_path / "b", env=variables)
    assert "pass" not in str(caught.value.as_json())


def test_an_unknown_version_names_near_ones(index: Index, tmp_path: Path) -> None:
    index.publish(*(make_wheel(tmp_path, f"demo_pkg-{v}-py3-none-any.whl") for v in ("0.6.1", "0.6.2", "3.0")))
    with pytest.raises(SkillgenError, match=r"near: .*0\.6\.1, 0\.6\.2") as caught:
        fetch("pypi:demo-pkg==0.6.9", tmp_path / "a", env=env(index.url))
    assert (caught.value.code, caught.value.exit_code) == ("unknown-version", USAGE)


FAILURES = {
    "unknown project": ("pypi:nobody==1", {}, "unknown-project", USAGE),
    "not a spec": ("pypi:demo pkg>=1", {}, "bad-spec", USAGE),
    "not a version": ("pypi:demo-pkg==1.x", {}, "bad-spec", USAGE),
    "no such wheel": ("gone-1.0-py3-none-any.whl", {}, "no-such-wheel", USAGE),
    "no network": ("pypi:demo-pkg==1.0", {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}, "index-unreachable", IO),
}


@pytest.mark.parametrize("case", FAILURES)
def test_failures_are_named_and_leave_nothing(index: Index, tmp_path: Path, case: str) -> None:
    spec, more, code, exit_code = FAILURES[case]
    with pytest.raises(SkillgenError) as caught:
        fetch(spec, tmp_path / "a", env=env(index.url) | more)
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code)
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_hash_unpacks_nothing(index: Index, tmp_path: Path) -> None:
    index.publish(make_wheel(tmp_path, "demo_pkg-1.0-py3-none-any.whl"), digest="0" * 64)
    with pytest.raises(SkillgenError, match="the index says 0000") as caught:
        fetch("pypi:demo-pkg==1.0", tmp_path / "a" / "b", env=env(index.url))
    assert (caught.value.code, caught.value.exit_code) == ("hash-mismatch", IO)
    assert list((tmp_path / "a").iterdir()) == []


@pytest.mark.parametrize("member", ["../evil.py", "/evil.py", "a/../../evil.py", "a\\..\\evil.py", "link"])
def test_a_member_outside_the_folder_is_refused(tmp_path: Path, member: str) -> None:
    path = tmp_path / "demo_pkg-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo(member)
        info.external_attr = (0o120777 if member == "link" else 0o100644) << 16
        archive.writestr(info, "../../evil")
    with pytest.raises(SkillgenError) as caught:
        fetch(str(path), tmp_path / "deep" / "tree")
    assert (caught.value.code, caught.value.exit_code) == ("unsafe-wheel", REFUSED)
    assert list((tmp_path / "deep").iterdir()) == []


def test_a_folder_with_content_is_left_alone(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "demo_pkg-1.0-py3-none-any.whl")
    (tmp_path / "a").mkdir()
    fetch(str(wheel), tmp_path / "a")
    with pytest.raises(SkillgenError, match="not an empty folder"):
        fetch(str(wheel), tmp_path / "a")


def test_a_damaged_wheel_is_an_io_error(tmp_path: Path) -> None:
    path = tmp_path / "demo_pkg-1.0-py3-none-any.whl"
    path.write_bytes(b"PK no")
    with pytest.raises(SkillgenError) as caught:
        fetch(str(path), tmp_path / "a")
    assert (caught.value.code, caught.value.exit_code) == ("bad-wheel", IO)


def test_a_file_that_is_named_like_no_wheel_is_not_unpacked(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "demo_pkg-1.0.whl")
    with pytest.raises(SkillgenError) as caught:
        fetch(str(wheel), tmp_path / "a")
    assert (caught.value.code, caught.value.exit_code) == ("not-a-wheel", USAGE)
    assert list(tmp_path.iterdir()) == [wheel]


def test_pip_configuration_is_read_in_pips_order(tmp_path: Path) -> None:
    low = tmp_path / "xdg/pip/pip.conf"
    high = tmp_path / "home/.config/pip/pip.conf"
    for path, text in (
        (
            low,
            "[global]\nindex-url = https://low/simple\nextra-index-url =\n  https://a/s\n  https://b/s\nproxy = http://low:1\n",
        ),
        (high, "[global]\nindex_url = https://high/simple/\n[download]\ntimeout = 7\n"),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    place = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}
    got = load_settings(place)
    assert got.indexes == ("https://high/simple", "https://a/s", "https://b/s")
    assert (got.proxy, got.timeout) == ("http://low:1", 7.0)
    assert load_settings({**place, "PIP_INDEX_URL": "https://env/simple"}).indexes[0] == "https://env/simple"
    assert load_settings({"PIP_CONFIG_FILE": "/dev/null"}) == Settings(indexes=(PYPI,))
