// Does the calls that it is told, some at a time, and says of each when it began, when it returned and what came
// of it: one of the programs of `orders.rs`. Argument: the mount. A line "go NS" starts what was told before it, at
// a nanosecond of the monotonic clock.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "doors.h"

enum { FILES = 2, CALLS = 64, BYTES = 1 << 16 };
static const char *names[FILES] = {"x/0", "y/0"};
// Of each file: as it is, for direct I/O, for appends, for both.
static const int flags_of[4] = {0, O_DIRECT, O_APPEND, O_DIRECT | O_APPEND};
static int fds[FILES][4];
static ino_t inodes[FILES];
static char told[CALLS][256], said[CALLS][512];
static unsigned long moments[CALLS][2];
static _Alignas(4096) unsigned char bytes[BYTES];

static unsigned long now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ul + time.tv_nsec;
}

static const char *failure(void) {
    switch (errno) {
    case ENOENT: return "not found";
    case ESTALE: return "stale";
    case EEXIST: return "exists";
    case ENOTDIR: return "not a directory";
    case EISDIR: return "is a directory";
    case ENOTEMPTY: return "not empty";
    case EINVAL: return "invalid";
    case ENOSPC: return "full";
    case EOPNOTSUPP: return "unsupported";
    case ENODATA: return "no data";
    default: return strerror(errno);
    }
}

static void read_bytes(char *to, long len) {
    if (len < 0) {
        strcpy(to, failure());
        return;
    }
    sprintf(to, "bytes %ld %lu", len, sum_of(bytes, len));
}

static void fill(unsigned len, unsigned seed) {
    for (unsigned i = 0; i < len; i++) bytes[i] = (unsigned char)((i ^ i >> 8 ^ i >> 16) * 13 + seed) | 1;
}

static const char *type(mode_t mode) { return S_ISDIR(mode) ? "Directory" : S_ISREG(mode) ? "Regular" : "other"; }

static int by_name(const void *one, const void *other) { return strcmp(*(char *const *)one, *(char *const *)other); }

static long list(char *to, const char *path) {
    char *found[32];
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir) return -1;
    for (struct dirent *entry; count < 32 && (entry = readdir(dir));)
        if (entry->d_name[0] != '.') found[count++] = strdup(entry->d_name);
    closedir(dir);
    qsort(found, count, sizeof *found, by_name);
    to += sprintf(to, "names");
    for (int i = 0; i < count; i++) {
        to += sprintf(to, " %s", found[i]);
        free(found[i]);
    }
    return 0;
}

static int xattr_flags(const char *mode) {
    return mode[0] == 'C' ? XATTR_CREATE : mode[0] == 'R' ? XATTR_REPLACE : 0;
}

static unsigned rename_flags(const char *mode) {
    return mode[0] == 'N' ? RENAME_NOREPLACE : mode[0] == 'E' ? RENAME_EXCHANGE : 0;
}

// Does one call. Only what the call itself takes lies between the two moments.
static void call(int at) {
    char verb[32], one[64], other[64], mode[32];
    unsigned long n[6] = {0};
    const char *line = told[at];
    char *to = said[at];
    unsigned long *began = &moments[at][0], *returned = &moments[at][1];
    struct stat seen;
    long result;
    strcpy(to, "done");
#define IS(what) (strcmp(verb, what) == 0)
#define CALL(what) (*began = now(), result = (what), *returned = now())
    sscanf(line, "%31s", verb);
    if (sscanf(line, "%*s %lu %lu %lu %lu %lu %lu", n, n + 1, n + 2, n + 3, n + 4, n + 5) < 1)
        sscanf(line, "%*s %63s %63s %31s", one, other, mode);
    int *fd = fds[n[0] % FILES];
    if (IS("create")) {
        CALL(open(one, O_CREAT | O_EXCL | O_WRONLY, 0644));
        if (result >= 0) close(result);
    } else if (IS("mkdir")) {
        CALL(mkdir(one, 0755));
    } else if (IS("unlink")) {
        CALL(unlink(one));
    } else if (IS("rmdir")) {
        CALL(rmdir(one));
    } else if (IS("rename")) {
        unsigned flags = rename_flags(mode);
        CALL(flags ? renameat2(AT_FDCWD, one, AT_FDCWD, other, flags) : rename(one, other));
    } else if (IS("stat")) {
        CALL(lstat(one, &seen));
        if (result == 0) {
            int file = 0;
            while (file < FILES && inodes[file] != seen.st_ino) file++;
            char which[2] = {file < FILES ? '0' + file : '-', 0};
            sprintf(to, "found %s %u %lu %ld %s", type(seen.st_mode), seen.st_mode & 07777,
                    (unsigned long)seen.st_nlink, S_ISDIR(seen.st_mode) ? 0 : (long)seen.st_size, which);
        }
    } else if (IS("link")) {
        sscanf(line, "%*s %*s %63s", one);
        CALL(linkat(*fd, "", AT_FDCWD, one, AT_EMPTY_PATH));
    } else if (IS("write")) {
        fill(n[2], n[3]);
        CALL(pwrite(fd[n[4] * 2 + n[5]], bytes, n[2], n[1]));
        sprintf(to, "wrote %ld", result);
    } else if (IS("read")) {
        memset(bytes, 0xee, n[2]);
        CALL(pread(fd[n[3]], bytes, n[2], n[1]));
        read_bytes(to, result);
    } else if (IS("resize")) {
        CALL(ftruncate(*fd, n[1]));
    } else if (IS("punch")) {
        CALL(fallocate(*fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, n[1], n[2]));
    } else if (IS("chmod")) {
        CALL(fchmod(*fd, n[1]));
    } else if (IS("fstat")) {
        CALL(fstat(*fd, &seen));
        sprintf(to, "attr %u %lu %ld", seen.st_mode & 07777, (unsigned long)seen.st_nlink, (long)seen.st_size);
    } else if (IS("setxattr")) {
        sscanf(line, "%*s %*s %*s %31s", mode);
        memset(bytes, n[1], 40);
        CALL(fsetxattr(*fd, "user.it", bytes, 40, xattr_flags(mode)));
    } else if (IS("getxattr")) {
        CALL(fgetxattr(*fd, "user.it", bytes, sizeof bytes));
        read_bytes(to, result);
    } else if (IS("removexattr")) {
        CALL(fremovexattr(*fd, "user.it"));
    } else if (IS("fsync")) {
        CALL(fsync(*fd));
    } else if (IS("list")) {
        CALL(list(to, one));
    } else {
        fprintf(stderr, "no such call: %s", line);
        exit(2);
    }
    if (result < 0) strcpy(to, failure());
}

int main(int count, char **words) {
    if (count != 2 || chdir(words[1]) != 0) return 2;
    umask(0);
    for (int file = 0; file < FILES; file++) {
        for (int way = 0; way < 4; way++)
            if ((fds[file][way] = open(names[file], O_RDWR | flags_of[way])) < 0) return 3;
        struct stat seen;
        if (fstat(fds[file][0], &seen) != 0) return 3;
        inodes[file] = seen.st_ino;
    }
    puts("ready");
    fflush(stdout);
    int waiting = 0;
    for (char line[256]; fgets(line, sizeof line, stdin);) {
        unsigned long at;
        if (sscanf(line, "go %lu", &at) != 1) {
            strcpy(told[waiting++ % CALLS], line);
            continue;
        }
        while (now() < at) {}
        for (int i = 0; i < waiting; i++) call(i);
        for (int i = 0; i < waiting; i++) printf("%lu %lu %s\n", moments[i][0], moments[i][1], said[i]);
        fflush(stdout);
        waiting = 0;
    }
    return 0;
}
