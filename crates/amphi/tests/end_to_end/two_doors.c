// Changes its own directory at random, by calls that the library takes and by system calls that it does not
// see, and looks by both whether each change is there: what one door answers from memory must be what the
// other one has just done. Arguments: the directory, a seed, how many changes.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "doors.h"

enum { NAMES = 8, FILES = 8, BYTES = 12288 };
enum kind { NONE, FILE_, LINK, DIRECTORY };

// What a file is to be, and how many names it has; none: it is free.
static struct file {
    int names, mode, attribute;
    long size;
    char data[BYTES];
} files[FILES];
// What each name is to be.
static struct name {
    enum kind kind;
    int file;
    char target[16];
} names[NAMES];

static const char *directory;
static long change;
static const char *what = "nothing";

static const char *path(int name) {
    static char paths[2][4200];
    static int turn;
    char *to = paths[turn ^= 1];
    snprintf(to, sizeof paths[0], "%s/%c", directory, 'a' + name);
    return to;
}

static void fail(const char *seen, int name, long is, long should) {
    printf("change %ld (%s): %s of %c is %ld and not %ld\n", change, what, seen, 'a' + name, is, should);
    exit(1);
}

static void must(long result) {
    if (result < 0) {
        printf("change %ld: %s: %s\n", change, what, strerror(errno));
        exit(1);
    }
}

// The calls, each by the door that `kernel` says.
static int opened(int kernel, const char *at, int flags, int mode) {
    int fd = kernel ? by_kernel(SYS_openat, AT_FDCWD, (long)at, flags, mode, 0) : open(at, flags, mode);
    must(fd);
    return fd;
}
static void closed(int kernel, int fd) { must(kernel ? by_kernel(SYS_close, fd, 0, 0, 0, 0) : close(fd)); }
static void named(int kernel, long number, const char *one, const char *two) {
    long result;
    if (kernel) result = by_kernel(number, (long)one, (long)two, 0, 0, 0);
    else if (number == SYS_unlink) result = unlink(one);
    else if (number == SYS_rename) result = rename(one, two);
    else if (number == SYS_link) result = link(one, two);
    else if (number == SYS_symlink) result = symlink(one, two);
    else result = rmdir(one);
    must(result);
}

static void look(int kernel, int name) {
    const char *at = path(name);
    struct name *n = &names[name];
    struct stat seen;
    long there = kernel ? by_kernel(SYS_newfstatat, AT_FDCWD, (long)at, (long)&seen, AT_SYMLINK_NOFOLLOW, 0) : lstat(at, &seen);
    if (there < 0 && errno != ENOENT) must(there);
    int kind = there < 0 ? NONE : S_ISREG(seen.st_mode) ? FILE_ : S_ISLNK(seen.st_mode) ? LINK : DIRECTORY;
    if (kind != (int)n->kind) fail(kernel ? "the kernel's kind" : "the kind", name, kind, n->kind);
    if (kind == LINK) {
        char target[16] = {0};
        must(kernel ? by_kernel(SYS_readlink, (long)at, (long)target, sizeof target, 0, 0) : readlink(at, target, sizeof target));
        if (strcmp(target, n->target) != 0) fail("the target", name, target[0], n->target[0]);
    }
    if (kind != FILE_) return;
    struct file *f = &files[n->file];
    if (seen.st_size != f->size) fail(kernel ? "the kernel's size" : "the size", name, seen.st_size, f->size);
    if ((seen.st_mode & 0777) != (unsigned)f->mode) fail("the mode", name, seen.st_mode & 0777, f->mode);
    if (seen.st_nlink != (unsigned)f->names) fail("the number of names", name, seen.st_nlink, f->names);
    static char data[BYTES + 1];
    int fd = opened(kernel, at, O_RDONLY, 0);
    long got = kernel ? by_kernel(SYS_pread64, fd, (long)data, sizeof data, 0, 0) : pread(fd, data, sizeof data, 0);
    closed(kernel, fd);
    if (got != f->size) fail(kernel ? "what the kernel reads" : "what is read", name, got, f->size);
    for (long i = 0; i < got; i++)
        if (data[i] != f->data[i]) fail(kernel ? "a byte that the kernel reads" : "a byte", name, data[i], f->data[i]);
    char attribute = 0;
    got = kernel ? by_kernel(SYS_getxattr, (long)at, (long)"user.a", (long)&attribute, 1, 0) : getxattr(at, "user.a", &attribute, 1);
    if (got < 0 && errno != ENODATA) must(got);
    if (attribute != f->attribute) fail("the attribute", name, attribute, f->attribute);
}

static void list(void) {
    int seen = 0, there = 0;
    DIR *dir = opendir(directory);
    must(dir ? 0 : -1);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') seen |= 1 << (entry->d_name[0] - 'a');
    closedir(dir);
    for (int i = 0; i < NAMES; i++)
        if (names[i].kind != NONE) there |= 1 << i;
    if (seen != there) fail("the list", 0, seen, there);
}

static void lose(int name) {
    if (names[name].kind == FILE_) files[names[name].file].names--;
    names[name].kind = NONE;
}

static void write_to(int kernel, int name, int flags, int mode) {
    struct file *f = &files[names[name].file];
    static char data[BYTES];
    long at = draw(BYTES - 1), len = 1 + draw(draw(2) ? 64 : BYTES - at);
    if (at + len > BYTES) len = BYTES - at;
    memset(data, 'a' + draw(26), len);
    int fd = opened(kernel, path(name), flags, mode);
    must(kernel ? by_kernel(SYS_pwrite64, fd, (long)data, len, at, 0) : pwrite(fd, data, len, at));
    if (draw(4) == 0) must(fsync(fd));
    closed(kernel, fd);
    memcpy(f->data + at, data, len);
    if (f->size < at + len) f->size = at + len;
}

// One change, if what was drawn can be done.
static int changed(void) {
    int kernel = draw(4) == 0, one = draw(NAMES), two = draw(NAMES), free_one = -1;
    struct name *n = &names[one], *m = &names[two];
    for (int i = 0; i < FILES; i++)
        if (files[i].names == 0) free_one = i;
    switch (draw(9)) {
    case 0:
        if (n->kind != NONE || free_one < 0) return 0;
        what = kernel ? "the kernel makes a file" : "making a file";
        files[free_one] = (struct file){.names = 1, .mode = 0644};
        *n = (struct name){.kind = FILE_, .file = free_one};
        write_to(kernel, one, O_WRONLY | O_CREAT | (draw(2) ? O_EXCL : 0), 0644);
        return 1;
    case 1:
        if (n->kind != FILE_) return 0;
        what = kernel ? "the kernel writes" : "writing";
        write_to(kernel, one, draw(2) ? O_WRONLY : O_RDWR, 0);
        return 1;
    case 2: {
        if (n->kind != FILE_) return 0;
        what = kernel ? "the kernel cuts a file" : "cutting a file";
        long size = draw(BYTES);
        must(kernel ? by_kernel(SYS_truncate, (long)path(one), size, 0, 0, 0) : truncate(path(one), size));
        struct file *f = &files[n->file];
        if (size < f->size) memset(f->data + size, 0, f->size - size);
        f->size = size;
        return 1;
    }
    case 3: {
        if (n->kind != FILE_) return 0;
        what = kernel ? "the kernel changes a mode" : "changing a mode";
        int mode = 0600 | draw(0200);
        must(kernel ? by_kernel(SYS_chmod, (long)path(one), mode, 0, 0, 0) : chmod(path(one), mode));
        files[n->file].mode = mode;
        return 1;
    }
    case 4: {
        if (n->kind != FILE_) return 0;
        what = kernel ? "the kernel sets an attribute" : "setting an attribute";
        char value = 'a' + draw(26);
        must(kernel ? by_kernel(SYS_setxattr, (long)path(one), (long)"user.a", (long)&value, 1, 0) : setxattr(path(one), "user.a", &value, 1, 0));
        files[n->file].attribute = value;
        return 1;
    }
    case 5:
        if (n->kind == NONE || one == two || m->kind == DIRECTORY || (n->kind == DIRECTORY && m->kind != NONE)) return 0;
        // Two names of one file stay, as POSIX has it.
        if (n->kind == FILE_ && m->kind == FILE_ && n->file == m->file) return 0;
        what = kernel ? "the kernel renames" : "renaming";
        named(kernel, SYS_rename, path(one), path(two));
        lose(two);
        *m = *n;
        n->kind = NONE;
        return 1;
    case 6:
        if (m->kind != NONE || one == two) return 0;
        if (n->kind == FILE_) {
            what = kernel ? "the kernel links" : "linking";
            named(kernel, SYS_link, path(one), path(two));
            *m = *n;
            files[n->file].names++;
        } else {
            what = kernel ? "the kernel makes a symbolic link" : "making a symbolic link";
            *m = (struct name){.kind = LINK};
            snprintf(m->target, sizeof m->target, "to%u", draw(1000000));
            named(kernel, SYS_symlink, m->target, path(two));
        }
        return 1;
    case 7:
        if (n->kind != NONE) return 0;
        what = kernel ? "the kernel makes a directory" : "making a directory";
        must(kernel ? by_kernel(SYS_mkdir, (long)path(one), 0755, 0, 0, 0) : mkdir(path(one), 0755));
        n->kind = DIRECTORY;
        return 1;
    default:
        if (n->kind == NONE) return 0;
        what = kernel ? "the kernel removes" : "removing";
        named(kernel, n->kind == DIRECTORY ? SYS_rmdir : SYS_unlink, path(one), NULL);
        lose(one);
        return 1;
    }
}

int main(int count, char **words) {
    if (count != 4) return 2;
    directory = words[1];
    begin(words[2]);
    long changes = strtol(words[3], NULL, 10);
    for (change = 0; change < changes;) {
        if (!changed()) continue;
        change++;
        // The kernel's answers are remembered until the next change of the same thing, which may come at once.
        if (draw(4) == 0) continue;
        for (int i = 0; i < NAMES; i++) {
            int first = draw(2);
            look(first, i);
            if (draw(2)) look(!first, i);
        }
        if (draw(4) == 0) list();
    }
    return 0;
}
