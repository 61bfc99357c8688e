// Two processes that work on one tree in turn, a call at a time: one by calls that the library takes, the
// other by system calls that it does not see. Each keeps descriptors, mappings and locks while the other one
// changes what they lead to. Run on two file systems with the same arguments it says the same twice.
// Arguments: a directory, a seed, how many calls.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "told.h"

enum { SLOTS = 6, ROOM = 40960 };
enum kind {
    OPEN, CLOSE, PWRITE, WRITE, PREAD, READ, SEEK, FTRUNCATE, TRUNCATE, STAT, LSTAT, FSTAT, LIST, MKDIR, RMDIR, UNLINK,
    RENAME, LINK, SYMLINK, READLINK, CHMOD, FCHMOD, SETXATTR, GETXATTR, REMOVEXATTR, FSYNC, FALLOCATE, ACCESS, FLIST,
    MAP, LOAD, STORE, SETLK, GETLK, OPENAT, UNLINKAT, MKDIRAT, FLISTXATTR, FSETXATTR, FLOCK,
    CHDIR, GETCWD, KINDS
};
struct todo { enum kind kind; int slot, flags, mode, seed; long offset, length; char one[16], two[16]; };
struct answer { long result, value; int failed; };

// Whether this process is the one that the library does not see.
static int unseen;
static const char *directory;
static int fds[SLOTS];
static struct map { char *at; int fd, writable; } maps[SLOTS];
static char bytes[ROOM], line[256];

// A call by this process's door.
#define CALL(number, a, b, c, d, e, by_library) (unseen ? by_kernel(number, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e)) : (by_library))

static const char *path(const char *name) {
    static char paths[2][4200];
    static int turn;
    char *to = paths[turn ^= 1];
    snprintf(to, sizeof paths[0], "%s/%s", directory, name);
    return to;
}

static void fill(int seed, long len) {
    unsigned long x = seed * 2654435761u + 1;
    for (long i = 0; i < len; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17, bytes[i] = x;
}

static long closed(int fd) { return CALL(SYS_close, fd, 0, 0, 0, 0, close(fd)); }
static long attributes(int fd, struct stat *st) { return CALL(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH, 0, fstat(fd, st)); }
static long seen(const struct stat *st) { return known(st) ^ (S_ISREG(st->st_mode) ? (long)st->st_size << 1 : 0); }

// How many names a directory has, and a sum of them and their types in whatever order.
static struct answer listed(int fd) {
    static char entries[65536];
    long count = 0, all = 0;
    if (CALL(SYS_lseek, fd, 0, SEEK_SET, 0, 0, lseek(fd, 0, SEEK_SET)) < 0) return (struct answer){-1, 0, errno};
    for (;;) {
        long got = CALL(SYS_getdents64, fd, entries, sizeof entries, 0, 0, getdents64(fd, entries, sizeof entries));
        if (got < 0) return (struct answer){-1, 0, errno};
        if (got == 0) return (struct answer){count, all & 0xffffffff, 0};
        for (long at = 0; at < got; count++) {
            struct dirent64 *entry = (void *)(entries + at);
            all += sum(entry->d_name, strlen(entry->d_name)) * (1 + entry->d_type);
            at += entry->d_reclen;
        }
    }
}

// Reads a mapping as far as its file goes, or stores into it and has that written back.
static struct answer mapped(struct map *map, const struct todo *todo) {
    struct stat st;
    if (!map->at) return (struct answer){0, 0, 0};
    if (attributes(map->fd, &st) < 0) return (struct answer){-1, 0, errno};
    long end = st.st_size < ROOM ? st.st_size : ROOM;
    if (todo->kind == LOAD) {
        memcpy(bytes, map->at, end);
        return (struct answer){end, sum(bytes, end), 0};
    }
    if (!map->writable || todo->offset >= end) return (struct answer){0, 0, 0};
    long len = todo->offset + todo->length < end ? todo->length : end - todo->offset;
    fill(todo->seed, len);
    memcpy(map->at + todo->offset, bytes, len);
    return (struct answer){msync(map->at, ROOM, MS_SYNC), len, errno};
}

static long map(struct map *map, int fd, int protection) {
    if (map->at) munmap(map->at, ROOM), closed(map->fd), map->at = NULL;
    char *at = mmap(NULL, ROOM, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return -1;
    *map = (struct map){at, CALL(SYS_dup, fd, 0, 0, 0, 0, dup(fd)), protection & PROT_WRITE};
    return 0;
}

static struct answer act(const struct todo *todo) {
    long r = -1, v = 0, len = todo->length, at = todo->offset;
    int *slot = &fds[todo->slot], fd = *slot, flags = todo->flags, mode = todo->mode;
    const char *one = path(todo->one), *two = path(todo->two);
    struct flock lock = {.l_type = flags, .l_whence = SEEK_SET, .l_start = at, .l_len = len};
    struct stat st;
    errno = 0;
    switch (todo->kind) {
    case OPEN:
        if (fd >= 0) closed(fd), *slot = -1;
        r = CALL(SYS_openat, AT_FDCWD, one, flags, mode, 0, open(one, flags, mode));
        if (r >= 0) *slot = r, r = 0;
        break;
    case CLOSE: r = closed(fd), *slot = -1; break;
    case PWRITE: fill(todo->seed, len), r = CALL(SYS_pwrite64, fd, bytes, len, at, 0, pwrite(fd, bytes, len, at)); break;
    case WRITE: fill(todo->seed, len), r = CALL(SYS_write, fd, bytes, len, 0, 0, write(fd, bytes, len)); break;
    case PREAD: r = CALL(SYS_pread64, fd, bytes, len, at, 0, pread(fd, bytes, len, at)), v = r > 0 ? sum(bytes, r) : 0; break;
    case READ: r = CALL(SYS_read, fd, bytes, len, 0, 0, read(fd, bytes, len)), v = r > 0 ? sum(bytes, r) : 0; break;
    case SEEK: // Where a place in a directory is, each file system says for itself.
        if (attributes(fd, &st) == 0 && S_ISDIR(st.st_mode)) return (struct answer){0, 0, 0};
        r = CALL(SYS_lseek, fd, at, flags, 0, 0, lseek(fd, at, flags));
        break;
    case FTRUNCATE: r = CALL(SYS_ftruncate, fd, at, 0, 0, 0, ftruncate(fd, at)); break;
    case TRUNCATE: r = CALL(SYS_truncate, one, at, 0, 0, 0, truncate(one, at)); break;
    case STAT: r = CALL(SYS_newfstatat, AT_FDCWD, one, &st, 0, 0, stat(one, &st)), v = r == 0 ? seen(&st) : 0; break;
    case LSTAT: r = CALL(SYS_newfstatat, AT_FDCWD, one, &st, AT_SYMLINK_NOFOLLOW, 0, lstat(one, &st)), v = r == 0 ? seen(&st) : 0; break;
    case FSTAT: r = attributes(fd, &st), v = r == 0 ? seen(&st) : 0; break;
    case LIST: {
        int opened = CALL(SYS_openat, AT_FDCWD, one, O_RDONLY | O_DIRECTORY, 0, 0, open(one, O_RDONLY | O_DIRECTORY));
        if (opened < 0) break;
        struct answer answer = listed(opened);
        closed(opened);
        return answer;
    }
    case FLIST: return listed(fd);
    case MKDIR: r = CALL(SYS_mkdirat, AT_FDCWD, one, mode | 0700, 0, 0, mkdir(one, mode | 0700)); break;
    case RMDIR: r = CALL(SYS_unlinkat, AT_FDCWD, one, AT_REMOVEDIR, 0, 0, rmdir(one)); break;
    case UNLINK: r = CALL(SYS_unlinkat, AT_FDCWD, one, 0, 0, 0, unlink(one)); break;
    case RENAME: { // The paths are absolute: the descriptors before them may be none.
        int none = todo->seed % 2 ? -1 : AT_FDCWD;
        r = CALL(SYS_renameat2, none, one, none, two, flags, renameat2(none, one, none, two, flags));
        break;
    }
    case LINK: r = CALL(SYS_linkat, AT_FDCWD, one, AT_FDCWD, two, 0, link(one, two)); break;
    case SYMLINK: r = CALL(SYS_symlinkat, todo->two, AT_FDCWD, one, 0, 0, symlink(todo->two, one)); break;
    case READLINK: r = CALL(SYS_readlinkat, AT_FDCWD, one, bytes, 100, 0, readlink(one, bytes, 100)), v = r > 0 ? sum(bytes, r) : 0; break;
    case CHMOD: r = CALL(SYS_fchmodat, AT_FDCWD, one, mode, 0, 0, chmod(one, mode)); break;
    case FCHMOD: r = CALL(SYS_fchmod, fd, mode, 0, 0, 0, fchmod(fd, mode)); break;
    case SETXATTR: fill(todo->seed, 30), r = CALL(SYS_setxattr, one, todo->two, bytes, len % 30, flags, setxattr(one, todo->two, bytes, len % 30, flags)); break;
    case GETXATTR: r = CALL(SYS_getxattr, one, todo->two, bytes, 100, 0, getxattr(one, todo->two, bytes, 100)), v = r > 0 ? sum(bytes, r) : 0; break;
    case REMOVEXATTR: r = CALL(SYS_removexattr, one, todo->two, 0, 0, 0, removexattr(one, todo->two)); break;
    case FLISTXATTR: r = CALL(SYS_flistxattr, fd, bytes, 200, 0, 0, flistxattr(fd, bytes, 200)); break;
    case FSETXATTR: r = CALL(SYS_fsetxattr, fd, todo->two, "v", 1, 0, fsetxattr(fd, todo->two, "v", 1, 0)); break;
    case FSYNC: r = CALL(SYS_fsync, fd, 0, 0, 0, 0, fsync(fd)); break;
    case FALLOCATE: r = CALL(SYS_fallocate, fd, flags, at, len, 0, fallocate(fd, flags, at, len)); break;
    case ACCESS: r = CALL(SYS_faccessat, AT_FDCWD, one, flags, 0, 0, access(one, flags)); break;
    case MAP: r = map(&maps[todo->slot], fd, flags); break;
    case LOAD: case STORE: return mapped(&maps[todo->slot], todo);
    case SETLK: r = CALL(SYS_fcntl, fd, F_SETLK, &lock, 0, 0, fcntl(fd, F_SETLK, &lock)); break;
    case GETLK:
        r = CALL(SYS_fcntl, fd, F_GETLK, &lock, 0, 0, fcntl(fd, F_GETLK, &lock));
        v = r < 0 || lock.l_type == F_UNLCK ? 0 : 1 + lock.l_type + lock.l_start * 4;
        break;
    case FLOCK: r = CALL(SYS_flock, fd, flags, 0, 0, 0, flock(fd, flags)); break;
    case OPENAT:
        r = CALL(SYS_openat, fd, todo->one, flags, mode, 0, openat(fd, todo->one, flags, mode));
        if (r >= 0) r = closed(r);
        break;
    case UNLINKAT: r = CALL(SYS_unlinkat, fd, todo->one, 0, 0, 0, unlinkat(fd, todo->one, 0)); break;
    case MKDIRAT: r = CALL(SYS_mkdirat, fd, todo->one, 0755, 0, 0, mkdirat(fd, todo->one, 0755)); break;
    case CHDIR: r = CALL(SYS_chdir, one, 0, 0, 0, 0, chdir(one)); break;
    case GETCWD:
        r = unseen ? by_kernel(SYS_getcwd, (long)bytes, ROOM, 0, 0, 0) : getcwd(bytes, ROOM) ? 0 : -1;
        if (r < 0) break;
        len = strlen(directory);
        r = strncmp(bytes, directory, len) == 0;
        v = r ? sum(bytes + len, strlen(bytes + len)) : 0;
        break;
    case KINDS: break;
    }
    return (struct answer){r, v, r == -1 ? errno : 0};
}

#define ONE_OF(...) ((int[]){__VA_ARGS__})[draw(sizeof((int[]){__VA_ARGS__}) / sizeof(int))]

static struct todo drawn(int by_unseen) {
    static const char *names[] = {"a", "b", "c", "d", "d/a", "d/b", "e", "e/a", "e/d", "e/d/a", "l", "m"};
    static const char *below[] = {"a", "b", "d", "x"};
    // Most are about descriptors that are open.
    enum kind kind = draw(2) ? draw(KINDS) : ONE_OF(OPEN, OPEN, PWRITE, PREAD, WRITE, STAT, FSTAT, LOAD, MAP, STORE, FTRUNCATE);
    if ((kind == CLOSE || kind == RMDIR || kind == UNLINK) && draw(2)) kind = OPEN;
    struct todo todo = {.kind = kind, .slot = draw(SLOTS), .seed = draw(1000000), .mode = ONE_OF(0644, 0600, 0666, 0755, 0400)};
    todo.offset = draw(3) ? draw(3) * 4096 + draw(3) * 7 : draw(30000);
    todo.length = 1 + (draw(3) ? draw(300) : draw(10000));
    strcpy(todo.one, names[draw(12)]), strcpy(todo.two, names[draw(12)]);
    switch (kind) {
    case OPEN: case OPENAT:
        todo.flags = ONE_OF(O_RDONLY, O_WRONLY, O_RDWR, O_RDWR, O_RDWR);
        if (draw(3)) todo.flags |= O_CREAT;
        if (draw(8) == 0) todo.flags |= O_EXCL;
        if (draw(8) == 0) todo.flags |= O_TRUNC;
        if (draw(8) == 0) todo.flags |= O_NOFOLLOW;
        // Where it is afterwards the kernel says by the length that it was told last: see docs/run.md.
        if (!by_unseen && draw(6) == 0) todo.flags |= O_APPEND;
        if (draw(7) == 0) todo.flags = O_RDONLY | O_DIRECTORY, strcpy(todo.one, draw(2) ? "d" : "e");
        if (kind == OPENAT) strcpy(todo.one, draw(4) ? below[draw(3)] : "d/a");
        break;
    case CHDIR: strcpy(todo.one, (const char *[]){"d", "e", "d/a", "e/d"}[draw(4)]); break;
    case UNLINKAT: case MKDIRAT: strcpy(todo.one, below[draw(4)]); break;
    case SEEK:
        todo.flags = draw(3);
        if (todo.flags != SEEK_SET) todo.offset = (long)draw(9000) - 4000;
        break;
    case RENAME: todo.flags = ONE_OF(0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE); break;
    case SETXATTR: todo.flags = draw(3); // fall through
    case GETXATTR: case REMOVEXATTR: case FSETXATTR: sprintf(todo.two, "user.k%u", draw(3)); break;
    case FALLOCATE: todo.flags = ONE_OF(0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE); break;
    case ACCESS: todo.flags = draw(8); break;
    case MAP: todo.flags = ONE_OF(PROT_READ, PROT_READ | PROT_WRITE); break;
    case SETLK: case GETLK:
        todo.flags = kind == SETLK ? ONE_OF(F_RDLCK, F_WRLCK, F_UNLCK) : ONE_OF(F_RDLCK, F_WRLCK);
        todo.offset = draw(5) * 10, todo.length = draw(3) * 10;
        break;
    case FLOCK: todo.flags = ONE_OF(LOCK_SH, LOCK_EX, LOCK_UN) | LOCK_NB; break;
    default: break;
    }
    return todo;
}

// Does what comes until nothing does.
static void serve(int todos, int answers) {
    struct todo todo;
    while (raw(SYS_read, todos, (long)&todo, sizeof todo, 0, 0) == sizeof todo) {
        struct answer answer = act(&todo);
        if (raw(SYS_write, answers, (long)&answer, sizeof answer, 0, 0) != sizeof answer) _exit(3);
    }
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    directory = argv[1];
    begin(argv[2]);
    int to[2], from[2], status;
    for (int i = 0; i < SLOTS; i++) fds[i] = -1;
    if (pipe(to) || pipe(from) || mkdir(path("d"), 0755) || mkdir(path("e"), 0755)) return 2;
    if (fork() == 0) {
        unseen = 1;
        close(to[1]), close(from[0]);
        serve(to[0], from[1]);
    }
    for (call = 0; call < atol(argv[3]); call++) {
        int by_unseen = draw(2);
        struct todo todo = drawn(by_unseen);
        struct answer answer;
        if (!by_unseen) answer = act(&todo);
        else if (write(to[1], &todo, sizeof todo) != sizeof todo || read(from[0], &answer, sizeof answer) != sizeof answer) return 1;
        int len = snprintf(line, sizeof line, "%ld %s %d %s %s %d %x %ld %ld: %ld %ld", call, by_unseen ? "kernel" : "library", todo.kind,
                           todo.one, todo.two, todo.slot, todo.flags, todo.offset, todo.length, answer.value, answer.result);
        tell_line(line, len, sizeof line, answer.result, answer.failed);
    }
    close(to[1]);
    return wait(&status) < 0 || status != 0;
}
