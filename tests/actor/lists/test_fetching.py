"""Fetching lists from real servers: what is fetched, and what no server can do."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from actors.lists.compiled import CompiledList
from actors.lists.fetching import REDIRECTS_MAX, UNUSABLE_FILE, USER_AGENT, fetch
from actors.lists.files import Fetched, FetchJob
from tests.kit.folders import ROOT
from tests.kit.list_sources import Content, Source, content
from tests.kit.place_databases import country, database

TEN = "".join(f"host{number}.example\n" for number in range(10))


@pytest.fixture
def source() -> Iterator[Source]:
    with Source(content(TEN)) as made:
        yield made


def job(source: Source, folder: Path, **changes: object) -> FetchJob:
    plain = FetchJob("list_1", str(folder), "domains", source.url, "plain", 1_000_000)
    return replace(plain, **changes)  # type: ignore[arg-type]


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_a_list_is_fetched_and_compiled(source: Source, tmp_path: Path) -> None:
    source.now = content("a.example\nb c\n", etag='"1"', last_modified="Mon, 01 Jan 2024 00:00:00 GMT")
    found = fetch(job(source, tmp_path / "lists"))
    assert (found.error, found.entries, found.skipped) == ("", 1, 1)
    assert found.examples == [(2, "b c", "has more than one word")]
    assert (found.etag, found.last_modified) == ('"1"', "Mon, 01 Jan 2024 00:00:00 GMT")
    assert CompiledList(tmp_path / "lists" / found.file).by_name("www.a.example") == "a.example"


def test_the_same_content_is_not_sent_again(source: Source, tmp_path: Path) -> None:
    source.now = content(TEN, etag='"1"')
    first = fetch(job(source, tmp_path))
    again = fetch(job(source, tmp_path, etag=first.etag, entries=first.entries))
    assert again == Fetched(entries=10, etag='"1"')
    assert source.requests[1]["if-none-match"] == '"1"'
    source.now = content(TEN)  # a server without validators
    assert fetch(job(source, tmp_path)).file == first.file
    assert names(tmp_path) == [first.file]


def test_an_unasked_304_is_an_error(source: Source, tmp_path: Path) -> None:
    source.now = Content(status=304)
    assert fetch(job(source, tmp_path)).error == "it responded with status 304"


@pytest.mark.parametrize("layers", [1, 2])
def test_a_compressed_list(source: Source, tmp_path: Path, layers: int) -> None:
    body = TEN.encode()
    for _ in range(layers):
        body = gzip.compress(body)
    source.now = content(body, content_encoding="gzip")
    assert fetch(job(source, tmp_path)).entries == 10


@pytest.mark.parametrize(
    ("now", "error"),
    [
        (Content(status=500), "it responded with status 500"),
        (Content(status=204), "it responded with status 204"),
        (Content((b"a.example\n",), length=20), "its response ended too early"),
        (content(gzip.compress(TEN.encode())[:30]), "its gzip content ends too early"),
        (content("x", content_encoding="br"), "it encoded its response as 'br'; only gzip is accepted"),
        (content("host0.example\n"), "it has 1 entry now (0 lines skipped), 10 before: less than half"),
        (content("<html>moved</html>\n" * 9), "it has 0 entries now (9 lines skipped), 10 before: less than half"),
        (content("a.example\n" * 200), "its response has more than 1024 bytes (max_bytes)"),
        (content(gzip.compress(bytes(2_000_000))), "its response has more than 1024 bytes (max_bytes)"),
    ],
)
def test_a_fetch_that_fails_makes_no_file(source: Source, tmp_path: Path, now: Content, error: str) -> None:
    source.now = now
    assert fetch(job(source, tmp_path, entries=10, max_bytes=1024)) == Fetched(error)
    assert names(tmp_path) == []


def test_half_of_the_entries_are_enough(source: Source, tmp_path: Path) -> None:
    assert fetch(job(source, tmp_path, entries=20)).entries == 10
    assert fetch(job(source, tmp_path, entries=21)).error


def test_the_first_content_may_be_empty(source: Source, tmp_path: Path) -> None:
    source.now = content("# nothing yet\n")
    found = fetch(job(source, tmp_path))
    assert (found.error, found.entries) == ("", 0)
    assert CompiledList(tmp_path / found.file).by_name("a.example") is None


def test_a_response_without_end_ends_at_the_limit(source: Source, tmp_path: Path) -> None:
    source.now = Content(itertools.repeat(b"# ten gigabytes\n" * 1000), length=10 * 2**30)
    assert fetch(job(source, tmp_path)).error == "its response has more than 1000000 bytes (max_bytes)"
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(100)) + packer.flush()
    source.now = content(bomb)
    assert fetch(job(source, tmp_path)).error == "its decompressed content has more than 1000000 bytes (max_bytes)"
    source.now = content(gzip.compress(bomb), content_encoding="gzip")
    assert fetch(job(source, tmp_path)).error == "its decompressed content has more than 1000000 bytes (max_bytes)"


# --- databases of places ---

PLACES = database({f"192.0.{number}.0/24": country(chr(65 + number) + "E") for number in range(6)})


def test_a_database_is_fetched_and_checked(source: Source, tmp_path: Path) -> None:
    source.now = content(gzip.compress(PLACES), etag='"1"')
    given = job(source, tmp_path, kind="geo", form="mmdb")
    found = fetch(given)
    assert (found.error, found.entries, found.etag) == ("", 6, '"1"')
    assert (tmp_path / found.file).read_bytes() == PLACES
    assert fetch(replace(given, etag='"1"', entries=6)) == Fetched(entries=6, etag='"1"')
    source.now = content(PLACES[:-40])
    assert fetch(given).error == "it is no MaxMind database, or damaged"
    source.now = content(PLACES)
    assert fetch(replace(given, entries=13)).error == "it has 6 entries now, 13 before: less than half"
    assert "max_bytes" in fetch(replace(given, max_bytes=1024)).error
    assert names(tmp_path) == [found.file]


def test_a_database_is_read_from_a_file_again_only_when_that_is_another(source: Source, tmp_path: Path) -> None:
    file = tmp_path / "world.mmdb"
    file.write_bytes(PLACES)
    given = job(source, tmp_path / "lists", kind="geo", form="mmdb", url="", file=str(file))
    found = fetch(given)
    assert (found.error, found.entries) == ("", 6)
    assert fetch(replace(given, etag=found.etag, entries=6)) == Fetched(entries=6, etag=found.etag)
    (tmp_path / "new").write_bytes(database({"192.0.2.0/24": country("DE")} | {"10.0.0.0/8": country("FR")}))
    (tmp_path / "new").rename(file)
    assert fetch(replace(given, etag=found.etag)).entries == 2
    assert source.requests == []


def test_what_is_wrong_with_a_file_only_the_log_says(source: Source, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "secret").write_text("not for others\n" * 100)
    for path, error in (
        ("pipe", "it is no file"),
        ("", "Is a directory"),
        ("none", "No such file or directory"),
        ("secret", "it is no MaxMind database, or damaged"),
    ):
        given = job(source, tmp_path / "lists", kind="geo", form="mmdb", url="", file=str(tmp_path / path))
        assert fetch(given) == Fetched(UNUSABLE_FILE, cause=error)


# --- where requests may go ---


def test_no_address_of_the_inside_is_requested(source: Source, tmp_path: Path) -> None:
    guarded = job(source, tmp_path, excepted_by="webhooks.allow_private")
    for url in (
        source.url,
        f"http://localhost:{source.port}/",
        f"http://[::ffff:127.0.0.1]:{source.port}/",
        f"http://0x7f000001:{source.port}/",
        f"http://127.1:{source.port}/",
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
    ):
        found = fetch(replace(guarded, url=url))
        assert "public address" in found.error or "link-local" in found.error, url
    assert source.requests == []


def test_a_listener_of_the_product_is_never_requested(source: Source, tmp_path: Path) -> None:
    found = fetch(job(source, tmp_path, own=[("127.0.0.1", source.port, source.port)]))
    assert found.error == "the target is this service itself"
    assert source.requests == []


def test_a_redirect_leads_to_the_inside_no_more_than_the_url(source: Source, tmp_path: Path) -> None:
    source.by_path["/go"] = Content(status=302, headers={"location": "http://169.254.169.254/latest/"})
    found = fetch(job(source, tmp_path, url=f"http://127.0.0.1:{source.port}/go"))
    assert "link-local" in found.error
    with Source(content(TEN)) as inner:
        source.by_path["/own"] = Content(status=307, headers={"location": inner.url})
        own = job(source, tmp_path, url=f"http://127.0.0.1:{source.port}/own")
        assert (
            fetch(replace(own, own=[("127.0.0.1", inner.port, inner.port)])).error
            == "the target is this service itself"
        )
        assert inner.requests == []
        assert fetch(own).entries == 10


@pytest.mark.parametrize("location", ["file:///etc/hosts", "ftp://127.0.0.1/x", "//[", "gopher://127.0.0.1/"])
def test_a_redirect_to_something_else_is_refused(source: Source, tmp_path: Path, location: str) -> None:
    source.now = Content(status=301, headers={"location": location})
    assert fetch(job(source, tmp_path)).error


def test_redirects_end(source: Source, tmp_path: Path) -> None:
    source.now = Content(itertools.repeat(b"x" * 1000, 5000), status=302, headers={"location": "/again"})
    assert fetch(job(source, tmp_path)).error == f"it redirects more than {REDIRECTS_MAX} times"
    assert len(source.requests) == REDIRECTS_MAX + 1


def test_headers_reach_their_server_and_no_other_one_behind_a_redirect(source: Source, tmp_path: Path) -> None:
    given = {"Authorization": "Bearer of-a-list", "User-Agent": "ours", "Accept-Encoding": "br"}
    with Source(Content(status=302, headers={"location": source.url})) as other:
        source.by_path["/here"] = Content(status=302, headers={"location": "/list.txt"})
        source.by_path["/away"] = Content(status=302, headers={"location": other.url})
        for path, kept in (("/list.txt", [True]), ("/here", [True, True]), ("/away", [True, False])):
            source.requests.clear()
            assert fetch(job(source, tmp_path, url=source.url_of(path), headers=given)).entries == 10, path
            assert ["authorization" in each for each in source.requests] == kept, path
            first = source.requests[0]
            assert first["authorization"] == "Bearer of-a-list"
            assert (first["user-agent"], first["accept-encoding"]) == ("ours", "gzip")
        assert [each.keys() & {"authorization"} for each in other.requests] == [set()]
        assert other.requests[0]["user-agent"] == USER_AGENT


# --- the process ---


def test_the_worker_writes_its_result(source: Source, tmp_path: Path) -> None:
    given = json.dumps(asdict(job(source, tmp_path)))
    ran = subprocess.run(
        [sys.executable, "-P", "-m", "actors.lists.fetching"],
        input=given, cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(ran.stdout)
    assert (found["error"], found["entries"]) == ("", 10)
    assert names(tmp_path) == [found["file"]]


def test_the_worker_ends_when_it_takes_too_much_of_a_processor() -> None:
    program = (
        "import itertools, actors.lists.fetching as worker\n"
        "worker.CPU_MAX, worker.fetch = 1, lambda job: all(itertools.count(1))\n"
        "worker.main()"
    )
    job = json.dumps(asdict(FetchJob("list_1", "", "domains", "", "plain", 1)))
    done = subprocess.run([sys.executable, "-c", program], input=job, text=True, cwd=ROOT, check=False, timeout=120)
    assert done.returncode == -signal.SIGXCPU


def test_the_worker_ends_without_a_word_when_the_api_is_gone(source: Source, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-P", "-m", "actors.lists.fetching"]
    with open(writer, "wb") as closed:
        given = json.dumps(asdict(job(source, tmp_path))).encode()
        ran = subprocess.run(command, input=given, cwd=ROOT, stdout=closed, stderr=subprocess.PIPE)
    assert (ran.returncode, ran.stderr) == (-signal.SIGPIPE, b"")
