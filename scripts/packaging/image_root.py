"""Makes all files of the image: image_root.py ENVIRONMENT ROOT

ROOT gets the environment as /opt/proxyfleet, the interpreter that runs this with its standard library, the shared
libraries that any of them is linked with, and what libc and OpenSSL read. There is no shell, no package manager and no
other program in it, so there is little that has to be updated for its vulnerabilities.

The size is the sum of all files as they lie on the disk, without compression: what `podman images` shows. Above
`AT_MOST` this fails, and with it the build.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from trim_environment import compile_modules, trim

AT_MOST = 150_000_000
"""Bytes."""
PLACE = "/opt/proxyfleet"
USER = 10001
UNREAD = shutil.ignore_patterns(
    *("__pycache__", "site-packages", "dist-packages", "config-3*", "test", "tests", "_test*", "_ctypes_test*"),
    *("idlelib", "tkinter", "_tkinter*", "turtle*", "ensurepip", "lib2to3", "pydoc_data", "distutils"),
    *("nis.*", "_dbm.*", "_gdbm.*"),
)
"""Of the standard library: what it is tested and built with, windows on a screen, and databases of other systems."""
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
FILES = {
    "etc/passwd": f"root:x:0:0::/:/nonexistent\nproxyfleet:x:{USER}:{USER}::/var/lib/proxyfleet:/nonexistent\n",
    "etc/group": f"root:x:0:\nproxyfleet:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
    "etc/ld.so.conf": "/usr/local/lib\n",
}
FOLDERS = ("dev", "proc", "run", "sys", "var/lib")


def make(environment: Path, root: Path) -> int:
    """Make `root`, a whole path where nothing is yet; its size in bytes. Raises `OSError` and `CalledProcessError`."""
    put(environment, root / PLACE[1:])
    trim(root / PLACE[1:], PLACE)
    copy_interpreter(root)
    copy_libraries(root)
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    for folder in FOLDERS:
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "tmp").mkdir(mode=0o1777)
    (root / "tmp").chmod(0o1777)
    put(CERTIFICATES, root / str(CERTIFICATES)[1:])
    subprocess.run([shutil.which("ldconfig") or "/sbin/ldconfig", "-r", str(root)], check=True)
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def put(source: Path, target: Path) -> None:
    """Copy a file or a folder, links within it as links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy(source, target)


def copy_interpreter(root: Path) -> None:
    """The interpreter at the path that the environment names, and its standard library."""
    interpreter = Path(sys.executable).resolve()
    put(interpreter, root / str(interpreter)[1:])
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(library, root / str(library)[1:], ignore=UNREAD, ignore_dangling_symlinks=True)
    compile_modules(root / str(library)[1:], str(library))
    programs = root / PLACE[1:] / "bin"
    for name in ("python", "python3"):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(interpreter)


def copy_libraries(root: Path) -> None:
    """What the dynamic linker loads for any of the programs and modules, at the same paths."""
    for name in ("lib", "lib64"):
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
            (root / Path("/", name).readlink()).mkdir(parents=True, exist_ok=True)
    wanted = {each for file in linked_files(root) for each in libraries(file)}
    for library in sorted(wanted):
        place = root / str(library.parent.resolve() / library.name)[1:]
        if not library.is_relative_to(root) and not place.exists():
            put(library, place)


def linked_files(root: Path) -> Iterator[Path]:
    """The programs and shared objects below it."""
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def libraries(file: Path) -> Iterator[Path]:
    """The shared libraries that it loads, and the dynamic linker."""
    listed = subprocess.run(["ldd", str(file)], capture_output=True, text=True).stdout
    yield from map(Path, re.findall(r"(/\S+) \(0x", listed))


if __name__ == "__main__":
    size = make(Path(sys.argv[1]), Path(sys.argv[2]).absolute())
    print(f"{size / 1e6:.1f} MB of at most {AT_MOST / 1e6:g} MB")
    sys.exit(size > AT_MOST)
