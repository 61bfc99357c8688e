// Does file calls that it is told on its standard input, one a line, and says what came of each: the accelerated half of `accelerated.rs`.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "doors.h"

static int fds[32];
static char buffer[1 << 20];

static void say(long result) {
    if (result < 0)
        printf("-%d\n", errno);
    else
        printf("%ld\n", result);
}

static void show(long len) {
    if (len < 0) {
        say(len);
        return;
    }
    printf("%ld %lu\n", len, sum_of(buffer, len));
}

// Parent and child write to one description in turn: each begins where the other ended.
static long forked(int fd) {
    if (lseek(fd, 0, SEEK_SET) < 0 || write(fd, "parent", 6) != 6) return -1;
    pid_t child = fork();
    if (child == 0) _exit(write(fd, "child", 5) == 5 ? 0 : 1);
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return -1;
    if (write(fd, "parent", 6) != 6) return -1;
    return lseek(fd, 0, SEEK_CUR);
}

// A mapping shows what was written before and writes what is read afterwards.
static long mapped(int fd) {
    if (pwrite(fd, "before", 6, 0) != 6) return -1;
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED || memcmp(at, "before", 6) != 0) return -1;
    memcpy(at, "beyond", 6);
    char seen[6];
    long same = pread(fd, seen, 6, 0) == 6 && memcmp(seen, "beyond", 6) == 0;
    munmap(at, 4096);
    return same;
}

// Stores into all of a file by a mapping that stays.
static long stored(int fd, long len) {
    char *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return -1;
    memset(at, 'm', len);
    return len;
}

// Descriptors that stdio closes and the kernel gives out again name the new file.
static long reused(const char *path, const char *other) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (write(fd, "mine", 4) != 4) return -1;
    FILE *file = fdopen(fd, "r+");
    if (!file || fclose(file) != 0) return -1;
    int again = open(other, O_RDWR | O_CREAT, 0644);
    if (again != fd || write(again, "other", 5) != 5 || close(again) != 0) return -1;
    struct stat stat_of;
    return stat(path, &stat_of) == 0 ? stat_of.st_size : -1;
}

static int shared_fd;
static void *writer(void *number) {
    char text[8];
    memset(text, 'a' + (long)number, sizeof text);
    for (int i = 0; i < 200; i++)
        if (write(shared_fd, text, sizeof text) != sizeof text) return (void *)1;
    return NULL;
}

// Threads that write to one descriptor lose nothing: the offset is theirs together.
static long threads(int fd) {
    pthread_t thread[4];
    shared_fd = fd;
    for (long i = 0; i < 4; i++) pthread_create(&thread[i], NULL, writer, (void *)i);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(thread[i], &failed);
        if (failed) return -1;
    }
    return lseek(fd, 0, SEEK_CUR);
}

// What calls past the library say on a descriptor: read, write, fsync, flock, opening it again. 0 if one of them did anything.
static long stray(int fd) {
    char byte = 'x', path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    long said[] = {raw(SYS_read, fd, (long)&byte, 1, 0, 0), raw(SYS_write, fd, (long)&byte, 1, 0, 0), raw(SYS_fsync, fd, 0, 0, 0, 0),
                   raw(SYS_flock, fd, LOCK_EX, 0, 0, 0), raw(SYS_ftruncate, fd, 0, 0, 0, 0)};
    for (unsigned i = 0; i < sizeof said / sizeof *said; i++)
        if (said[i] != -EBADF) return 0;
    return raw(SYS_open, (long)path, O_RDWR, 0, 0, 0) == -ELOOP;
}

static int handler_fd;
static volatile sig_atomic_t handled;
static void in_handler(int signal) {
    (void)signal;
    if (write(handler_fd, "handler\n", 8) == 8) handled++;
    // On a slow machine the next signal comes before this one is dealt with, and nothing else would get its turn.
    struct itimerval never = {{0, 0}, {0, 0}};
    if (handled == 100) setitimer(ITIMER_REAL, &never, NULL);
}

// Signals come in the middle of writes, and their handler writes to the same descriptor. How much both have written.
static long signalled(int fd) {
    handler_fd = fd;
    handled = 0;
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 200}, {0, 200}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    long written = 0;
    while (handled < 100) {
        if (write(fd, "program\n", 8) != 8) return -1;
        written += 8;
    }
    return written + 8L * handled;
}

// Writes and makes durable for ever, in two threads, until it is killed.
static void *busy_writer(void *fd) {
    for (long i = 0;; i++)
        if (pwrite((int)(long)fd, "busy", 4, i % 4096) != 4 || fsync((int)(long)fd) != 0) usleep(1000);
    return NULL;
}

// The program becomes another one, or ends, while threads of its are in the middle of calls.
static long leaving(int fd, const char *how) {
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) pthread_create(&thread[i], NULL, busy_writer, (void *)(long)fd);
    while (fsync(fd) != 0) {}
    if (how[0] == 'x') execl("/bin/true", "true", NULL);
    if (how[0] == '_') _exit(0);
    exit(0);
}

static pthread_barrier_t all_there;
// The errno of the call that failed last. One that did less than it should has none.
static long failure(void) { return errno ? errno : EIO; }

// Null, or the errno of the call that failed.
static void *own_writer(void *path) {
    errno = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    long failed = fd < 0 || write(fd, "first\n", 6) != 6 ? failure() : 0;
    // Each has a lane now, or could get none.
    pthread_barrier_wait(&all_there);
    if (!failed && (write(fd, "again\n", 6) != 6 || fsync(fd) != 0)) failed = failure();
    if (fd >= 0 && close(fd) != 0 && !failed) failed = failure();
    return (void *)failed;
}

// More threads than there are lanes, each with a descriptor of its own on one file.
static long crowd(const char *path) {
    pthread_t thread[48];
    pthread_barrier_init(&all_there, NULL, 48);
    for (int i = 0; i < 48; i++) pthread_create(&thread[i], NULL, own_writer, (void *)path);
    long failed = 0;
    for (int i = 0; i < 48; i++) {
        void *result;
        pthread_join(thread[i], &result);
        if (result) failed = (long)result;
    }
    errno = failed;
    return failed ? -1 : 0;
}

// The child of a vfork opens a file under a number that the parent then gives to another thing.
static long vforked(const char *path) {
    pid_t child = vfork();
    if (child == 0) {
        int fd = open(path, O_RDWR | O_CREAT, 0644);
        _exit(fd < 0 ? 255 : fd);
    }
    int status, ends[2];
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
    if (pipe(ends) != 0) return -1;
    char seen[5];
    long same = write(ends[1], "pipe", 4) == 4 && read(ends[0], seen, 4) == 4 && memcmp(seen, "pipe", 4) == 0;
    close(ends[0]);
    close(ends[1]);
    return same && (ends[0] == WEXITSTATUS(status) || ends[1] == WEXITSTATUS(status));
}

// Each thing that needs a descriptor of the kernel's, on one that the queue opened; 0 where all went well, else which one failed.
static long needs(const char *path, const char *what) {
    char seen[64] = {0}, name[64];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, "0123456789", 10) != 10 || lseek(fd, 4, SEEK_SET) != 4) return 1;
    if (strchr(what, 'u') && unlink(path) != 0) return 2;
    if (strchr(what, 'r') && rename(path, strcat(strcpy(name, path), "-moved")) != 0) return 2;
    switch (what[0]) {
    case 'm': {
        char *at = mmap(NULL, 10, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED || memcmp(at, "0123456789", 10) != 0) return 3;
        munmap(at, 10);
        break;
    }
    case 'd': {
        int copy = dup(fd);
        if (read(copy, seen, 2) != 2 || memcmp(seen, "45", 2) != 0 || lseek(fd, 0, SEEK_CUR) != 6) return 3;
        close(copy);
        lseek(fd, 4, SEEK_SET);
        break;
    }
    case 'e': {
        // A copy is mapped, of which the library knows nothing, behind what the kernel was told of the file's length.
        struct stat known;
        if (fsync(fd) != 0 || ftruncate(fd, 8192) != 0) return 3;
        int copy = dup(fd);
        char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, copy, 0);
        if (at == MAP_FAILED || at[8000] != 0 || fstat(fd, &known) != 0) return 3;
        munmap(at, 8192), close(copy);
        if (ftruncate(fd, 10) != 0) return 3;
        break;
    }
    case 'f': {
        FILE *file = fdopen(dup(fd), "r+");
        if (!file || fgetc(file) != '4' || fclose(file) != 0) return 3;
        lseek(fd, 4, SEEK_SET);
        break;
    }
    case 'p':
        if (dprintf(fd, "%s%d", "x", 5) != 2 || lseek(fd, 0, SEEK_CUR) != 6) return 3;
        if (pwrite(fd, "45", 2, 4) != 2 || lseek(fd, 4, SEEK_SET) != 4) return 3;
        break;
    case 'l': {
        // The lock ends when any descriptor of the file is closed, so making another one real must close none.
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int other = what[1] ? -1 : open(path, O_RDWR);
        if (fcntl(fd, F_SETLK, &lock) != 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) return 3;
        if (other >= 0 && (dup2(other, 100) != 100 || fcntl(other, F_GETFL) < 0)) return 3;
        pid_t child = fork();
        if (child == 0) _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 1);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) return 3;
        if (other >= 0) close(other), close(100);
        break;
    }
    case 's': {
        int to = open("/dev/null", O_WRONLY);
        off_t at = 0;
        if (sendfile(to, fd, &at, 10) != 10) return 3;
        close(to);
        break;
    }
    case 'w': {
        struct pollfd polled = {fd, POLLIN, 0};
        if (poll(&polled, 1, 0) != 1 || polled.revents != POLLIN) return 3;
        break;
    }
    case 'o': {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        int again = open(name, O_RDONLY);
        if (read(again, seen, 10) != 10 || memcmp(seen, "0123456789", 10) != 0) return 3;
        close(again);
        break;
    }
    case 'c': {
        pid_t child = fork();
        if (child == 0) _exit(read(fd, seen, 2) == 2 && memcmp(seen, "45", 2) == 0 ? 0 : 1);
        int status;
        if (waitpid(child, &status, 0) != child || status != 0 || lseek(fd, 0, SEEK_CUR) != 6) return 3;
        lseek(fd, 4, SEEK_SET);
        break;
    }
    case 'x':
        snprintf(name, sizeof name, "test $(dd bs=2 count=1 status=none <&%d) = 45", fd);
        if (system(name) != 0) return 3;
        lseek(fd, 4, SEEK_SET);
        break;
    case 'g': {
        // A descriptor that goes over a socket.
        int ends[2];
        char byte = 0, room[CMSG_SPACE(sizeof fd)] = {0};
        struct iovec part = {&byte, 1};
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 || sendmsg(ends[0], &message, 0) != 1) return 3;
        if (recvmsg(ends[1], &message, 0) != 1) return 3;
        int came;
        memcpy(&came, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof came);
        if (pread(came, seen, 2, 4) != 2 || memcmp(seen, "45", 2) != 0) return 3;
        close(came), close(ends[0]), close(ends[1]);
        break;
    }
    default: return 4;
    }
    // The descriptor goes on as it was.
    if (read(fd, seen, 2) != 2 || memcmp(seen, "45", 2) != 0 || write(fd, "after", 5) != 5) return 5;
    if (pread(fd, seen, 11, 0) != 11 || memcmp(seen, "012345after", 11) != 0) return 6;
    struct stat stat_of;
    if (fstat(fd, &stat_of) != 0 || stat_of.st_size != 11 || stat_of.st_nlink != !strchr(what, 'u')) return 7;
    return close(fd) == 0 ? 0 : 8;
}

// The calls by name, each asked what it changed.
static long by_name(const char *path) {
    char other[4200], text[64];
    struct stat stat_of;
    struct statx extended;
    struct timespec times[2] = {{1, 2}, {3, 4}};
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0640);
    if (fd < 0 || write(fd, "content", 7) != 7 || fsync(fd) != 0) return 1;
    if (fchmod(fd, 0600) != 0 || futimens(fd, times) != 0 || close(fd) != 0) return 2;
    if (stat(path, &stat_of) != 0 || stat_of.st_size != 7 || (stat_of.st_mode & 07777) != 0600) return 3;
    if (stat_of.st_mtim.tv_sec != 3 || stat_of.st_mtim.tv_nsec != 4 || stat_of.st_atim.tv_nsec != 2) return 4;
    if (statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &extended) != 0 || extended.stx_ino != stat_of.st_ino) return 5;
    if (extended.stx_dev_minor != minor(stat_of.st_dev) || extended.stx_size != 7) return 6;
    if (access(path, R_OK | W_OK) != 0 || chmod(path, 0644) != 0) return 7;
    snprintf(other, sizeof other, "%s-link", path);
    if (link(path, other) != 0 || lstat(other, &stat_of) != 0 || stat_of.st_nlink != 2) return 8;
    if (unlink(other) != 0 || symlink("target", other) != 0) return 9;
    if (readlink(other, text, sizeof text) != 6 || memcmp(text, "target", 6) != 0) return 10;
    if (lstat(other, &stat_of) != 0 || !S_ISLNK(stat_of.st_mode)) return 11;
    if (stat(other, &stat_of) != -1 || errno != ENOENT || unlink(other) != 0) return 12;
    if (setxattr(path, "user.a", "value", 5, XATTR_CREATE) != 0) return 13;
    if (setxattr(path, "user.a", "value", 5, XATTR_CREATE) != -1 || errno != EEXIST) return 14;
    if (getxattr(path, "user.a", NULL, 0) != 5 || getxattr(path, "user.a", text, 3) != -1 || errno != ERANGE) return 15;
    if (getxattr(path, "user.a", text, 64) != 5 || memcmp(text, "value", 5) != 0) return 16;
    if (listxattr(path, text, 64) != 7 || memcmp(text, "user.a", 7) != 0) return 17;
    if (removexattr(path, "user.a") != 0 || getxattr(path, "user.a", text, 64) != -1 || errno != ENODATA) return 18;
    if ((fd = open(path, O_RDWR)) < 0 || fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 65536) != 0) return 19;
    if (ftruncate(fd, 65536) != 0 || pwrite(fd, "x", 1, 65535) != 1) return 20;
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0, 32768) != 0) return 21;
    if (lseek(fd, 0, SEEK_DATA) < 32768 || lseek(fd, 0, SEEK_HOLE) != 0 || lseek(fd, 65536, SEEK_DATA) != -1) return 22;
    if (errno != ENXIO || lseek(fd, -1, SEEK_END) != 65535 || read(fd, text, 5) != 1 || text[0] != 'x') return 23;
    return close(fd) == 0 ? 0 : 24;
}

int main(void) {
    char line[8192], verb[16], a[4096], b[4096];
    long x, y, z, value;
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "open %ld %4095s %ld", &x, a, &y) == 3) say(fds[x] = open(a, O_RDWR | O_CREAT | y, 0644));
        else if (sscanf(line, "close %ld", &x) == 1) say(close(fds[x]));
        else if (sscanf(line, "pwrite %ld %ld %ld %ld", &x, &y, &z, &value) == 4) {
            memset(buffer, (int)value, z);
            say(pwrite(fds[x], buffer, z, y));
        } else if (sscanf(line, "write %ld %ld %ld", &x, &y, &z) == 3) {
            memset(buffer, (int)z, y);
            say(write(fds[x], buffer, y));
        } else if (sscanf(line, "pread %ld %ld %ld", &x, &y, &z) == 3) show(pread(fds[x], buffer, z, y));
        else if (sscanf(line, "truncate %ld %ld", &x, &y) == 2) say(ftruncate(fds[x], y));
        else if (sscanf(line, "sync %ld", &x) == 1) say(fsync(fds[x]));
        else if (sscanf(line, "size %ld", &x) == 1) {
            struct stat stat_of;
            say(fstat(fds[x], &stat_of) < 0 ? -1 : stat_of.st_size);
        } else if (sscanf(line, "seek %ld", &x) == 1) say(lseek(fds[x], 0, SEEK_CUR));
        else if (sscanf(line, "unlink %4095s", a) == 1) say(unlink(a));
        else if (sscanf(line, "mkdir %4095s", a) == 1) say(mkdir(a, 0755));
        else if (sscanf(line, "rmdir %4095s", a) == 1) say(rmdir(a));
        else if (sscanf(line, "rename %4095s %4095s", a, b) == 2) say(rename(a, b));
        else if (sscanf(line, "chdir %4095s", a) == 1) say(chdir(a));
        else if (sscanf(line, "user %ld", &x) == 1) say(setuid(x));
        else if (sscanf(line, "fork %ld", &x) == 1) say(forked(fds[x]));
        else if (sscanf(line, "mapped %ld", &x) == 1) say(mapped(fds[x]));
        else if (sscanf(line, "store %ld %ld", &x, &y) == 2) say(stored(fds[x], y));
        else if (sscanf(line, "threads %ld", &x) == 1) say(threads(fds[x]));
        else if (sscanf(line, "busy %ld", &x) == 1) busy_writer((void *)(long)fds[x]);
        else if (sscanf(line, "leave %ld %4095s", &x, a) == 2) leaving(fds[x], a);
        else if (sscanf(line, "number %ld", &x) == 1) say(fds[x]);
        else if (sscanf(line, "stray %ld", &x) == 1) say(stray(fds[x]));
        else if (sscanf(line, "signalled %ld", &x) == 1) say(signalled(fds[x]));
        else if (sscanf(line, "crowd %4095s", a) == 1) say(crowd(a));
        else if (sscanf(line, "vforked %4095s", a) == 1) say(vforked(a));
        else if (sscanf(line, "closerange %ld", &x) == 1) say(close_range(x, ~0U, 0));
        else if (sscanf(line, "exec %4095s", a) == 1) say(execv(a, (char *[]){a, NULL}));
        else if (sscanf(line, "load %4095s", a) == 1) say(dlopen(a, RTLD_NOW) ? 0 : 1);
        else if (sscanf(line, "ring %ld", &x) == 1) say(syscall(SYS_io_uring_setup, x, NULL) < 0 ? 0 : 1);
        else if (sscanf(line, "needs %4095s %4095s", a, b) == 2) say(needs(a, b));
        else if (sscanf(line, "byname %4095s", a) == 1) say(by_name(a));
        else if (sscanf(line, "reused %4095s %4095s", a, b) == 2) say(reused(a, b));
        else {
            sscanf(line, "%15s", verb);
            printf("? %s\n", verb);
        }
    }
    return 0;
}
