"""The CRC-32 and CRC-32C of `kernel.h`, all ways of computing them, against those of libraries."""

import ctypes
import random
import re
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import google_crc32c
import pytest

import horolog

HEADER = Path(horolog.__file__).parent / "protocol" / "records" / "kernel" / "kernel.h"
CALLS = """
#include "kernel.h"
unsigned int by_tables(const unsigned char *data, size_t length)
{
    return horolog_crc_by_tables(data, length);
}
unsigned int best(const unsigned char *data, size_t length) { return crc32_at(data, 0, length); }
unsigned int castagnoli_by_tables(const unsigned char *data, size_t length)
{
    return horolog_crc32c_by_tables(data, length);
}
unsigned int castagnoli_by_instruction(const unsigned char *data, size_t length)
{
#ifdef HOROLOG_FOLDS
    if (__builtin_cpu_supports("sse4.2"))
        return horolog_crc32c_by_instruction(data, length);
#endif
    return crc32c_at(data, 0, length);
}
unsigned int castagnoli_best(const unsigned char *data, size_t length)
{
    return crc32c_at(data, 0, length);
}
#ifdef HOROLOG_FOLDS
static int folds(size_t length)
{
    return length >= 16 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
}
#endif
unsigned int by_narrow_folding(const unsigned char *data, size_t length)
{
#ifdef HOROLOG_FOLDS
    if (folds(length))
        return horolog_by_folding(&horolog_zlib_folds, data, length);
#endif
    return horolog_crc_by_tables(data, length);
}
unsigned int castagnoli_by_narrow_folding(const unsigned char *data, size_t length)
{
#ifdef HOROLOG_FOLDS
    if (folds(length))
        return horolog_by_folding(&horolog_castagnoli_folds, data, length);
#endif
    return horolog_crc32c_by_tables(data, length);
}
"""
WAYS = {
    "by_tables": zlib.crc32,
    "by_narrow_folding": zlib.crc32,
    "best": zlib.crc32,
    "castagnoli_by_tables": google_crc32c.value,
    "castagnoli_by_instruction": google_crc32c.value,
    "castagnoli_by_narrow_folding": google_crc32c.value,
    "castagnoli_best": google_crc32c.value,
}
LENGTHS = (*range(701), *range(1023, 1600), 4095, 4096, 4097, 65_535, 65_536, 70_001)
POLYNOMIALS = {"": 0x104C11DB7, "CASTAGNOLI_": 0x11EDC6F41}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("crc") / "crc.so"


@pytest.mark.parametrize("way", WAYS)
def test_it_is_the_librarys(library: Path, way: str, require_program: Callable[[str], str]) -> None:
    if not library.exists():
        source = library.with_suffix(".c")
        source.write_text(CALLS)
        compiler = (require_program("cc"), "-O2", "-Wall", "-Werror", "-shared", "-fPIC")
        subprocess.run(
            (*compiler, f"-I{HEADER.parent}", "-o", library, source), check=True, text=True
        )
    crc = getattr(ctypes.CDLL(str(library)), way)
    crc.restype, crc.argtypes = ctypes.c_uint, (ctypes.c_void_p, ctypes.c_size_t)
    content = random.Random(5).randbytes(LENGTHS[-1] + 16)
    held = ctypes.create_string_buffer(content, len(content))
    for length in LENGTHS:
        for start in (0, 1, 3, 7, 8, 15):
            expected = WAYS[way](content[start : start + length])
            assert crc(ctypes.addressof(held) + start, length) == expected, (length, start)


def power_of_x(exponent: int, polynomial: int) -> int:
    """x**exponent modulo the polynomial, highest power first."""
    remainder = 1
    for _ in range(exponent):
        remainder <<= 1
        if remainder >> 32:
            remainder ^= polynomial
    return remainder


def reflected(number: int, bits: int) -> int:
    return int(f"{number:0{bits}b}"[::-1], 2)


@pytest.mark.parametrize("prefix", POLYNOMIALS)
def test_the_constants_are_what_the_header_says(prefix: str) -> None:
    polynomial = POLYNOMIALS[prefix]
    lines = re.findall(r"#define HOROLOG_(\w+) (0x[0-9a-fx, ]+)", HEADER.read_text())
    named = {name: [int(value, 16) for value in values.split(",")] for name, values in lines}
    for distance in (2048, 1536, 1024, 512, 384, 256, 128):
        powers = [power_of_x(distance + by, polynomial) for by in (32, -32)]
        folds = [reflected(power, 32) << 1 for power in powers]
        assert named[f"{prefix}FOLD_{distance}"] == folds
    assert named[f"{prefix}FOLD_64"] == [reflected(power_of_x(64, polynomial), 32) << 1]
    assert named[f"{prefix}POLYNOMIAL"] == [reflected(polynomial, 33)]
    quotient, rest = 0, 1 << 64
    for shift in range(32, -1, -1):
        if rest >> (shift + 32) & 1:
            quotient |= 1 << shift
            rest ^= polynomial << shift
    assert named[f"{prefix}QUOTIENT"] == [reflected(quotient, 33)]
