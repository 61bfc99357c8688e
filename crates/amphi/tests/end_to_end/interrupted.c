// A signal comes where the library asks the clock for the first time, and its handler writes to the mount too.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const char *second;
static volatile sig_atomic_t armed, written;

static int put(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
    int done = fd >= 0 && write(fd, "made", 4) == 4 && fsync(fd) == 0;
    return close(fd) == 0 && done;
}

static void in_handler(int signal) {
    (void)signal;
    written = put(second);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (armed) {
        armed = 0;
        raise(SIGUSR1);
    }
    return syscall(SYS_clock_gettime, clock, time);
}

int main(int count, char **words) {
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_RESTART};
    if (count != 3 || sigaction(SIGUSR1, &action, NULL) < 0) return 2;
    second = words[2];
    armed = 1;
    return put(words[1]) && written && !armed ? 0 : 1;
}
