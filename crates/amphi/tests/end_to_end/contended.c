// Makes, opens, moves and removes a handful of names that others make and remove too, by calls that the library
// takes and by system calls that it does not see. Of a call that another program was faster than, POSIX says what
// may come; what is open stays usable. Arguments: the directory, a seed, how many calls.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "doors.h"

enum { NAMES = 4, OPEN = 4 };
static const char *directory;
static long call;

static const char *path(void) {
    static char paths[2][4200];
    static int turn;
    char *to = paths[turn ^= 1];
    snprintf(to, sizeof paths[0], "%s/%c", directory, 'a' + draw(NAMES));
    return to;
}

// Ends the program if a call failed by what it must not.
static void may(const char *what, long result, const int *errors) {
    if (result >= 0) return;
    for (; *errors; errors++)
        if (errno == *errors) return;
    printf("call %ld, %s: %s\n", call, what, strerror(errno));
    exit(1);
}
#define MAY(what, result, ...) may(what, result, (const int[]){__VA_ARGS__ __VA_OPT__(, ) 0})

static int fds[OPEN], by[OPEN];

// Who makes a name by the kernel while other doors make and remove it may hear ESTALE, since the kernel looks
// twice and no more (docs/run.md). It is not so every time.
static int open_by_kernel(const char *name, int flags) {
    int fd, tries = 0;
    do fd = by_kernel(SYS_openat, AT_FDCWD, (long)name, flags, 0644, 0);
    while (fd < 0 && errno == ESTALE && flags & O_CREAT && ++tries < 8);
    return fd;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    directory = words[1];
    begin(words[2]);
    long calls = strtol(words[3], NULL, 10);
    static char data[9000];
    for (int i = 0; i < OPEN; i++) fds[i] = -1;
    for (call = 1; call <= calls; call++) {
        int kernel = draw(3) == 0, i = draw(OPEN);
        const char *one = path(), *two = path();
        struct stat seen;
        switch (draw(12)) {
        case 0: case 1: case 2: {
            int flags = draw(2) ? O_RDWR : O_WRONLY;
            if (draw(4)) flags |= O_CREAT;
            if (draw(4) == 0) flags |= O_APPEND;
            if (draw(8) == 0) flags |= O_TRUNC;
            int alone = (flags & O_CREAT) && draw(4) == 0;
            if (alone) flags |= O_EXCL;
            if (fds[i] >= 0) MAY("close", by[i] ? by_kernel(SYS_close, fds[i], 0, 0, 0, 0) : close(fds[i]));
            fds[i] = kernel ? open_by_kernel(one, flags) : open(one, flags, 0644);
            by[i] = kernel;
            if (alone) MAY("open that makes", fds[i], EEXIST);
            else if (flags & O_CREAT) MAY("open that may make", fds[i], EISDIR);
            else MAY("open", fds[i], ENOENT, EISDIR);
            break;
        }
        case 3: case 4: case 5:
            if (fds[i] < 0) break;
            if (by[i]) MAY("the kernel's write", by_kernel(SYS_write, fds[i], (long)data, 1 + draw(sizeof data), 0, 0));
            else MAY("write", write(fds[i], data, 1 + draw(sizeof data)));
            if (draw(4) == 0) MAY("fsync", fsync(fds[i]));
            if (draw(4) == 0) MAY("fstat", fstat(fds[i], &seen));
            if (draw(4) == 0) MAY("ftruncate", ftruncate(fds[i], draw(9000)));
            if (draw(4) == 0) MAY("fchmod", fchmod(fds[i], 0600 | draw(0200)));
            break;
        case 6:
            MAY("stat", kernel ? by_kernel(SYS_newfstatat, AT_FDCWD, (long)one, (long)&seen, 0, 0) : stat(one, &seen), ENOENT);
            break;
        case 7:
            MAY("unlink", kernel ? by_kernel(SYS_unlink, (long)one, 0, 0, 0, 0) : unlink(one), ENOENT, EISDIR);
            break;
        case 8:
            MAY("rename", kernel ? by_kernel(SYS_rename, (long)one, (long)two, 0, 0, 0) : rename(one, two), ENOENT, EISDIR, ENOTDIR, ENOTEMPTY, EEXIST);
            break;
        case 9:
            MAY("link", kernel ? by_kernel(SYS_link, (long)one, (long)two, 0, 0, 0) : link(one, two), ENOENT, EEXIST, EPERM);
            break;
        case 10:
            if (draw(2)) MAY("mkdir", kernel ? by_kernel(SYS_mkdir, (long)one, 0755, 0, 0, 0) : mkdir(one, 0755), EEXIST);
            else MAY("rmdir", kernel ? by_kernel(SYS_rmdir, (long)one, 0, 0, 0, 0) : rmdir(one), ENOENT, ENOTDIR);
            break;
        default: {
            DIR *dir = opendir(directory);
            MAY("opendir", dir ? 0 : -1);
            errno = 0;
            while (readdir(dir)) {}
            MAY("readdir", errno ? -1 : 0);
            closedir(dir);
        }
        }
    }
    return 0;
}
