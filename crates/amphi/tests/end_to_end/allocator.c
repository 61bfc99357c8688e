/* A program with an allocator of its own, which asks for its options in its first call and under its lock, as
   jemalloc does. It makes a file. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int has_options;

static void look_for_options(void) {
    char options[64];
    pthread_mutex_lock(&lock);
    if (!has_options) {
        ssize_t bytes = readlink("/etc/malloc.conf", options, sizeof options);
        has_options = bytes < 0 ? -1 : 1;
    }
    pthread_mutex_unlock(&lock);
}

void *malloc(size_t bytes) {
    look_for_options();
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes) {
    look_for_options();
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes) {
    look_for_options();
    return __libc_realloc(old, bytes);
}

int main(int count, char **words) {
    int file = open(words[count - 1], O_CREAT | O_WRONLY, 0600);
    return file < 0 || write(file, "made", 4) != 4 || fsync(file) != 0 || close(file) != 0;
}
