/* Stores one byte into each of COUNT lines of 64 bytes of page PAGE of a mapped file, `msync`: `mapped FILE PAGE COUNT VALUE`. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)
#define PAGE_BYTES 4096
#define LINE_BYTES 64

int main(int count, char **arguments) {
    CHECK(count == 5);
    int fd = open(arguments[1], O_RDWR);
    CHECK(fd >= 0);
    off_t offset = (off_t)atoi(arguments[2]) * PAGE_BYTES;
    char *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
    CHECK(page != MAP_FAILED);
    for (int line = 0; line < atoi(arguments[3]); line++)
        page[line * LINE_BYTES] = (char)atoi(arguments[4]);
    CHECK(msync(page, PAGE_BYTES, MS_SYNC) == 0);
    return 0;
}
