/* SPDX-License-Identifier: Apache-2.0
 *
 * See part_rows.h.
 *
 * A part says its rows in count.txt. A wide part of an old-syntax table has no such file (seen on
 * 18.16.1): there the rows are the bytes of a fixed-size column, read from the heads of its
 * compressed blocks, divided by the size of one value.
 */
#include "ch/part_rows.h"

#include "base/buf.h"
#include "ch/part_dirs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define COUNT_BYTES_MAX     20u /* digits of a 64-bit number */
#define COLUMNS_BYTES_MAX   (16u << 20)
#define BLOCK_CHECKSUM      16u
#define BLOCK_HEAD          9u /* method, compressed bytes with this head, plain bytes */
#define COLUMN_NAME_MAX     255u
#define ESCAPED_PER_BYTE    3u
#define COLUMN_SUFFIX       ".bin"
#define ESCAPED_BYTES_MAX   (COLUMN_NAME_MAX * ESCAPED_PER_BYTE + sizeof COLUMN_SUFFIX)
#define COLUMN_FILE_MISSING 1

/* The whole file, at most bytes_max. 0, or negative errno (EFBIG past the limit). */
static int file_read(int dir, const char *name, size_t bytes_max, struct buf *ret_text)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct buf text = {.bytes_max = bytes_max};
    char chunk[4096];
    int result = 0;
    ssize_t got;
    do {
        got = dirs_read(fd, chunk, sizeof chunk);
        if (got < 0)
            result = (int)got;
        else if (!buf_append(&text, chunk, (size_t)got))
            result = -EFBIG;
    } while (got == (ssize_t)sizeof chunk && result == 0);
    close(fd);
    if (result == 0)
        *ret_text = text;
    else
        buf_clear(&text);
    return result;
}

/* Digits, and at most one newline behind them. */
static bool count_parse(const char *text, size_t len, uint64_t *ret_rows)
{
    if (len && text[len - 1] == '\n')
        len--;
    if (len == 0 || len > COUNT_BYTES_MAX)
        return false;
    uint64_t rows = 0;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)text[i]))
            return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (rows > (UINT64_MAX - digit) / 10)
            return false;
        rows = rows * 10 + digit;
    }
    *ret_rows = rows;
    return true;
}

static uint64_t fixed_type_bytes(const char *type, size_t len)
{
    static const struct {
        const char *name;
        uint64_t bytes;
    } types[] = {{"Date", 2},   {"UInt8", 1},    {"UInt16", 2},  {"UInt32", 4},
                 {"UInt64", 8}, {"Int8", 1},     {"Int16", 2},   {"Int32", 4},
                 {"Int64", 8},  {"DateTime", 4}, {"Float32", 4}, {"Float64", 8}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strlen(types[i].name) == len && memcmp(types[i].name, type, len) == 0)
            return types[i].bytes;
    return 0;
}

static uint32_t little_endian32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

/* Sum of the plain bytes of a column file's blocks. 0, COLUMN_FILE_MISSING, or negative errno. */
static int column_plain_bytes(int dir, const char *file, uint64_t *ret_bytes)
{
    int fd = openat(dir, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENAMETOOLONG ? COLUMN_FILE_MISSING : -errno;
    uint64_t sum = 0;
    off_t at = 0;
    int result = 0;
    for (;;) {
        unsigned char head[BLOCK_CHECKSUM + BLOCK_HEAD];
        ssize_t got = pread(fd, head, sizeof head, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            break;
        if (got != (ssize_t)sizeof head) {
            result = got < 0 ? -errno : -EBADMSG;
            break;
        }
        uint32_t packed = little_endian32(head + BLOCK_CHECKSUM + 1);
        if (packed < BLOCK_HEAD) {
            result = -EBADMSG;
            break;
        }
        sum += little_endian32(head + BLOCK_CHECKSUM + 5);
        at += (off_t)BLOCK_CHECKSUM + packed;
    }
    close(fd);
    if (result == 0)
        *ret_bytes = sum;
    return result;
}

/* ClickHouse's file name for a column: bytes other than letters, digits and _ as %XX. */
static void column_file_name(const char *column, size_t len, char ret_file[ESCAPED_BYTES_MAX])
{
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        unsigned char byte = (unsigned char)column[i];
        if (byte < 0x80 && (isalnum(byte) || byte == '_')) {
            ret_file[n++] = (char)byte;
        } else {
            ret_file[n++] = '%';
            ret_file[n++] = digits[byte >> 4];
            ret_file[n++] = digits[byte & 15];
        }
    }
    memcpy(ret_file + n, COLUMN_SUFFIX, sizeof COLUMN_SUFFIX);
}

/* Takes the next "`name` Type" line. Columns with an escape in their name are passed over by the
 * caller: *ret_plain says so. False at the end. */
static bool columns_next(const char **at, const char **ret_name, size_t *ret_name_len,
                         const char **ret_type, size_t *ret_type_len)
{
    const char *line = *at;
    const char *end = strchr(line, '\n');
    if (end == NULL)
        return false;
    *at = end + 1;
    *ret_name_len = *ret_type_len = 0;
    if (line[0] != '`')
        return true;
    const char *close = line + 1;
    while (close < end && *close != '`' && *close != '\\')
        close++;
    if (close + 1 >= end || *close != '`' || close[1] != ' ')
        return true;
    *ret_name = line + 1;
    *ret_name_len = (size_t)(close - line - 1);
    *ret_type = close + 2;
    *ret_type_len = (size_t)(end - close - 2);
    return true;
}

static int rows_from_column(int dir, const char *path, const char *columns, uint64_t *ret_rows,
                            struct error *error)
{
    const char *at = columns;
    const char *name, *type;
    size_t name_len, type_len;
    while (columns_next(&at, &name, &name_len, &type, &type_len)) {
        uint64_t size = type_len ? fixed_type_bytes(type, type_len) : 0;
        if (size == 0 || name_len > COLUMN_NAME_MAX)
            continue;
        char file[ESCAPED_BYTES_MAX];
        column_file_name(name, name_len, file);
        uint64_t bytes = 0;
        int result = column_plain_bytes(dir, file, &bytes);
        if (result == COLUMN_FILE_MISSING)
            continue;
        if (result < 0)
            return dirs_failed(error, result, "read", path, file);
        *ret_rows = bytes / size;
        return 0;
    }
    return error_set(error, CHXA_E_IO_FAILED,
                     "cannot tell the rows of %s: no count.txt and no column of fixed size", path);
}

int part_rows_read(int dir, const char *path, bool old_syntax, uint64_t *ret_rows,
                   struct error *error)
{
    struct buf text = {0};
    int result = file_read(dir, "count.txt", COUNT_BYTES_MAX + 1, &text);
    if (result == 0) {
        bool fine = count_parse(buf_str(&text), text.len, ret_rows);
        buf_clear(&text);
        return fine ? 0
                    : error_set(error, CHXA_E_IO_FAILED, "%s/count.txt does not hold a number",
                                path);
    }
    if (result != -ENOENT || !old_syntax)
        return dirs_failed(error, result, "read", path, "count.txt");
    result = file_read(dir, "columns.txt", COLUMNS_BYTES_MAX, &text);
    if (result != 0)
        return dirs_failed(error, result, "read", path, "columns.txt");
    result = rows_from_column(dir, path, buf_str(&text), ret_rows, error);
    buf_clear(&text);
    return result;
}
