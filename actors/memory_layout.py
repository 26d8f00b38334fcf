"""Where things lie in the memory that forked processes share: what they use lies together, apart from what they don't.

A page is shared until one of two processes writes to it, and Python writes wherever it goes: to the count of references
of each function that is called, and of its code. A forwarding actor calls some five hundred of the ten thousand
functions that the zygote has loaded, which lie between the others; so each would cost it a page of 4 KiB, and its code
another. New objects are put into the gaps between older ones, where an allocator finds any, and each of these costs a
page, too.

All of this is done once, before processes are forked, and changes nothing but addresses.
"""

from __future__ import annotations

import gc
import mmap
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType, FunctionType

from actors.function_layout import gather_functions

_POOL, _POOL_HEADER, _STEP, _LARGEST = 16 * 1024, 48, 16, 512
"""Of CPython's allocator for small blocks (Objects/obmalloc.c): bytes of a pool and of its header; sizes of blocks are
multiples of 16 up to the largest. A pool has blocks of one size."""
_IN_A_ROW = 8
"""An empty pool gives its blocks from the first on; one with gaps, the last that was freed first."""
_GAPS_MAX = 2_000
"""Blocks of one size that are filled at most, where the allocator is another one."""
_C_SIZES = (*(int(65_536 * 0.875**step) for step in range(31)), *range(1_040, 16, -_STEP))
"""Of blocks, from the largest on; what a block leaves of a gap is filled by smaller ones."""
_FILLED_MAX = 8 * 1024 * 1024
"""Bytes of gaps that are filled at most, where another allocator has taken the place of glibc's."""

_fillings: list[object] = []


def called_code(run: Callable[[], object]) -> list[CodeType]:
    """The code of all functions of Python that are called while `run()` lasts, in the order of their first calls."""
    found: dict[int, CodeType] = {}

    def on_event(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            found.setdefault(id(frame.f_code), frame.f_code)

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(found.values())


def gather_code(codes: Iterable[CodeType]) -> None:
    """Put the code of all functions that have one of these side by side, and then those functions."""
    fill_gaps()
    copies = _Copies(codes)
    for function in _functions():
        copy = copies.of(function.__code__)
        if copy is not function.__code__:
            function.__code__ = copy
    gather_functions([each for each in _functions() if copies.has(each.__code__)])


def _functions() -> Iterator[FunctionType]:
    return (each for each in gc.get_objects() if type(each) is FunctionType)


class _Copies:
    """Of these codes, and of those around them: code of a function has in it that of the functions which it makes."""

    def __init__(self, codes: Iterable[CodeType]) -> None:
        # By address: codes that are equal may be those of different functions.
        self._wanted = {id(each): each for each in codes}
        self._made: dict[int, tuple[CodeType, CodeType]] = {}
        """The original, which must live while its address is used, and the copy."""
        self._results: set[int] = set()
        """The addresses of copies of what was wanted, which are alive as well."""
        for each in self._wanted.values():
            self.of(each)

    def has(self, code: CodeType) -> bool:
        """Whether this is a copy of one that was wanted."""
        return id(code) in self._results

    def of(self, code: CodeType) -> CodeType:
        """The copy, or the code itself when nothing of it was wanted."""
        made = self._made.get(id(code))
        if made is not None:
            return made[1]
        constants = tuple(self.of(each) if isinstance(each, CodeType) else each for each in code.co_consts)
        changed = any(mine is not theirs for mine, theirs in zip(constants, code.co_consts, strict=True))
        if not changed and id(code) not in self._wanted:
            return code
        copy = code.replace(co_consts=constants)
        self._made[id(code)] = code, copy
        if id(code) in self._wanted:
            self._results.add(id(copy))
        return copy


def fill_gaps() -> None:
    """Occupy for good the gaps between small objects, so that later ones lie together on pages of their own."""
    gc.collect()  # which empties the lists of free objects, too
    for size in range(_STEP, _LARGEST + 1, _STEP):
        _fill_gaps_of(size)
    _fill_gaps_of_the_c_library()


def _fill_gaps_of(size: int) -> None:
    in_a_row: list[object] = []
    for number in range(_GAPS_MAX):
        filling = _object_of(size, number)
        begins = id(filling) % _POOL == _POOL_HEADER
        if begins or not in_a_row or id(filling) != id(in_a_row[-1]) + size:
            _fillings.extend(in_a_row)
            in_a_row.clear()
        in_a_row.append(filling)
        if len(in_a_row) == _IN_A_ROW and id(in_a_row[0]) % _POOL == _POOL_HEADER:
            return  # from a pool that was empty: no other has a gap of this size
    _fillings.extend(in_a_row)


def _fill_gaps_of_the_c_library() -> None:
    """The same for what is larger, and for what libraries in C need, if this is the allocator of glibc.

    Its blocks come from one heap, and from beyond its end where no gap is large enough.
    """
    try:
        import ctypes  # nothing else needs it

        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018 - of no other
    except (ImportError, OSError, AttributeError):
        return
    library.malloc.restype, library.malloc.argtypes = ctypes.c_size_t, (ctypes.c_size_t,)
    library.free.restype, library.free.argtypes = None, (ctypes.c_size_t,)
    library.sbrk.restype, library.sbrk.argtypes = ctypes.c_size_t, (ctypes.c_ssize_t,)
    library.malloc_trim(0)
    end, left = library.sbrk(0) - mmap.PAGESIZE, _FILLED_MAX
    for size in _C_SIZES:
        while 0 < (block := library.malloc(size)) < end and left > 0:
            left -= size  # the block stays
        library.free(block)


def _object_of(size: int, number: int) -> object:
    """A new object that takes a block of this size."""
    if size == _STEP:
        return object()
    if size == 2 * _STEP:
        return float(number)
    return bytes(size - sys.getsizeof(b""))
