/* SPDX-License-Identifier: Apache-2.0
 *
 * See table_stamp.h.
 */
#include "ch/table_stamp.h"

#include "base/buf.h"

#include <ctype.h>
#include <sys/stat.h>

#define NS_PER_S    1000000000
#define NS_PER_MS   1000000
#define SETTLING_MS 1000 /* above the coarsest tick of a filesystem in use: one second */

/* As ClickHouse names files after tables: all but ASCII letters, digits and _ as %XX. */
static void put_escaped(struct buf *path, const char *name)
{
    for (const char *c = name; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        if (byte < 0x80 && (isalnum(byte) || byte == '_'))
            buf_printf(path, "%c", byte);
        else
            buf_printf(path, "%%%02X", byte);
    }
}

char *table_definition_path(const char *server_path, const char *database, const char *table)
{
    struct buf path = {0};
    buf_printf(&path, "%s/metadata/", server_path);
    put_escaped(&path, database);
    buf_puts(&path, "/");
    put_escaped(&path, table);
    buf_puts(&path, ".sql");
    return buf_take(&path);
}

static int64_t in_ns(struct timespec time)
{
    return (int64_t)time.tv_sec * NS_PER_S + time.tv_nsec;
}

bool table_stamp_read(const char *path, const char *table_path, struct table_stamp *ret_stamp)
{
    struct stat file, folder;
    *ret_stamp = (struct table_stamp){0};
    if (path == NULL || stat(path, &file) != 0 || !S_ISREG(file.st_mode) ||
        stat(table_path, &folder) != 0)
        return false;
    *ret_stamp = (struct table_stamp){
        .disk = file.st_dev,
        .inode = file.st_ino,
        .bytes = (uint64_t)file.st_size,
        .modified_ns = in_ns(file.st_mtim),
        .changed_ns = in_ns(file.st_ctim),
        .folder_disk = folder.st_dev,
        .folder_inode = folder.st_ino,
    };
    return true;
}

bool table_stamp_equal(const struct table_stamp *a, const struct table_stamp *b)
{
    return a->inode != 0 && a->disk == b->disk && a->inode == b->inode && a->bytes == b->bytes &&
           a->modified_ns == b->modified_ns && a->changed_ns == b->changed_ns &&
           a->folder_disk == b->folder_disk && a->folder_inode == b->folder_inode;
}

bool table_stamp_settled(const struct table_stamp *stamp, int64_t now_ms)
{
    int64_t age_ms = now_ms - stamp->changed_ns / NS_PER_MS;
    return stamp->inode != 0 && age_ms > SETTLING_MS;
}
