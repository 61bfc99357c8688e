// Does file calls that it is told on its standard input, one a line, and says what came of each: the accelerated half of `accelerated.rs`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int fds[16];
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
    // A sum that tells orders apart.
    unsigned long sum = 0;
    for (long i = 0; i < len; i++) sum = sum * 31 + (unsigned char)buffer[i];
    printf("%ld %lu\n", len, sum);
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
        else if (sscanf(line, "threads %ld", &x) == 1) say(threads(fds[x]));
        else if (sscanf(line, "reused %4095s %4095s", a, b) == 2) say(reused(a, b));
        else {
            sscanf(line, "%15s", verb);
            printf("? %s\n", verb);
        }
    }
    return 0;
}
