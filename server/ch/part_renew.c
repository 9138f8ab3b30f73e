/* SPDX-License-Identifier: Apache-2.0
 *
 * See part_renew.h.
 *
 * checksums.txt, version 4 (all that 18.16 and later write): a line, then blocks of native compression
 * (native_block.h) with: the number of files, and for each its name, size, CityHash128, a byte: is it
 * packed, and if so size and hash of the content. Numbers are varints, hashes 16 bytes. A file's hash is that
 * of its pieces of 2048 bytes, each seeded with the one before.
 */
#include "ch/part_renew.h"

#include "base/buf.h"
#include "base/mem.h"
#include "ch/city_hash.h"
#include "ch/native_block.h"
#include "ch/part_dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COPY_FILE           "renewed~"
#define CHECKSUMS_HEAD      "checksums format version: 4\n"
#define CHECKSUMS_BYTES_MAX ((size_t)64 * 1024 * 1024)
#define PIECE_BYTES         2048u

struct listed {
    const char *name; /* not ended by a NUL */
    size_t name_len;
    uint64_t bytes;
    struct city_hash hash;
};

struct names {
    char **names;
    size_t n_names;
};

struct renewing {
    int dir;
    const char *checksum;
    struct buf content; /* of checksums.txt, unpacked */
    struct listed *files;
    size_t n_files;
    struct names names;
};

/* ---- checksums.txt ---- */

struct reading {
    const char *at, *end;
    bool bad;
};

static uint64_t read_varint(struct reading *reading)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 63 && reading->at < reading->end; shift += 7) {
        unsigned char byte = (unsigned char)*reading->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    reading->bad = true;
    return 0;
}

static const char *read_bytes(struct reading *reading, uint64_t bytes)
{
    const char *from = reading->at;
    if (bytes > (uint64_t)(reading->end - reading->at)) {
        reading->bad = true;
        return NULL;
    }
    reading->at += bytes;
    return from;
}

static uint64_t little_endian(const char *from)
{
    uint64_t value = 0;
    for (size_t i = 8; i > 0; i--)
        value = value << 8 | (unsigned char)from[i - 1];
    return value;
}

static struct city_hash read_hash(struct reading *reading)
{
    const char *from = read_bytes(reading, 16);
    if (from == NULL)
        return (struct city_hash){0, 0};
    return (struct city_hash){little_endian(from), little_endian(from + 8)};
}

/* False: it is not as it should be. */
static bool parse_files(struct renewing *renewing)
{
    struct reading reading = {renewing->content.data,
                              renewing->content.data + renewing->content.len, false};
    uint64_t n = read_varint(&reading);
    if (reading.bad || n > renewing->content.len)
        return false;
    renewing->files = mem_array((size_t)n + 1, sizeof *renewing->files);
    while (renewing->n_files < n && !reading.bad) {
        struct listed *file = &renewing->files[renewing->n_files++];
        file->name_len = (size_t)read_varint(&reading);
        file->name = read_bytes(&reading, file->name_len);
        file->bytes = read_varint(&reading);
        file->hash = read_hash(&reading);
        const char *packed = read_bytes(&reading, 1);
        if (packed && *packed) {
            read_varint(&reading);
            read_hash(&reading);
        }
    }
    return !reading.bad && reading.at == reading.end;
}

static bool unpack(const char *data, size_t len, struct buf *content)
{
    struct native_block *block = native_block_new();
    const char *problem = NULL;
    while (len > 0 && problem == NULL) {
        char piece[4096];
        size_t got, used = native_block_put(block, data, len, &problem);
        data += used;
        len -= used;
        while (problem == NULL && (got = native_block_take(block, piece, sizeof piece)) > 0)
            buf_append(content, piece, got);
    }
    bool whole = problem == NULL && !native_block_begun(block);
    native_block_free(block);
    return whole;
}

/* 0 or negative errno. */
static int read_whole(int fd, struct buf *content)
{
    char piece[4096];
    ssize_t got;
    while ((got = read(fd, piece, sizeof piece)) > 0) {
        if (content->len > CHECKSUMS_BYTES_MAX)
            return -EBADMSG;
        buf_append(content, piece, (size_t)got);
    }
    return got < 0 ? -errno : 0;
}

static int read_checksums(struct renewing *renewing)
{
    char hex[HASH_HEX_BYTES + 1];
    int result = dirs_file_hash(renewing->dir, CHECKSUMS_FILE, hex);
    if (result != 0)
        return result;
    if (strcmp(hex, renewing->checksum) != 0)
        return -EBADMSG;
    int fd = openat(renewing->dir, CHECKSUMS_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    struct buf raw = {0};
    size_t head = strlen(CHECKSUMS_HEAD);
    result = read_whole(fd, &raw);
    close(fd);
    if (result == 0 &&
        (raw.len < head || memcmp(raw.data, CHECKSUMS_HEAD, head) != 0 ||
         !unpack(raw.data + head, raw.len - head, &renewing->content) || !parse_files(renewing)))
        result = -EBADMSG;
    buf_clear(&raw);
    return result;
}

/* ---- copies ---- */

struct copying {
    struct city_hash hash;
    uint64_t bytes;
    bool has_nul;
};

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t written = write(fd, data, len);
        if (written < 0)
            return -errno;
        data += written;
        len -= (size_t)written;
    }
    return 0;
}

/* A piece is as long as can be, so that the hash is right. 0 at the end, or negative errno. */
static ssize_t read_piece(int fd, char piece[PIECE_BYTES])
{
    size_t len = 0;
    while (len < PIECE_BYTES) {
        ssize_t got = read(fd, piece + len, PIECE_BYTES - len);
        if (got < 0)
            return -errno;
        if (got == 0)
            break;
        len += (size_t)got;
    }
    return (ssize_t)len;
}

static int copy_content(int from, int to, struct copying *copying)
{
    char piece[PIECE_BYTES];
    ssize_t len;
    while ((len = read_piece(from, piece)) > 0) {
        int result = write_all(to, piece, (size_t)len);
        if (result != 0)
            return result;
        copying->hash = city_hash_128_seeded(piece, (size_t)len, copying->hash);
        copying->bytes += (uint64_t)len;
        copying->has_nul = copying->has_nul || memchr(piece, '\0', (size_t)len) != NULL;
    }
    return (int)len;
}

/* What is not listed is a line or two of text; what a disk never got reads as zeros. */
static bool is_sound(const struct renewing *renewing, const char *name,
                     const struct copying *copying)
{
    for (size_t i = 0; i < renewing->n_files; i++) {
        const struct listed *file = &renewing->files[i];
        if (strlen(name) == file->name_len && memcmp(name, file->name, file->name_len) == 0)
            return copying->bytes == file->bytes && copying->hash.low == file->hash.low &&
                   copying->hash.high == file->hash.high;
    }
    if (strcmp(name, CHECKSUMS_FILE) == 0)
        return true;
    return copying->bytes > 0 && !copying->has_nul;
}

static int renew_file(const struct renewing *renewing, const char *name)
{
    struct stat status;
    struct copying copying = {0};
    int dir = renewing->dir, to = -1, result = 0;
    int from = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (from < 0 || fstat(from, &status) != 0)
        result = -errno;
    else if (!S_ISREG(status.st_mode))
        result = -EBADMSG;
    if (result == 0 && unlinkat(dir, COPY_FILE, 0) != 0 && errno != ENOENT)
        result = -errno;
    if (result == 0) {
        to = openat(dir, COPY_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        result = to < 0 ? -errno : copy_content(from, to, &copying);
    }
    if (result == 0 && !is_sound(renewing, name, &copying))
        result = -EBADMSG;
    if (result == 0 &&
        (fchmod(to, status.st_mode & 07777) != 0 || renameat(dir, COPY_FILE, dir, name) != 0))
        result = -errno;
    dirs_close(&to);
    dirs_close(&from);
    return result;
}

static int names_visit(void *arg, int dir, const char *name)
{
    struct names *names = arg;
    (void)dir;
    if (strcmp(name, COPY_FILE) == 0)
        return 0;
    size_t n = names->n_names;
    if ((n & (n - 1)) == 0)
        names->names = mem_realloc(names->names, (n ? n * 2 : 1) * sizeof *names->names);
    names->names[names->n_names++] = mem_strdup(name);
    return 0;
}

int part_renew(int dir, const char *checksum)
{
    struct renewing renewing = {.dir = dir, .checksum = checksum};
    int again = dup(dir);
    int result = again < 0 ? -errno : dirs_each(again, names_visit, &renewing.names);
    if (result == 0)
        result = read_checksums(&renewing);
    for (size_t i = 0; result == 0 && i < renewing.names.n_names; i++)
        result = renew_file(&renewing, renewing.names.names[i]);
    if (unlinkat(dir, COPY_FILE, 0) != 0 && errno != ENOENT && result == 0)
        result = -errno;
    for (size_t i = 0; i < renewing.names.n_names; i++)
        free(renewing.names.names[i]);
    free(renewing.names.names);
    free(renewing.files);
    buf_clear(&renewing.content);
    return result;
}
