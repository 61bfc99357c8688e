// What programs tell that are run twice and have to say the same: a line for each call.
#pragma once
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "doors.h"

static __thread long call;

static inline long sum(const char *of, long len) {
    uint64_t hash = 1469598103934665603u;
    for (long i = 0; i < len; i++) hash = (hash ^ (unsigned char)of[i]) * 1099511628211u;
    return (long)(hash >> 2);
}

// Ends a line, with the error of a call that answered -1, and tells it past the library.
static inline void tell_line(char *line, int len, int room, long result, int failed) {
    if (result == -1) len += snprintf(line + len, room - len, " %s", strerrorname_np(failed));
    line[len++] = '\n';
    if (raw(SYS_write, 1, (long)line, len, 0, 0) != len) _exit(9);
}

// A call with paths.
static inline void tell_of(const char *what, const char *one, const char *two, long result) {
    static __thread char line[9000];
    int failed = errno;
    int len = snprintf(line, sizeof line, "%ld %s %.60s %.60s: %ld", call, what, one, two ? two : "", result);
    tell_line(line, len, sizeof line, result, failed);
}

// What is drawn for such calls.
static inline const char *name_drawn(void) {
    static const char *names[] = {"a", "b", "c", "d0", "d1", "d2", "s0", "s1"};
    return names[draw(8)];
}
static inline mode_t mode_drawn(void) {
    static const int some[] = {0755, 0644, 0700, 0600, 0777, 0, 0444, 0555, 0711, 04755, 02755, 02775, 01777, 0070, 0007, 06711};
    return some[draw(16)];
}
static inline unsigned id_drawn(unsigned below) {
    static const unsigned ids[] = {0, 1000, 2000, 3000, (unsigned)-1};
    return ids[draw(below)];
}

// Of attributes, what is the same on all file systems.
static inline long known(const struct stat *st) {
    return (long)st->st_mode << 40 | (long)st->st_uid << 24 | (long)st->st_gid << 8 | (S_ISDIR(st->st_mode) ? 0 : st->st_nlink);
}
