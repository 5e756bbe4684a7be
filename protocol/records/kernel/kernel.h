/* Big-endian fields, CRC-32 and CRC-32C for the compiled kernel.

   CRC-32 is zlib's: polynomial 0x04c11db7, bits reflected, all ones before and after. If the
   processor multiplies without carries, the message is folded 16 bytes at a time, by the method
   that Intel published ("Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
   Instruction", Gopal and others, 2009): a block that is D bits before another one has the same
   remainder as its product with x^D modulo the polynomial, and such a product takes two carry-less
   multiplications and an addition. The constants are x^n modulo the polynomial, bits reflected and
   shifted left by one, to make up for the bit that a product of reflected numbers lacks. Processors
   that multiply four pairs at once (VPCLMULQDQ) fold 64 bytes at a time. Other processors use eight
   tables, for eight bytes at a time.

   CRC-32C, for record batches, has the polynomial 0x1edc6f41 and is computed in the same ways. Many
   processors have an instruction for it, which is faster for short messages.

   Everything here is called with Python's lock held. */

#ifndef HOROLOG_KERNEL_H
#define HOROLOG_KERNEL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HOROLOG_FOLDS 1
#include <immintrin.h>
#elif defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

#ifdef HOROLOG_SOURCES
/* Digest of the sources that were compiled. */
static const char horolog_sources[] = HOROLOG_SOURCES;
#else
static const char horolog_sources[] = "";
#endif

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define HOROLOG_SWAP32(number) (number)
#define HOROLOG_SWAP64(number) (number)
#else
#define HOROLOG_SWAP32(number) __builtin_bswap32(number)
#define HOROLOG_SWAP64(number) __builtin_bswap64(number)
#endif

static inline long long int64_at(const unsigned char *data, long long position)
{
    uint64_t number;
    memcpy(&number, data + position, 8);
    return (long long)HOROLOG_SWAP64(number);
}

static inline int int32_at(const unsigned char *data, long long position)
{
    uint32_t number;
    memcpy(&number, data + position, 4);
    return (int)HOROLOG_SWAP32(number);
}

static inline int int16_at(const unsigned char *data, long long position)
{
    return (short)((unsigned)data[position] << 8 | data[position + 1]);
}

/* Numbers in this machine's byte order; the position need not be aligned. */
static inline long long own_int64_at(const unsigned char *data, long long position)
{
    int64_t number;
    memcpy(&number, data + position, 8);
    return number;
}

static inline int own_int32_at(const unsigned char *data, long long position)
{
    int32_t number;
    memcpy(&number, data + position, 4);
    return number;
}

static inline void put_int64(unsigned char *data, long long position, long long value)
{
    uint64_t number = HOROLOG_SWAP64((uint64_t)value);
    memcpy(data + position, &number, 8);
}

static inline void put_int32(unsigned char *data, long long position, long long value)
{
    uint32_t number = HOROLOG_SWAP32((uint32_t)value);
    memcpy(data + position, &number, 4);
}

static inline void copy_bytes(unsigned char *data, long long position,
                              const unsigned char *content, long long start, long long length)
{
    memcpy(data + position, content + start, (size_t)length);
}

/* Reads the varint at `*at`, of one or two bytes, and moves `*at` after it; returns -1 for a longer
   one. Uses branches, so that the processor can predict the length and read on. */
__attribute__((always_inline)) static inline int short_at(const unsigned char **at)
{
    int small = *(*at)++, second;
    if (small < 0x80)
        return small;
    second = *(*at)++;
    return second < 0x80 ? (small & 0x7f) | second << 7 : -1;
}

static inline int unfolded_short(int number)
{
    return number >> 1 ^ -(number & 1);
}

/* A usual record: its numbers take one or two bytes each, and it has no headers. `start` is the
   position after its length. */
typedef struct {
    const unsigned char *start, *key_at, *value_at;
    int time, offset, key, value;
} horolog_record;

/* Reads the record at `at` if it is a usual one, and returns the position after it; otherwise NULL,
   also for a bad record. */
__attribute__((always_inline)) static inline const unsigned char *
usual_record(const unsigned char *at, const unsigned char *end, horolog_record *found)
{
    const unsigned char *stop;
    int length, time, offset, key, value;
    if (end - at < 9) /* four numbers and the attributes */
        return NULL;
    length = short_at(&at);
    if (length < 0 || length & 1 || length >> 1 > end - at)
        return NULL;
    stop = at + (length >> 1);
    found->start = at++;
    time = short_at(&at);
    offset = short_at(&at);
    key = short_at(&at);
    if ((time | offset | key) < 0)
        return NULL;
    found->key_at = at;
    if (!(key & 1)) {
        if (key >> 1 > stop - at)
            return NULL;
        at += key >> 1;
    }
    if (end - at < 3) /* a number and the header count */
        return NULL;
    value = short_at(&at);
    if (value < 0)
        return NULL;
    found->value_at = at;
    /* Everything is within the record if the header count is its last byte. */
    if (stop - at != (value & 1 ? 0 : value >> 1) + 1 || stop[-1])
        return NULL;
    found->time = unfolded_short(time);
    found->offset = unfolded_short(offset);
    found->key = unfolded_short(key);
    found->value = unfolded_short(value);
    return stop;
}

/* The records that `usual_run` passed: smallest and largest time, offset of the first record with
   the largest, and the sum of the times; all relative to the batch. */
typedef struct {
    int smallest, largest, largest_at;
    long long sum;
} horolog_run;

/* Passes the usual records from `*at` on that have offsets from `count` on and times from `low`
   to `high`. Returns their number, and moves `*at` after them. Up to `most` of their times, plus
   `base`, are stored from `time` on. A record whose key has fewer than `key_least` bytes ends the
   run; a null key has fewer than 0. With INT32_MIN, compilers omit the comparison. */
static inline long long usual_run_from(const unsigned char **at, const unsigned char *end, int count,
                                       int low, int high, long long base, long long *time,
                                       long long most, int key_least, horolog_run *found)
{
    const unsigned char *position = *at, *stop;
    long long *time_end = time + most, sum = 0;
    int offset = count, smallest = INT32_MAX, largest = INT32_MIN, largest_at = 0;
    horolog_record record;
    while ((stop = usual_record(position, end, &record)) && record.offset == offset
           && record.time >= low && record.time <= high && record.key >= key_least) {
        sum += record.time;
        if (record.time < smallest)
            smallest = record.time;
        if (record.time > largest) {
            largest = record.time;
            largest_at = offset;
        }
        if (time != time_end)
            *time++ = base + record.time;
        offset++;
        position = stop;
    }
    *at = position;
    found->smallest = smallest;
    found->largest = largest;
    found->largest_at = largest_at;
    found->sum = sum;
    return offset - count;
}

/* `usual_run_from` for records that must have keys (`keyed`), or for any records. */
static inline long long usual_run(const unsigned char **at, const unsigned char *end, int count,
                                  int low, int high, long long base, long long *time,
                                  long long most, int keyed, horolog_run *found)
{
    if (keyed)
        return usual_run_from(at, end, count, low, high, base, time, most, 0, found);
    return usual_run_from(at, end, count, low, high, base, time, most, INT32_MIN, found);
}

/* Tables for one polynomial, filled when they are first needed. */
struct horolog_tables {
    uint32_t polynomial;
    int filled;
    uint32_t tables[8][256];
};
static struct horolog_tables horolog_zlib_tables = {0xedb88320u, 0, {{0}}};
static struct horolog_tables horolog_castagnoli_tables = {0x82f63b78u, 0, {{0}}};

static void horolog_fill_tables(struct horolog_tables *made)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (made->polynomial & (0u - (crc & 1)));
        made->tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = made->tables[table - 1][byte];
            made->tables[table][byte] = crc >> 8 ^ made->tables[0][crc & 0xff];
        }
    made->filled = 1;
}

static uint32_t horolog_by_tables(struct horolog_tables *by, const unsigned char *data,
                                  size_t length)
{
    uint32_t crc = 0xffffffffu;
    if (!by->filled)
        horolog_fill_tables(by);
    for (; length >= 8; data += 8, length -= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                              (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = by->tables[7][low & 0xff] ^ by->tables[6][low >> 8 & 0xff] ^
              by->tables[5][low >> 16 & 0xff] ^ by->tables[4][low >> 24] ^
              by->tables[3][data[4]] ^ by->tables[2][data[5]] ^
              by->tables[1][data[6]] ^ by->tables[0][data[7]];
    }
    for (; length; data++, length--)
        crc = crc >> 8 ^ by->tables[0][(crc ^ *data) & 0xff];
    return ~crc;
}

static uint32_t horolog_crc_by_tables(const unsigned char *data, size_t length)
{
    return horolog_by_tables(&horolog_zlib_tables, data, length);
}

static uint32_t horolog_crc32c_by_tables(const unsigned char *data, size_t length)
{
    return horolog_by_tables(&horolog_castagnoli_tables, data, length);
}

#ifdef HOROLOG_FOLDS

#define HOROLOG_TARGET __attribute__((target("pclmul,sse4.1")))
#if defined(__clang__) || __GNUC__ >= 9
#define HOROLOG_FOLDS_WIDE 1
#define HOROLOG_WIDE_TARGET __attribute__((target("pclmul,sse4.1,avx512f,vpclmulqdq")))
#endif

/* To fold a block by D bits: x^(D+32) for its first half, x^(D-32) for its second. */
#define HOROLOG_FOLD_2048 0x11542778a, 0x1322d1430
#define HOROLOG_FOLD_1536 0x1821d8bc0, 0x12e958ac4
#define HOROLOG_FOLD_1024 0x1e88ef372, 0x14a7fe880
#define HOROLOG_FOLD_512 0x154442bd4, 0x1c6e41596
#define HOROLOG_FOLD_384 0x03db1ecdc, 0x174359406
#define HOROLOG_FOLD_256 0x0f1da05aa, 0x15a546366
#define HOROLOG_FOLD_128 0x1751997d0, 0x0ccaa009e
#define HOROLOG_FOLD_64 0x163cd6124
/* The polynomial, and the quotient of x^64 by it; both reflected, with all 33 bits. */
#define HOROLOG_POLYNOMIAL 0x1db710641
#define HOROLOG_QUOTIENT 0x1f7011641
/* The same for CRC-32C. */
#define HOROLOG_CASTAGNOLI_FOLD_2048 0x0dcb17aa4, 0x0b9e02b86
#define HOROLOG_CASTAGNOLI_FOLD_1536 0x0a87ab8a8, 0x0ab7aff2a
#define HOROLOG_CASTAGNOLI_FOLD_1024 0x06992cea2, 0x00d3b6092
#define HOROLOG_CASTAGNOLI_FOLD_512 0x0740eef02, 0x09e4addf8
#define HOROLOG_CASTAGNOLI_FOLD_384 0x01c291d04, 0x1d82c63da
#define HOROLOG_CASTAGNOLI_FOLD_256 0x1384aa63a, 0x0ba4fc28e
#define HOROLOG_CASTAGNOLI_FOLD_128 0x0f20c0dfe, 0x14cd00bd6
#define HOROLOG_CASTAGNOLI_FOLD_64 0x0dd45aab8
#define HOROLOG_CASTAGNOLI_POLYNOMIAL 0x105ec76f1
#define HOROLOG_CASTAGNOLI_QUOTIENT 0x0dea713f1

struct horolog_folds {
    long long by_2048[2], by_1536[2], by_1024[2], by_512[2], by_384[2], by_256[2], by_128[2];
    long long by_64, polynomial, quotient;
};
static const struct horolog_folds horolog_zlib_folds = {
    {HOROLOG_FOLD_2048}, {HOROLOG_FOLD_1536}, {HOROLOG_FOLD_1024},
    {HOROLOG_FOLD_512}, {HOROLOG_FOLD_384}, {HOROLOG_FOLD_256}, {HOROLOG_FOLD_128},
    HOROLOG_FOLD_64, HOROLOG_POLYNOMIAL, HOROLOG_QUOTIENT,
};
static const struct horolog_folds horolog_castagnoli_folds = {
    {HOROLOG_CASTAGNOLI_FOLD_2048}, {HOROLOG_CASTAGNOLI_FOLD_1536},
    {HOROLOG_CASTAGNOLI_FOLD_1024},
    {HOROLOG_CASTAGNOLI_FOLD_512}, {HOROLOG_CASTAGNOLI_FOLD_384},
    {HOROLOG_CASTAGNOLI_FOLD_256}, {HOROLOG_CASTAGNOLI_FOLD_128},
    HOROLOG_CASTAGNOLI_FOLD_64, HOROLOG_CASTAGNOLI_POLYNOMIAL, HOROLOG_CASTAGNOLI_QUOTIENT,
};

HOROLOG_TARGET static inline __m128i horolog_pair(long long low, long long high)
{
    return _mm_set_epi64x(high, low);
}

HOROLOG_TARGET static inline __m128i horolog_factors(const long long *two)
{
    return _mm_loadu_si128((const __m128i *)two);
}

HOROLOG_TARGET static inline __m128i horolog_load(const unsigned char *data)
{
    return _mm_loadu_si128((const __m128i *)data);
}

HOROLOG_TARGET static inline __m128i horolog_fold(__m128i block, __m128i factors, __m128i onto)
{
    __m128i first = _mm_clmulepi64_si128(block, factors, 0x00);
    __m128i second = _mm_clmulepi64_si128(block, factors, 0x11);
    return _mm_xor_si128(onto, _mm_xor_si128(first, second));
}

/* Returns the remainder of the last block: 128 bits become 96, then 64, then Barrett's division. */
HOROLOG_TARGET static inline uint32_t horolog_remainder(const struct horolog_folds *by,
                                                        __m128i block)
{
    const __m128i low_half = _mm_set_epi32(0, -1, 0, -1);
    const __m128i fold_128 = horolog_factors(by->by_128);
    const __m128i fold_64 = horolog_pair(by->by_64, 0);
    const __m128i division = horolog_pair(by->polynomial, by->quotient);
    __m128i quotient;
    block = _mm_xor_si128(_mm_srli_si128(block, 8), _mm_clmulepi64_si128(block, fold_128, 0x10));
    block = _mm_xor_si128(_mm_srli_si128(block, 4),
                          _mm_clmulepi64_si128(_mm_and_si128(block, low_half), fold_64, 0x00));
    quotient = _mm_clmulepi64_si128(_mm_and_si128(block, low_half), division, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_half), division, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(block, quotient), 1);
}

/* Returns the block into which the first bytes are folded: 16 bytes, and those in excess of whole
   blocks. The latter come first, after zeros, which do not change the remainder; so the rest of the
   message consists of whole blocks. */
HOROLOG_TARGET static inline __m128i horolog_first_block(const struct horolog_folds *by,
                                                         const unsigned char *data, size_t length)
{
    static const unsigned char places[48] = {
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
        0x80, 0x80, 0x80, 0x80, 0,    1,    2,    3,    4,    5,    6,    7,
        8,    9,    10,   11,   12,   13,   14,   15,   0x80, 0x80, 0x80, 0x80,
        0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    };
    const __m128i ones = _mm_cvtsi32_si128(-1);
    __m128i state = _mm_xor_si128(horolog_load(data), ones);
    size_t head = length & 15;
    if (head) {
        __m128i rest = _mm_shuffle_epi8(ones, horolog_load(places + 16 + head));
        state = _mm_shuffle_epi8(state, horolog_load(places + head));
        state = horolog_fold(state, horolog_factors(by->by_128),
                             _mm_xor_si128(horolog_load(data + head), rest));
    }
    return state;
}

/* For messages of at least 16 bytes. */
HOROLOG_TARGET static uint32_t horolog_by_folding(const struct horolog_folds *by,
                                                  const unsigned char *data, size_t length)
{
    const __m128i fold_128 = horolog_factors(by->by_128);
    __m128i state = horolog_first_block(by, data, length);
    size_t blocks = (length >> 4) - 1;
    data += (length & 15) + 16;
    if (blocks >= 7) {
        const __m128i fold_512 = horolog_factors(by->by_512);
        __m128i second = horolog_load(data), third = horolog_load(data + 16);
        __m128i fourth = horolog_load(data + 32);
        for (data += 48, blocks -= 3; blocks >= 4; data += 64, blocks -= 4) {
            state = horolog_fold(state, fold_512, horolog_load(data));
            second = horolog_fold(second, fold_512, horolog_load(data + 16));
            third = horolog_fold(third, fold_512, horolog_load(data + 32));
            fourth = horolog_fold(fourth, fold_512, horolog_load(data + 48));
        }
        fourth = horolog_fold(state, horolog_factors(by->by_384), fourth);
        fourth = horolog_fold(second, horolog_factors(by->by_256), fourth);
        state = horolog_fold(third, fold_128, fourth);
    }
    for (; blocks; data += 16, blocks--)
        state = horolog_fold(state, fold_128, horolog_load(data));
    return ~horolog_remainder(by, state);
}

#ifdef HOROLOG_FOLDS_WIDE

HOROLOG_WIDE_TARGET static inline __m512i horolog_four_factors(const long long *two)
{
    return _mm512_broadcast_i32x4(horolog_factors(two));
}

HOROLOG_WIDE_TARGET static inline __m512i horolog_fold_four(__m512i blocks, __m512i factors,
                                                            __m512i onto)
{
    __m512i first = _mm512_clmulepi64_epi128(blocks, factors, 0x00);
    __m512i second = _mm512_clmulepi64_epi128(blocks, factors, 0x11);
    return _mm512_ternarylogic_epi64(first, second, onto, 0x96); /* the sum of all three */
}

#define HOROLOG_WIDE_LEAST 1024

/* The same, for messages of at least HOROLOG_WIDE_LEAST bytes. */
HOROLOG_WIDE_TARGET static uint32_t horolog_by_wide_folding(const struct horolog_folds *by,
                                                            const unsigned char *data,
                                                            size_t length)
{
    const __m128i fold_128 = horolog_factors(by->by_128);
    const __m512i fold_2048 = horolog_four_factors(by->by_2048);
    __m128i state = horolog_first_block(by, data, length), last;
    __m512i first, second, third, fourth;
    size_t blocks = (length >> 4) - 1;
    data += (length & 15) + 16;
    /* Fold the first block onto the next one, which starts the first group of four blocks. */
    state = horolog_fold(state, fold_128, horolog_load(data));
    first = _mm512_inserti32x4(_mm512_loadu_si512(data), state, 0);
    second = _mm512_loadu_si512(data + 64);
    third = _mm512_loadu_si512(data + 128);
    fourth = _mm512_loadu_si512(data + 192);
    for (data += 256, blocks -= 16; blocks >= 16; data += 256, blocks -= 16) {
        first = horolog_fold_four(first, fold_2048, _mm512_loadu_si512(data));
        second = horolog_fold_four(second, fold_2048, _mm512_loadu_si512(data + 64));
        third = horolog_fold_four(third, fold_2048, _mm512_loadu_si512(data + 128));
        fourth = horolog_fold_four(fourth, fold_2048, _mm512_loadu_si512(data + 192));
    }
    fourth = horolog_fold_four(first, horolog_four_factors(by->by_1536), fourth);
    fourth = horolog_fold_four(second, horolog_four_factors(by->by_1024), fourth);
    fourth = horolog_fold_four(third, horolog_four_factors(by->by_512), fourth);
    last = _mm512_extracti32x4_epi32(fourth, 3);
    last = horolog_fold(_mm512_extracti32x4_epi32(fourth, 0), horolog_factors(by->by_384), last);
    last = horolog_fold(_mm512_extracti32x4_epi32(fourth, 1), horolog_factors(by->by_256), last);
    state = horolog_fold(_mm512_extracti32x4_epi32(fourth, 2), fold_128, last);
    for (; blocks; data += 16, blocks--)
        state = horolog_fold(state, fold_128, horolog_load(data));
    return ~horolog_remainder(by, state);
}

#endif

/* For messages of at least 16 bytes, on processors that fold. */
static inline uint32_t horolog_by_best_folding(const struct horolog_folds *by,
                                               const unsigned char *data, size_t length)
{
#ifdef HOROLOG_FOLDS_WIDE
    if (length >= HOROLOG_WIDE_LEAST && __builtin_cpu_supports("vpclmulqdq") &&
        __builtin_cpu_supports("avx512f"))
        return horolog_by_wide_folding(by, data, length);
#endif
    return horolog_by_folding(by, data, length);
}

#endif

static inline unsigned int crc32_at(const unsigned char *data, long long position, long long length)
{
    data += position;
#ifdef HOROLOG_FOLDS
    if (length >= 16 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        return horolog_by_best_folding(&horolog_zlib_folds, data, (size_t)length);
#endif
    return horolog_crc_by_tables(data, (size_t)length);
}

#ifdef HOROLOG_FOLDS

/* Uses the processor's instruction, for eight bytes at a time. */
__attribute__((target("sse4.2"))) static uint32_t
horolog_crc32c_by_instruction(const unsigned char *data, size_t length)
{
    uint64_t crc = 0xffffffffu, number;
    for (; length >= 8; data += 8, length -= 8) {
        memcpy(&number, data, 8);
        crc = _mm_crc32_u64(crc, number);
    }
    for (; length; data++, length--)
        crc = _mm_crc32_u8((uint32_t)crc, *data);
    return ~(uint32_t)crc;
}

#elif defined(__ARM_FEATURE_CRC32) && defined(__ORDER_LITTLE_ENDIAN__) && \
    __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HOROLOG_ARM_CRC 1

static uint32_t horolog_crc32c_by_instruction(const unsigned char *data, size_t length)
{
    uint32_t crc = 0xffffffffu;
    uint64_t number;
    for (; length >= 8; data += 8, length -= 8) {
        memcpy(&number, data, 8);
        crc = __crc32cd(crc, number);
    }
    for (; length; data++, length--)
        crc = __crc32cb(crc, *data);
    return ~crc;
}

#endif

static inline unsigned int crc32c_at(const unsigned char *data, long long position,
                                     long long length)
{
    data += position;
#ifdef HOROLOG_FOLDS
    if (length >= 256 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        return horolog_by_best_folding(&horolog_castagnoli_folds, data, (size_t)length);
    if (__builtin_cpu_supports("sse4.2"))
        return horolog_crc32c_by_instruction(data, (size_t)length);
#elif defined(HOROLOG_ARM_CRC)
    return horolog_crc32c_by_instruction(data, (size_t)length);
#endif
    return horolog_crc32c_by_tables(data, (size_t)length);
}

#endif
