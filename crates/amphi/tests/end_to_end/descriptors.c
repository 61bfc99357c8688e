// Opens, shares, passes on and uses descriptors at random and tells what each call answered. Run on two file
// systems with the same arguments it says the same twice. Arguments: a directory, a seed, how many calls, and
// whether calls that no library sees are among them (1 or 0).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "told.h"

enum { SLOTS = 8, NAMES = 12, MOST = 1300000 };
extern char **environ;
static int fds[SLOTS];
static int past_library, locks, directory = -1;
static char names[NAMES][12] = {"a", "b", "c", "d/e", "d/f", "s", "d", "./a", "d/../b", "g", "g/e", "d//e"};
static char data[MOST + 64];
static char line[256];

static void tell(const char *what, long one, long two, long three) {
    int failed = errno;
    int len = snprintf(line, sizeof line, "%ld %s %ld %ld: %ld", call, what, one, two, three);
    tell_line(line, len, sizeof line, three, failed);
}

static const char *name(void) { return names[draw(NAMES)]; }
static long length(void) { return draw(60) == 0 ? draw(MOST) : draw(3) == 0 ? draw(40000) : draw(2) ? draw(5000) : draw(100); }
static long place(void) { return draw(2) ? draw(20000) : draw(200); }
static const char *filled(long len) {
    memset(data, 'a' + draw(26), len);
    return data;
}

static void put(int slot, int fd) {
    if (fds[slot] >= 0) tell("closes", slot, 0, close(fds[slot]));
    fds[slot] = fd;
}

static void take(const char *what, int slot, int fd) {
    tell(what, slot, 0, fd < 0 ? -1 : 0);
    if (fd >= 0) put(slot, fd);
}

static int flags(void) {
    static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
    int of = modes[draw(4)];
    if (draw(2)) of |= O_CREAT;
    if (draw(4) == 0) of |= O_APPEND;
    if (draw(6) == 0) of |= O_TRUNC;
    if (draw(10) == 0) of |= O_EXCL | O_CREAT;
    if (draw(10) == 0) of |= O_NOFOLLOW;
    if (draw(10) == 0) of |= O_CLOEXEC;
    if (draw(20) == 0) of |= O_SYNC;
    if (draw(30) == 0) of |= O_DIRECTORY, of &= ~O_CREAT;
    if (draw(30) == 0) of |= O_PATH;
    return of;
}

static void stated(const char *what, int slot, int result, const struct stat *st) {
    tell(what, slot, result == 0 ? (long)((st->st_mode & 0177777) << 4 | (S_ISDIR(st->st_mode) ? 0 : st->st_nlink)) : 0,
         result < 0 ? -1 : S_ISDIR(st->st_mode) ? 0 : st->st_size);
}

static void passed(int slot, int to) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0) _exit(8);
    char byte = 'x', control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec iov = {&byte, 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET, head->cmsg_type = SCM_RIGHTS, head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fds[slot], sizeof(int));
    long sent = sendmsg(pair[0], &message, 0);
    tell("passes", slot, to, sent);
    if (sent == 1) {
        long got = recvmsg(pair[1], &message, 0);
        int fd;
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        tell("receives", slot, to, got);
        put(to, fd);
    }
    close(pair[0]), close(pair[1]);
}

static void through_pipe(const char *what, int slot, int how) {
    int ends[2];
    if (pipe(ends) < 0) _exit(8);
    off_t at = place();
    long len = 1 + draw(9000), moved;
    if (how == 0) moved = sendfile(ends[1], fds[slot], NULL, len);
    else if (how == 1) moved = sendfile(ends[1], fds[slot], &at, len);
    else if (how == 2) moved = splice(fds[slot], NULL, ends[1], NULL, len, 0);
    else {
        moved = write(ends[1], filled(len), len);
        moved = splice(ends[0], NULL, fds[slot], how == 3 ? NULL : &at, len, 0);
        tell(what, slot, how, moved);
        close(ends[0]), close(ends[1]);
        return;
    }
    tell(what, slot, len, moved);
    if (moved > 0) {
        long got = read(ends[0], data, moved);
        tell("has", slot, got, sum(data, got > 0 ? got : 0));
    }
    close(ends[0]), close(ends[1]);
}

static void spawned(int slot, int how) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) _exit(8);
    int status = -1;
    char number[32];
    snprintf(number, sizeof number, "/proc/self/fd/%d", fds[slot]);
    char *cat[] = {"cat", NULL}, *other[] = {"cat", number, NULL}, *shell[] = {"sh", "-c", "read line; echo \"$line\"; echo more >&3", NULL};
    if (how == 0) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fds[slot], 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
        posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
        pid_t child;
        int failed = posix_spawn(&child, "/bin/cat", &actions, NULL, cat, environ);
        posix_spawn_file_actions_destroy(&actions);
        close(ends[1]);
        if (failed == 0) {
            long got = 0, more;
            while ((more = read(ends[0], data + got, MOST - got)) > 0) got += more;
    // What does not fit.
    while (more == 0 && got == MOST && read(ends[0], line, sizeof line) > 0) {}
            tell("cat reads", slot, got, sum(data, got));
            close(ends[0]);
            waitpid(child, &status, 0);
        }
        tell("spawns", slot, failed, status);
        return;
    }
    pid_t child = how == 1 ? fork() : vfork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2), dup2(ends[1], 1);
        if (how == 2) dup2(fds[slot], 0);
        if (how == 1) {
            dup2(fds[slot], 0), dup2(fds[slot], 3);
            execv("/bin/sh", shell);
        } else execv("/bin/cat", call % 2 ? other : cat);
        _exit(7);
    }
    close(ends[1]);
    long got = 0, more;
    while ((more = read(ends[0], data + got, MOST - got)) > 0) got += more;
    // What does not fit.
    while (more == 0 && got == MOST && read(ends[0], line, sizeof line) > 0) {}
    tell("program reads", slot, got, sum(data, got));
    close(ends[0]);
    waitpid(child, &status, 0);
    tell("executes", slot, how, status);
}

static void mapped(int slot) {
    struct stat st;
    if (fstat(fds[slot], &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return;
    int writes = draw(2), private = draw(4) == 0;
    char *map = mmap(NULL, st.st_size, PROT_READ | (writes ? PROT_WRITE : 0), private ? MAP_PRIVATE : MAP_SHARED, fds[slot], 0);
    tell("maps", slot, writes, map == MAP_FAILED ? -1 : 0);
    if (map == MAP_FAILED) return;
    tell("is mapped", slot, st.st_size, sum(map, st.st_size));
    if (writes) {
        long at = draw(st.st_size), len = draw(st.st_size - at) + 1;
        memset(map + at, 'A' + draw(26), len);
        if (draw(2)) tell("msync", slot, 0, msync(map, st.st_size, MS_SYNC));
    }
    munmap(map, st.st_size);
}

static void streamed(int slot) {
    int copy = dup(fds[slot]);
    int mode = fcntl(fds[slot], F_GETFL);
    if (copy < 0 || mode < 0 || (mode & O_PATH)) { if (copy >= 0) close(copy); return; }
    int access_mode = mode & O_ACCMODE;
    FILE *stream = fdopen(copy, access_mode == O_RDONLY ? "r" : access_mode == O_WRONLY ? "w" : "r+");
    tell("fdopen", slot, 0, stream ? 0 : -1);
    if (!stream) { close(copy); return; }
    char text[64];
    if (access_mode != O_WRONLY) {
        long got = fread(text, 1, sizeof text, stream);
        tell("fread", slot, got, sum(text, got));
        if (access_mode == O_RDWR) fseek(stream, 0, SEEK_CUR);
    }
    if (access_mode != O_RDONLY) tell("fprintf", slot, 0, fprintf(stream, "line %u\n", draw(1000)));
    tell("fclose", slot, 0, fclose(stream));
}

// A mapping that stays, and what is done with it.
static char *kept;
static long kept_len;
static int kept_fd = -1;
static sigjmp_buf behind;
static void bus(int number) { (void)number; siglongjmp(behind, 1); }

static void keep(int slot) {
    struct stat st;
    if (kept) munmap(kept, kept_len), raw(SYS_close, kept_fd, 0, 0, 0, 0), kept = NULL;
    if (fstat(fds[slot], &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return;
    kept_len = st.st_size;
    kept = mmap(NULL, kept_len, PROT_READ | PROT_WRITE, MAP_SHARED, fds[slot], 0);
    tell("keeps", slot, kept_len, kept == MAP_FAILED ? -1 : 0);
    if (kept == MAP_FAILED) kept = NULL;
    else kept_fd = raw(SYS_dup, fds[slot], 0, 0, 0, 0);
}

static void use_kept(void) {
    if (!kept) return;
    long at = draw(kept_len), len = draw(kept_len - at) + 1;
    int writes = draw(2), how = draw(26);
    if (sigsetjmp(behind, 1)) { tell("SIGBUS", 0, 0, 0); munmap(kept, kept_len), raw(SYS_close, kept_fd, 0, 0, 0, 0), kept = NULL; return; }
    // What lies behind the end in its page each file system treats in its own way.
    struct stat st;
    if (raw(SYS_fstat, kept_fd, (long)&st, 0, 0, 0) < 0 || at + len > st.st_size) return;
    if (writes) {
        // All at once or nothing.
        volatile char *last = kept + at + len - 1;
        *last = *last;
        memset(kept + at, 'A' + how, len);
    }
    tell("kept", at, len, sum(kept + at, len));
}

static void step(int depth);

static void *in_thread(void *of) {
    step(*(int *)of + 2);
    return NULL;
}

static void listed(void) {
    DIR *dir = opendir(draw(2) ? "." : "d");
    if (!dir) { tell("opendir", 0, 0, -1); return; }
    long seen = 0, count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) seen += sum(entry->d_name, strlen(entry->d_name)) % 100000 + entry->d_type, count++;
    closedir(dir);
    tell("lists", count, 0, seen);
}

static void step(int depth) {
    int slot = draw(SLOTS), to = draw(SLOTS), fd = fds[slot];
    struct stat st;
    long len, at, got;
    switch (draw(69)) {
    case 0: case 1: case 2: case 3: {
        const char *path = name();
        take("opens", slot, open(path, flags(), draw(2) ? 0644 : 0600));
        return;
    }
    case 4: if (draw(2)) put(slot, -1); return;
    case 5: case 6: {
        if (fd < 0) return;
        if (draw(2) || fds[to] < 0) take("dups", to, draw(2) ? dup(fd) : fcntl(fd, draw(2) ? F_DUPFD : F_DUPFD_CLOEXEC, 20));
        else if (slot != to) tell("dup2", slot, to, (draw(2) ? dup2(fd, fds[to]) : dup3(fd, fds[to], O_CLOEXEC)) < 0 ? -1 : 0);
        return;
    }
    case 7: case 8: case 9: case 10:
        len = length();
        // What the kernel appends leaves the offset behind the end that it remembers.
        tell("writes", slot, len, past_library && draw(4) == 0 && !(fcntl(fd, F_GETFL) & O_APPEND) ? by_kernel(SYS_write, fd, (long)filled(len), len, 0, 0) : write(fd, filled(len), len));
        return;
    case 11: case 12:
        len = length(), at = place();
        tell("pwrites", slot, at, past_library && draw(4) == 0 ? by_kernel(SYS_pwrite64, fd, (long)filled(len), len, at, 0) : pwrite(fd, filled(len), len, at));
        return;
    case 13: case 14: case 15: case 16:
        len = length();
        got = past_library && draw(4) == 0 ? by_kernel(SYS_read, fd, (long)data, len, 0, 0) : read(fd, data, len);
        tell("reads", slot, len, got);
        if (got > 0) tell("data", slot, got, sum(data, got));
        return;
    case 17: case 18:
        len = length(), at = place();
        got = past_library && draw(4) == 0 ? by_kernel(SYS_pread64, fd, (long)data, len, at, 0) : pread(fd, data, len, at);
        tell("preads", slot, at, got);
        if (got > 0) tell("data", slot, got, sum(data, got));
        return;
    case 19: {
        long first = draw(300), second = draw(5000);
        struct iovec iov[2] = {{data, first}, {data + first, second}};
        filled(first + second);
        if (draw(2)) { tell("writev", slot, first + second, writev(fd, iov, 2)); return; }
        got = readv(fd, iov, 2);
        tell("readv", slot, got, got < 0 ? got : sum(data, got));
        return;
    }
    case 20: {
        static const int how[] = {0, RWF_APPEND, RWF_DSYNC, RWF_SYNC};
        struct iovec iov = {data, draw(3000)};
        at = draw(3) == 0 ? -1 : place();
        filled(iov.iov_len);
        if (draw(2)) { int with = how[draw(4)]; tell("pwritev2", slot, at, pwritev2(fd, &iov, 1, at, with)); return; }
        got = preadv2(fd, &iov, 1, at, 0);
        tell("preadv2", slot, got, got < 0 ? got : sum(data, got));
        return;
    }
    case 21: case 22: case 23: {
        static const int whence[] = {SEEK_SET, SEEK_CUR, SEEK_END, SEEK_DATA, SEEK_HOLE};
        int from = draw(5);
        at = place() - (from == 1 || from == 2 ? 10000 : 0);
        // Where a directory's places lie each file system decides.
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) return;
        // And so it does where it has data within a file.
        if (from > 2) lseek(fd, at, whence[from]), from = 0;
        tell("lseek", slot, from, lseek(fd, at, whence[from]));
        return;
    }
    case 24: at = place(); tell("ftruncate", slot, at, ftruncate(fd, at)); return;
    case 25: {
        static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE};
        int mode = modes[draw(3)];
        at = place(), len = 1 + draw(9000);
        tell("fallocate", slot, mode, fallocate(fd, mode, at, len));
        return;
    }
    case 26: case 27: { int past = past_library && draw(2); got = past ? by_kernel(SYS_fstat, fd, (long)&st, 0, 0, 0) : fstat(fd, &st); stated("fstat", slot, got, &st); return; }
    case 28:
        if (draw(2)) tell("F_SETFL", slot, 0, fcntl(fd, F_SETFL, draw(2) ? O_APPEND : 0));
        got = fcntl(fd, F_GETFL);
        tell("F_GETFL", slot, 0, got < 0 ? got : got & (O_ACCMODE | O_APPEND | O_SYNC));
        return;
    case 29: { const char *one = name(); tell("unlink", 0, 0, unlink(one)); return; }
    case 30: { const char *one = name(), *two = name(); tell("rename", 0, 0, rename(one, two)); return; }
    case 31: { const char *one = name(), *two = name(); tell("link", 0, 0, link(one, two)); return; }
    case 32: { const char *one = name(), *two = name(); int how = draw(2) ? RENAME_EXCHANGE : RENAME_NOREPLACE; tell("renameat2", how, 0, renameat2(AT_FDCWD, one, AT_FDCWD, two, how)); return; }
    case 33: { const char *one = name(); tell("symlink", 0, 0, symlink(draw(2) ? "a" : "d/e", one)); return; }
    case 34: { const char *one = name(); at = place(); tell("truncate", at, 0, truncate(one, at)); return; }
    case 35: { const char *one = name(); int follow = draw(2); got = follow ? stat(one, &st) : lstat(one, &st); stated("stat", follow, got, &st); return; }
    case 36: mapped(slot); return;
    case 37: if (fd >= 0) through_pipe("pipes", slot, draw(5)); return;
    case 38: {
        if (depth) return;
        int steps = 1 + draw(6);
        pid_t child = fork();
        if (child == 0) {
            while (steps--) step(1);
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        tell("child", slot, 0, status);
        return;
    }
    case 39: if (fd >= 0 && depth < 1) spawned(slot, draw(3)); return;
    case 40: {
        off_t from = place(), into = place();
        int which = draw(4);
        len = 1 + draw(9000);
        tell("copies", slot, to, copy_file_range(fd, which & 1 ? &from : NULL, fds[to], which & 2 ? &into : NULL, len, 0));
        return;
    }
    case 41: if (fd >= 0) passed(slot, to); return;
    case 42: if (fd >= 0) streamed(slot); return;
    case 43: {
        int other = openat(directory, name(), flags() | (draw(2) ? O_RDWR : 0), 0644);
        take("openat", slot, other);
        return;
    }
    case 44: {
        if (fd < 0) return;
        char number[40];
        snprintf(number, sizeof number, "/%s/%d", draw(2) ? "proc/self/fd" : "dev/fd", fd);
        take("reopens", to, open(number, draw(2) ? O_RDWR : O_RDONLY));
        return;
    }
    case 45: {
        tell("flock", slot, 0, flock(fd, (draw(2) ? LOCK_EX : draw(2) ? LOCK_SH : LOCK_UN) | LOCK_NB));
        // Who locks records has no placeholders any more.
        if (!locks) return;
        struct flock lock = {.l_type = draw(2) ? F_WRLCK : F_UNLCK, .l_whence = draw(3), .l_len = draw(100)};
        tell("F_SETLK", slot, 0, fcntl(fd, draw(2) ? F_SETLK : F_OFD_SETLK, &lock));
        return;
    }
    case 46: {
        int left = -1;
        got = ioctl(fd, FIONREAD, &left);
        tell("FIONREAD", slot, 0, got < 0 ? got : left);
        struct pollfd asked = {.fd = fd, .events = POLLIN | POLLOUT};
        got = poll(&asked, 1, 0);
        tell("poll", slot, asked.revents, got);
        return;
    }
    case 47:
        switch (draw(5)) {
        case 0: tell("fsync", slot, 0, fsync(fd)); return;
        case 1: tell("fdatasync", slot, 0, fdatasync(fd)); return;
        case 2: tell("fadvise", slot, 0, posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)); return;
        case 3: { int mode = draw(2) ? 0600 : 0640; tell("fchmod", slot, 0, fchmod(fd, mode)); return; }
        default: {
            char value = 'a' + draw(26);
            if (draw(2)) { tell("fsetxattr", slot, 0, fsetxattr(fd, "user.a", &value, 1, 0)); return; }
            got = fgetxattr(fd, "user.a", &value, 1);
            tell("fgetxattr", slot, got, got < 0 ? got : value);
            return;
        }
        }
    case 48: {
        if (fd < 0) return;
        char number[40];
        snprintf(number, sizeof number, "/proc/self/fd/%d", fd);
        const char *one = name();
        tell("linkat", slot, 0, linkat(AT_FDCWD, number, AT_FDCWD, one, AT_SYMLINK_FOLLOW));
        return;
    }
    case 49: {
        if (depth > 1) return;
        pthread_t thread;
        int of = depth;
        if (pthread_create(&thread, NULL, in_thread, &of)) _exit(8);
        pthread_join(thread, NULL);
        return;
    }
    case 50: listed(); return;
    case 51: { const char *one = name(); tell("mkdir", 0, 0, mkdir(one, 0755)); return; }
    case 52: { const char *one = name(); if (draw(2)) tell("rmdir", 0, 0, rmdir(one)); return; }
    case 53: keep(slot); return;
    case 54: case 55: case 56: use_kept(); return;
    case 57: {
        len = draw(3), at = place();
        tell("posix_fallocate", slot, at, posix_fallocate(fd, at, 1 + draw(9000)));
        return;
    }
    case 58: {
        const char *one = name();
        char value[8] = {'a' + draw(26)};
        switch (draw(5)) {
        case 0: tell("setxattr", 0, 0, setxattr(one, "user.b", value, 1 + draw(7), draw(3))); return;
        case 1: got = getxattr(one, "user.b", value, sizeof value); tell("getxattr", 0, got, got < 0 ? got : value[0]); return;
        case 2: tell("removexattr", 0, 0, removexattr(one, "user.b")); return;
        case 3: tell("fremovexattr", slot, 0, fremovexattr(fd, "user.a")); return;
        default: { char list[200]; got = flistxattr(fd, list, sizeof list); tell("flistxattr", slot, 0, got); return; }
        }
    }
    case 59: {
        const char *one = name();
        switch (draw(5)) {
        case 0: tell("access", 0, 0, access(one, draw(8))); return;
        case 1: { char to[64]; got = readlink(one, to, sizeof to); tell("readlink", 0, 0, got < 0 ? got : sum(to, got)); return; }
        case 2: tell("chmod", 0, 0, chmod(one, draw(2) ? 0644 : 0755)); return;
        case 3: {
            struct timespec times[2] = {{draw(1000000), 0}, {draw(1000000), 0}};
            got = draw(2) ? utimensat(AT_FDCWD, one, times, 0) : futimens(fd, times);
            tell("times", slot, 0, got);
            if (got == 0 && stat(one, &st) == 0) tell("mtime", 0, 0, st.st_mtime < 1000000 ? st.st_mtime : 0);
            return;
        }
        default: {
            struct statx x;
            got = statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &x);
            tell("statx", slot, got == 0 ? x.stx_mode : 0, got < 0 ? got : S_ISDIR(x.stx_mode) ? 0 : (long)x.stx_size);
            return;
        }
        }
    }
    case 60:
        switch (draw(8)) {
        case 0: tell("write 0", slot, 0, write(fd, data, 0)); return;
        case 1: tell("read 0", slot, 0, read(fd, data, 0)); return;
        case 2: tell("pread -1", slot, 0, pread(fd, data, 10, -1)); return;
        case 3: tell("pwrite -1", slot, 0, pwrite(fd, data, 10, -5)); return;
        case 4: tell("write NULL", slot, 0, write(fd, (void *)-4096, 10)); return;
        case 5: tell("lseek -1", slot, 0, lseek(fd, -1, SEEK_SET)); return;
        case 6: tell("ftruncate -1", slot, 0, ftruncate(fd, -1)); return;
        default: tell("fallocate 0", slot, 0, fallocate(fd, 0, 0, 0)); return;
        }
    case 61: {
        off_t from = place();
        int with = draw(2);
        struct stat other;
        len = 1 + draw(9000);
        // Which of the bytes that it moves within one file it has moved before is chance.
        if (fstat(fd, &st) || fstat(fds[to], &other) || st.st_ino == other.st_ino) return;
        if (fd >= 0 && fds[to] >= 0 && !(fcntl(fds[to], F_GETFL) & O_APPEND)) tell("sendfile", slot, to, sendfile(fds[to], fd, with ? &from : NULL, len));
        return;
    }
    case 62: {
        if (fd < 0) return;
        len = length();
        if (draw(2)) { got = syscall(SYS_read, fd, data, len); tell("syscall read", slot, got, got < 0 ? got : sum(data, got)); return; }
        if (!(fcntl(fd, F_GETFL) & O_APPEND)) tell("syscall write", slot, len, syscall(SYS_write, fd, filled(len), len));
        return;
    }
    case 63: {
        if (fd < 0 || depth) return;
        char words[64];
        snprintf(words, sizeof words, "exec 2>/dev/null; head -c 100 <&%d", fd);
        FILE *stream = popen(words, "r");
        len = fread(data, 1, 200, stream);
        tell("popen", slot, len, sum(data, len));
        tell("pclose", slot, 0, pclose(stream));
        return;
    }
    case 64: {
        if (fd < 0 || depth) return;
        char words[64];
        snprintf(words, sizeof words, "exec 2>/dev/null; echo text >&%d", fd);
        if (!(fcntl(fd, F_GETFL) & O_APPEND)) tell("system", slot, 0, system(words));
        return;
    }
    case 65: if (fd >= 0) tell("dprintf", slot, 0, dprintf(fd, "%s", "formatted\n")); return;
    case 66: if (fd >= 0 && draw(2)) { int how = draw(3) == 0 ? CLOSE_RANGE_CLOEXEC : 0; tell("close_range", slot, how, close_range(fd, fd, how)); if (!how) fds[slot] = -1; } return;
    case 67: { char number[40]; snprintf(number, sizeof number, "/proc/self/fd/%d", fd); at = place(); tell("truncates", slot, at, truncate(number, at)); return; }
    default: {
        const char *one = name();
        FILE *stream = fopen(one, draw(2) ? "a+" : "r+");
        tell("fopen", 0, 0, stream ? 0 : -1);
        if (!stream) return;
        tell("fputs", 0, 0, fputs("more text\n", stream) < 0 ? -1 : 0);
        rewind(stream);
        len = fread(data, 1, 5000, stream);
        tell("fread", 0, len, sum(data, len));
        tell("fclose", 0, 0, fclose(stream));
        return;
    }
    }
}

int main(int count, char **words) {
    if (count != 5 || chdir(words[1])) return 2;
    begin(words[2]);
    past_library = atoi(words[4]);
    locks = atoi(words[2]) % 3 == 0;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGBUS, bus);
    memset(fds, -1, sizeof fds);
    mkdir("d", 0755);
    directory = open(".", O_RDONLY | O_DIRECTORY);
    long calls = strtol(words[3], NULL, 10);
    for (call = 0; call < calls; call++) step(0);
    for (int i = 0; i < SLOTS; i++) put(i, -1);
    listed();
    return 0;
}
