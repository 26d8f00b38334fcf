"""One fetch of a list from its source: requested by HTTP, or a file, read as a stream and compiled. Or of a pool.

The API starts a process for each fetch: `python -m actors.lists.fetching` with a job in JSON on its input. Reading a
list of a million lines takes seconds of a core and memory that a running process would hold on to, and a fetch that
takes too long is ended whatever it waits for.

Each connection goes to the very address that the guard has checked, those behind redirects, too. Nothing is kept of
what is received but the compiled list.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import signal
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin

from setproctitle import setproctitle
from urllib3.util import parse_url

from actors.lists.compiled import ListError
from actors.lists.compiler import CompiledContent, ListCompiler
from actors.lists.files import CPU_MAX, UPSTREAMS, Fetched, FetchJob, file_name, is_whole, version_of
from actors.lists.reading import Skipped, read_list
from actors.lists.streams import Chunks, bounded, unzipped
from actors.net.egress_guard import OutgoingGuard
from actors.net.guarded_client import HttpClient, HttpResponse, RequestFailed, guarded
from actors.signals import OF_THE_GROUP
from config.net.entries import GEO
from config.text.formatting import counted

REDIRECTS_MAX: Final = 5
TIMEOUT: Final = 30.0
"""Seconds of silence after which a fetch ends."""
PIECE: Final = 64 * 1024
UNUSABLE_FILE: Final = "its file can't be used; the log says why"
USER_AGENT: Final = "Proxyfleet-Lists/1"
_REDIRECTS: Final = (301, 302, 303, 307, 308)


def fetch(job: FetchJob) -> Fetched:
    """Fetch and compile. Never raises for what a server or the network does, or for a full disk.

    Whatever is wrong with a file is one error: who may name files of this machine doesn't learn which there are.
    """
    found = _tried(job)
    return Fetched(UNUSABLE_FILE, cause=found.error) if job.file and found.error else found


def _tried(job: FetchJob) -> Fetched:
    try:
        return _from_file(job) if job.file else _from_url(job)
    except ListError as error:
        return Fetched(str(error))
    except RequestFailed as failure:
        return Fetched("its response ended too early" if failure.cut_short else str(failure))
    except (OSError, ValueError) as error:
        return Fetched(str(getattr(error, "strerror", None) or error))


def _from_url(job: FetchJob) -> Fetched:
    with _response(job) as response:
        if response.status == 304 and (job.etag or job.last_modified):
            return Fetched(entries=job.entries, etag=job.etag, last_modified=job.last_modified)
        if response.status != 200:
            return Fetched(f"it responded with status {response.status}")
        found = _read(job, _content(job, response))
        return replace(found, etag=_validator(response, "etag"), last_modified=_validator(response, "last-modified"))


def _from_file(job: FetchJob) -> Fetched:
    with open(os.open(job.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise ListError("it is no file")
        version = version_of(about)
        if version == job.etag:
            return Fetched(entries=job.entries, etag=version)
        received = bounded(iter(partial(file.read, PIECE), b""), job.max_bytes, "it")
        return replace(_read(job, unzipped(received, job.max_bytes)), etag=version)


@contextmanager
def _response(job: FetchJob) -> Iterator[HttpResponse]:
    """The response behind all redirects. Raises `ListError` and `RequestFailed`."""
    client = HttpClient(guarded(OutgoingGuard((), job.excepted_by, job.own)), silence=TIMEOUT)
    url, given = job.url, job.headers
    for _ in range(REDIRECTS_MAX + 1):
        with client.request("GET", url, _headers(job, given)) as response:
            location = response.headers.get("location")
            if response.status not in _REDIRECTS or not location:
                yield response
                return
            before, url = url, _behind(url, location)
            given = given if _origin(url) == _origin(before) else {}  # not even if it leads back
    raise ListError(f"it redirects more than {REDIRECTS_MAX} times")


def _behind(url: str, location: str) -> str:
    """The URL that a redirect leads to. Raises `ListError`."""
    there = urljoin(url, location)
    scheme = parse_url(there).scheme
    if scheme not in ("http", "https"):
        raise ListError("it redirects to what is no http or https URL")
    if scheme == "http" and parse_url(url).scheme == "https":
        raise ListError("it redirects from https to http")
    return there


def _origin(url: str) -> tuple[str | None, str | None, int | None]:
    parts = parse_url(url)
    return parts.scheme, parts.host, parts.port or {"http": 80, "https": 443}.get(parts.scheme or "")


def _headers(job: FetchJob, given: Mapping[str, str]) -> dict[str, str]:
    """Those of the job may take the place of two of ours, and not of what the response is read by."""
    headers = {"accept": "*/*", "user-agent": USER_AGENT, **{name.lower(): value for name, value in given.items()}}
    headers |= {"accept-encoding": "gzip"}
    if job.etag:
        headers["if-none-match"] = job.etag
    if job.last_modified:
        headers["if-modified-since"] = job.last_modified
    return headers


def _content(job: FetchJob, response: HttpResponse) -> Chunks:
    encoding = response.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise ListError(f"it encoded its response as {encoding[:40]!r}; only gzip is accepted")
    received = bounded(response.pieces(), job.max_bytes, "its response")
    return unzipped(unzipped(received, job.max_bytes), job.max_bytes)  # a file of gzip may be sent with it once more


def _read(job: FetchJob, content: Chunks) -> Fetched:
    """Make the file of this content; of upstreams there is none."""
    if job.kind == UPSTREAMS:
        from actors.lists.upstreams import read_upstreams  # needs the models of requests, which only this does

        digest, upstreams, skipped = read_upstreams(content, job.form, job.entries)
        return Fetched("", digest, len(upstreams), skipped.count, skipped.examples, upstreams=upstreams)
    if job.kind == GEO:
        from actors.lists.databases import store_database  # needs maxminddb, which only this does

        file, entries = store_database(content, Path(job.folder), job.list_id, job.entries)
        return Fetched("", file, entries)
    compiler, hashed = ListCompiler(), hashlib.sha256(f"{job.kind} {job.form}\n".encode())
    skipped = read_list(_digested(content, hashed), job.kind, job.form, compiler)
    file = file_name(job.list_id, hashed.hexdigest())
    return _written(job, file, compiler.compile(), skipped)


def _written(job: FetchJob, file: str, compiled: CompiledContent, skipped: Skipped) -> Fetched:
    if compiled.entries * 2 < job.entries:
        now = f"{counted(compiled.entries, 'entry')} now ({counted(skipped.count, 'line')} skipped)"
        raise ListError(f"it has {now}, {job.entries} before: less than half")
    folder = Path(job.folder)
    folder.mkdir(mode=0o700, exist_ok=True)
    if not is_whole(folder / file, job.kind):
        compiled.write(folder / file)
    return Fetched("", file, compiled.entries, skipped.count, skipped.examples)


def _digested(chunks: Chunks, digest: hashlib._Hash) -> Chunks:
    for chunk in chunks:
        digest.update(chunk)
        yield chunk


def _validator(response: HttpResponse, header: str) -> str:
    """A validator, if it may be sent back."""
    value: Any = response.headers.get(header, "")
    return value if len(value) <= 1024 and value.isascii() and value.isprintable() else ""


NICENESS = 10
MEMORY_MAX = 2 * 2**30
"""Bytes of address space."""
LONGEST = 1800
"""Seconds after which it ends by itself, should the API have died."""


def main() -> None:
    """Do the job, and write its result in JSON."""
    setproctitle("proxyfleet: fetching a list")
    for number in OF_THE_GROUP:  # the API ends it
        signal.signal(number, signal.SIG_IGN)
    signal.alarm(LONGEST)
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_MAX, CPU_MAX + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGXCPU leaves one
    given = json.load(sys.stdin)
    try:
        result = fetch(FetchJob(**{**given, "own": [(host, first, last) for host, first, last in given["own"]]}))
    except MemoryError:
        result = Fetched(f"it needs more than {MEMORY_MAX // 2**20} MiB of memory")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # the API may have died meanwhile
    json.dump(asdict(result), sys.stdout)


if __name__ == "__main__":
    main()
