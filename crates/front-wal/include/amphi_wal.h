/* A write-ahead log in a file on an SSD with a BA-buffer (BA-WAL, 2B-SSD section IV-B), for C programs.
 *
 * A log is a file of the file system on an SSD image, made with
 *     amphi mkfs ssd.img --profile 2b-ssd --firmware ba-buffer --fs ext4like
 * The program has the image to itself while a log of it is open. Link with -lamphiwal.
 *
 * Functions answer 0 or what they say, or a negative errno; amphi_wal_error() has the sentence. */
#ifndef AMPHI_WAL_H
#define AMPHI_WAL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct amphi_wal amphi_wal;

/* When a commit returns. */
enum {
    AMPHI_WAL_SYNC = 0,  /* when the records have been written by block */
    AMPHI_WAL_ASYNC = 1, /* at once; a crash loses what had not been written in the background */
    AMPHI_WAL_BA = 2,    /* when they are in the BA-buffer, and synced there */
    AMPHI_WAL_FREE = 0x100 /* or'ed to one of them: no device times */
};

/* Opens the log in `file`, a path on the image's file system. Where there is no such file, an empty log of
 * `bytes` bytes is made. */
int amphi_wal_open(const char *image, const char *file, uint64_t bytes, int mode, amphi_wal **log);

/* Before the first append: shows the next record that the log held, and answers 1; 0 after the last one. The
 * bytes are valid until the next call with this log. One thread only. */
int amphi_wal_next(amphi_wal *log, const void **data, size_t *len, uint64_t *sequence);

/* Appends a record, up to 16 MB, and answers its number. It is in memory until a commit. Threads may share a
 * log from here on. */
int64_t amphi_wal_append(amphi_wal *log, const void *data, size_t len);

/* Commits all records appended before, by whichever thread. */
int amphi_wal_commit(amphi_wal *log);

/* Drops all records. The next one has the next number, and all the log's room. */
int amphi_wal_truncate(amphi_wal *log);

/* The number of the last durable record. */
int64_t amphi_wal_durable(amphi_wal *log);

/* Commits, brings everything to flash, and gives the image back. The log is gone, whatever the answer. */
int amphi_wal_close(amphi_wal *log);

/* Why the calling thread's last failure was one. */
const char *amphi_wal_error(void);

#ifdef __cplusplus
}
#endif

#endif
