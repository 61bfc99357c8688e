// Signals in the middle of calls into a range: what a program may count on. The first argument says what is tried, the second is a file on the mount. It ends with 0 if all is so, else with the number of what is not.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long thread_base(void) {
    unsigned long base;
    __asm__ volatile("rdfsbase %0" : "=r"(base));
    return base;
}

// A system call that no library sees and nobody else makes: it marks what is counted.
static void mark(void) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_getppid) : "rcx", "r11", "memory");
}

static int opened(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    // The way into the range is found, and the file's first page is there.
    if (fd < 0 || pwrite(fd, "begun", 5, 0) != 5 || fsync(fd) != 0) exit(1);
    return fd;
}

// A thousand writes in a row, traced by the parent: how many system calls they make.
static int calls(const char *path) {
    pid_t child = fork();
    if (child == 0) {
        int fd = opened(path);
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        mark();
        for (int i = 0; i < 1000; i++)
            if (pwrite(fd, "again", 5, 0) != 5) _exit(2);
        mark();
        _exit(0);
    }
    int status, marks = 0, counted = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status)) return 3;
    ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
    for (;;) {
        ptrace(PTRACE_SYSCALL, child, NULL, NULL);
        if (waitpid(child, &status, 0) != child) return 4;
        if (WIFEXITED(status)) break;
        if (WIFSIGNALED(status)) return 5;
        if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
        long number = ptrace(PTRACE_PEEKUSER, child, (void *)(15L * 8), NULL);
        if (number == SYS_getppid) marks++;
        else if (marks == 2) counted++;
    }
    if (WEXITSTATUS(status) != 0) return WEXITSTATUS(status);
    printf("%d\n", counted);
    // Entering and leaving is one stop each. The file system may make some of its own.
    return marks == 4 && counted < 100 ? 0 : 6;
}

static unsigned long own_base;
static char *stack_top;
static volatile sig_atomic_t handled, elsewhere, wrong_info;
static void where_am_i(int signal, siginfo_t *info, void *context) {
    char here;
    (void)context;
    if (thread_base() != own_base || &here > stack_top || stack_top - &here > 1 << 20) elsewhere = 1;
    if (info->si_signo != signal || info->si_code != SI_TIMER || info->si_value.sival_int != 4711) wrong_info = 1;
    handled++;
}

// A handler runs with the program's own thread-locals and stack, and is told what came with its signal.
static int handlers(const char *path) {
    char top;
    int fd = opened(path);
    own_base = thread_base();
    stack_top = &top;
    struct sigaction action = {.sa_sigaction = where_am_i, .sa_flags = SA_SIGINFO | SA_RESTART}, was;
    sigaddset(&action.sa_mask, SIGUSR2);
    if (sigaction(SIGRTMIN, &action, NULL) != 0 || sigaction(SIGRTMIN, NULL, &was) != 0) return 2;
    if (was.sa_sigaction != where_am_i || !(was.sa_flags & SA_RESTART) || !sigismember(&was.sa_mask, SIGUSR2)) return 3;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 4711};
    struct itimerspec often = {{0, 50000}, {0, 50000}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &often, NULL) != 0) return 4;
    while (handled < 2000)
        if (pwrite(fd, "again", 5, 0) != 5 || fsync(fd) != 0) return 5;
    timer_delete(timer);
    sigset_t blocked;
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    for (int number = 1; number < 32; number++)
        if (sigismember(&blocked, number)) return 6;
    return elsewhere ? 7 : wrong_info ? 8 : 0;
}

static void count(int signal) {
    (void)signal;
    handled++;
}

static void *cancelled(void *fd) {
    for (;;) {
        if (pwrite((int)(long)fd, "again", 5, 0) != 5) return NULL;
        pthread_testcancel();
    }
}

// Everything that changes handlers, while a range is in use.
static int changes(const char *path) {
    int fd = opened(path);
    if (signal(SIGUSR1, count) != SIG_DFL || signal(SIGUSR1, count) != count) return 2;
    raise(SIGUSR1), raise(SIGUSR1);
    if (handled != 2) return 3;
    struct sigaction once = {.sa_handler = count, .sa_flags = SA_RESETHAND}, was;
    if (sigaction(SIGUSR1, &once, NULL) != 0) return 4;
    raise(SIGUSR1);
    if (handled != 3 || sigaction(SIGUSR1, NULL, &was) != 0 || was.sa_handler != SIG_DFL) return 5;
    if (signal(SIGUSR1, SIG_IGN) != SIG_DFL || raise(SIGUSR1) != 0 || signal(SIGUSR1, count) != SIG_IGN) return 6;
    errno = 0;
    if (sigaction(SIGKILL, &once, NULL) != -1 || errno != EINVAL || signal(0, count) != SIG_ERR) return 7;
    siginterrupt(SIGUSR1, 1);
    if (sigaction(SIGUSR1, NULL, &was) != 0 || was.sa_flags & SA_RESTART || was.sa_handler != count) return 8;
    // The child of a vfork has its parent's memory, but handlers of its own.
    pid_t child = vfork();
    if (child == 0) {
        signal(SIGUSR1, SIG_DFL);
        raise(SIGUSR1);
        _exit(0);
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGUSR1) return 9;
    raise(SIGUSR1);
    if (handled != 4) return 10;
    // A program that is started has no handlers, and ends of what ended this one.
    child = fork();
    if (child == 0) execl("/bin/sh", "sh", "-c", "kill -USR1 $$; exit 0", NULL);
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGUSR1) return 11;
    child = fork();
    if (child == 0) {
        pwrite(fd, "child", 5, 0);
        abort();
    }
    if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) return 12;
    // Handlers stay when the library is about to lose sight of them.
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, cancelled, (void *)(long)fd);
    usleep(1000);
    if (pthread_cancel(thread) != 0 || pthread_join(thread, &result) != 0 || result != PTHREAD_CANCELED) return 13;
    raise(SIGUSR1);
    if (handled != 5 || pwrite(fd, "after", 5, 0) != 5) return 14;
    return 0;
}

// Writes and makes durable for ever.
static int busy(const char *path) {
    int fd = opened(path);
    puts("busy"), fflush(stdout);
    for (;;)
        if (pwrite(fd, "again", 5, 0) != 5 || fsync(fd) != 0) return 2;
}

int main(int count, char **words) {
    if (count != 3) return 100;
    if (!strcmp(words[1], "calls")) return calls(words[2]);
    if (!strcmp(words[1], "handlers")) return handlers(words[2]);
    if (!strcmp(words[1], "changes")) return changes(words[2]);
    if (!strcmp(words[1], "busy")) return busy(words[2]);
    return 101;
}
