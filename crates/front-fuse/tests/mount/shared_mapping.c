/* What SQLite's WAL index needs: two processes map one file, and see each other's stores and writes at once. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
#define LENGTH (1 << 16)

static volatile char *map(int fd, int protection, int flags) {
    void *address = mmap(NULL, LENGTH, protection, flags, fd, 0);
    CHECK(address != MAP_FAILED);
    return address;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    int fd = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && ftruncate(fd, LENGTH) == 0);
    volatile char *shared = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    shared[0] = 'a';
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int own = open(arguments[1], O_RDWR);
        volatile char *seen = map(own, PROT_READ | PROT_WRITE, MAP_SHARED);
        CHECK(seen[0] == 'a');
        seen[1] = 'b';
        seen[40000] = 'c';
        CHECK(msync((void *)seen, LENGTH, MS_SYNC) == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(shared[1] == 'b' && shared[40000] == 'c');
    char byte;
    CHECK(pread(fd, &byte, 1, 40000) == 1 && byte == 'c');
    CHECK(pwrite(fd, "d", 1, 40001) == 1 && shared[40001] == 'd');
    volatile char *private = map(fd, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    private[2] = 'p';
    CHECK(shared[2] == 0 && private[1] == 'b');
    shared[3] = 'e';
    CHECK(msync((void *)shared, LENGTH, MS_SYNC) == 0 && fsync(fd) == 0);
    CHECK(munmap((void *)shared, LENGTH) == 0 && close(fd) == 0);
    CHECK(posix_fadvise(fd = open(arguments[1], O_RDONLY | O_DIRECT), 0, 0, POSIX_FADV_DONTNEED) == 0);
    char *block = aligned_alloc(4096, LENGTH);
    CHECK(block && read(fd, block, LENGTH) == LENGTH);
    CHECK(block[0] == 'a' && block[1] == 'b' && block[2] == 0 && block[3] == 'e' && block[40000] == 'c');
    return 0;
}
