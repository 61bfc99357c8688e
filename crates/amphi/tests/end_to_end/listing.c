// Lists a directory while other programs change it, and changes names of its own there, by calls that the
// library takes and by system calls that it does not see. What is there all the time is listed once, with its
// type and inode number, and what it has made or removed itself is there or not. Arguments: the directory,
// which holds names that stay, how many of these, the number of this program, a seed, how many listings.
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

enum { STAY_MOST = 1000, OWN = 40, AGAIN_MOST = 20 };

// What the listing under way has seen of a name, and what it is to be.
struct seen {
    int count, type;
    unsigned long ino;
};
static struct seen stay[STAY_MOST], own[OWN];
// The types of this program's own names, 0 for those that are not there; whether one changed since the
// listing under way began.
static int is[OWN], touched[OWN];

static const char *directory;
static int stays, number, dots;
static long listing;
static const char *what = "nothing";

static void fail(const char *name, const char *seen, long got, long due) {
    printf("listing %ld (%s): %s of %s is %ld and not %ld\n", listing, what, seen, name, got, due);
    exit(1);
}

static long must(long result) {
    if (result < 0) {
        printf("listing %ld: %s: %s\n", listing, what, strerror(errno));
        exit(1);
    }
    return result;
}

static const char *path(const char *name) {
    static char paths[2][4400];
    static int turn;
    char *to = paths[turn ^= 1];
    snprintf(to, sizeof paths[0], "%s/%s", directory, name);
    return to;
}

static const char *own_path(int name) {
    char text[64];
    snprintf(text, sizeof text, "own-%d-%d", number, name);
    return path(text);
}

static void made(int kernel, int name) {
    const char *at = own_path(name);
    int kind = draw(3);
    if (kind == 0) {
        int flags = O_CREAT | O_EXCL | O_WRONLY;
        int fd = must(kernel ? by_kernel(SYS_openat, AT_FDCWD, (long)at, flags, 0644, 0) : open(at, flags, 0644));
        must(kernel ? by_kernel(SYS_close, fd, 0, 0, 0, 0) : close(fd));
    } else if (kind == 1) must(kernel ? by_kernel(SYS_mkdir, (long)at, 0755, 0, 0, 0) : mkdir(at, 0755));
    else must(kernel ? by_kernel(SYS_symlink, (long)"nowhere", (long)at, 0, 0, 0) : symlink("nowhere", at));
    is[name] = kind == 0 ? DT_REG : kind == 1 ? DT_DIR : DT_LNK;
}

static void removed(int kernel, int name) {
    const char *at = own_path(name);
    long call = is[name] == DT_DIR ? SYS_rmdir : SYS_unlink;
    must(kernel ? by_kernel(call, (long)at, 0, 0, 0, 0) : is[name] == DT_DIR ? rmdir(at) : unlink(at));
    is[name] = 0;
}

static void renamed(int kernel, int from, int to) {
    const char *one = own_path(from), *two = own_path(to);
    must(kernel ? by_kernel(SYS_rename, (long)one, (long)two, 0, 0, 0) : rename(one, two));
    is[to] = is[from];
    is[from] = 0;
}

// Changes some of its own names.
static void change(int most) {
    for (int left = draw(most); left > 0; left--) {
        int kernel = draw(2), name = draw(OWN), other = draw(OWN);
        touched[name] = 1;
        what = "a change";
        if (!is[name]) made(kernel, name);
        else if (draw(2) || is[other]) removed(kernel, name);
        else touched[other] = 1, renamed(kernel, name, other);
    }
}

// Whether it is a name that stays.
static int note(const char *name, int type, unsigned long ino) {
    struct seen *of;
    int whose, place;
    if (!strcmp(name, ".") || !strcmp(name, "..")) return dots++, 0;
    if (sscanf(name, "stay-%d-", &place) == 1 && place < stays) of = &stay[place];
    else if (sscanf(name, "own-%d-%d", &whose, &place) != 2) return fail(name, "a name like that", 1, 0), 0;
    else if (whose != number) return 0;
    else of = &own[place];
    of->count++;
    of->type = type;
    of->ino = ino;
    return of >= stay && of < stay + STAY_MOST;
}

// Asks again what one name is: its number is the one that was listed.
static void look(const char *name, const struct seen *of) {
    struct stat found;
    const char *at = path(name);
    must(draw(2) ? by_kernel(SYS_newfstatat, AT_FDCWD, (long)at, (long)&found, AT_SYMLINK_NOFOLLOW, 0)
                 : lstat(at, &found));
    if (found.st_ino != of->ino) fail(name, "the inode number that was listed", of->ino, found.st_ino);
}

static void judge(void) {
    static const int types[] = {DT_REG, DT_DIR, DT_LNK};
    char name[64];
    if (dots != 2) fail("the directory", "the count of . and ..", dots, 2);
    for (int i = 0; i < stays; i++) {
        snprintf(name, sizeof name, "stay-%d-%0*d", i, i % 40 + 1, 0);
        if (stay[i].count != 1) fail(name, "the count", stay[i].count, 1);
        if (stay[i].type != types[i % 3]) fail(name, "the type", stay[i].type, types[i % 3]);
        if (draw(40) == 0) look(name, &stay[i]);
    }
    for (int i = 0; i < OWN; i++) {
        if (touched[i]) continue;
        snprintf(name, sizeof name, "own-%d-%d", number, i);
        if (own[i].count != (is[i] != 0)) fail(name, "the count", own[i].count, is[i] != 0);
        if (is[i] && own[i].type != is[i]) fail(name, "the type", own[i].type, is[i]);
        if (is[i] && draw(10) == 0) look(name, &own[i]);
    }
}

static void begin_listing(void) {
    memset(stay, 0, sizeof stay);
    memset(own, 0, sizeof own);
    dots = 0;
}

// Reads on, and then once more from where it is: what stays comes in the same order.
static void again(DIR *dir, int changes) {
    static char ahead[AGAIN_MOST][256];
    int many = 0, seen = 0;
    long place = telldir(dir);
    for (struct dirent *next; many < AGAIN_MOST && (next = readdir(dir));)
        if (!strncmp(next->d_name, "stay-", 5)) strcpy(ahead[many++], next->d_name);
    seekdir(dir, place);
    if (changes && draw(2)) change(4), what = "opendir";
    for (struct dirent *next; seen < many && (next = readdir(dir));)
        if (note(next->d_name, next->d_type, next->d_ino) && strcmp(next->d_name, ahead[seen++]))
            fail(next->d_name, "what comes behind a place that was told", 1, 0);
    if (seen < many) fail(ahead[seen], "the count behind a place that was told", 0, 1);
}

// By libc, which may go on from a place that it was told, or from the start.
static void by_libc(int changes) {
    DIR *dir = opendir(directory);
    must(dir ? 0 : -1);
    int at = 0, changed_at = draw(stays), told_at = draw(stays), anew_at = draw(4) ? -1 : (int)draw(stays);
    begin_listing();
    for (struct dirent *entry; errno = 0, (entry = readdir(dir)); at++) {
        note(entry->d_name, entry->d_type, entry->d_ino);
        if (at == changed_at && changes) change(8), what = "opendir";
        if (at == anew_at) {
            rewinddir(dir);
            begin_listing();
            memset(touched, 0, sizeof touched);
            anew_at = -1;
        }
        if (at == told_at) again(dir, changes);
    }
    must(errno ? -1 : 0);
    must(closedir(dir));
}

// By system calls that no library sees.
static void by_system_calls(int changes) {
    static char bytes[32768] __attribute__((aligned(8)));
    int size = 512 << draw(7), changed = !changes;
    int fd = must(by_kernel(SYS_openat, AT_FDCWD, (long)directory, O_RDONLY | O_DIRECTORY, 0, 0));
    begin_listing();
    for (long got; (got = must(by_kernel(SYS_getdents64, fd, (long)bytes, size, 0, 0)));) {
        for (long at = 0; at < got;) {
            struct dirent64 *entry = (struct dirent64 *)(bytes + at);
            note(entry->d_name, entry->d_type, entry->d_ino);
            at += entry->d_reclen;
        }
        if (!changed && draw(4) == 0) changed = 1, change(8), what = "getdents64";
    }
    must(by_kernel(SYS_close, fd, 0, 0, 0, 0));
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    directory = arguments[1];
    stays = atoi(arguments[2]);
    number = atoi(arguments[3]);
    begin(arguments[4]);
    long listings = atol(arguments[5]);
    for (listing = 0; listing < listings; listing++) {
        change(12);
        memset(touched, 0, sizeof touched);
        int changes = draw(2);
        if (draw(2)) what = "opendir", by_libc(changes);
        else what = "getdents64", by_system_calls(changes);
        judge();
    }
    for (int i = 0; i < OWN; i++)
        if (is[i]) removed(draw(2), i);
    return 0;
}
