// Several threads do things with files at random, each in a directory of its own, and tell what each call
// answered. Run on two file systems with the same arguments each thread says the same twice. Arguments: a
// directory, a seed, how many calls each thread makes.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "told.h"

extern char **environ;

enum { THREADS = 5, OPEN = 6 };

static const char *root, *seed;
static long calls;

static __thread int thread, open_files[OPEN];
static __thread char data[70000];

// Begins with the thread's number, by which the lines of all are put in order.
static void tell(const char *what, long result) {
    int failed = errno;
    char line[200];
    int len = snprintf(line, sizeof line, "%d %ld %s: %ld", thread, call, what, result);
    tell_line(line, len, sizeof line, result, failed);
}

static const char *path(void) {
    static __thread char rooms[4][300];
    static __thread int turn;
    char *at = rooms[turn = (turn + 1) % 4];
    static const char *in[] = {"", "", "", "d0/", "d1/"};
    const char *directory = in[draw(5)];
    snprintf(at, 300, "%s/t%d/%sf%d", root, thread, directory, draw(5));
    return at;
}

static void close_at(int slot) {
    if (open_files[slot] >= 0) close(open_files[slot]);
    open_files[slot] = -1;
}

// Bytes that are the same again, as long as drawn.
static long filled(long most) {
    long len = draw(most);
    memset(data, draw(256), len);
    return len;
}

static void tell_read(const char *what, long got) {
    tell(what, got);
    if (got > 0) tell("of which", sum(data, got));
}

static int by_name(const struct dirent **one, const struct dirent **two) { return strcmp((*one)->d_name, (*two)->d_name); }

static void list(void) {
    char at[300];
    struct dirent **names;
    static const char *in[] = {"", "d0", "d1"};
    snprintf(at, sizeof at, "%s/t%d/%s", root, thread, in[draw(3)]);
    int count = scandir(at, &names, NULL, by_name);
    tell("list", count);
    for (int i = 0; i < count; i++) {
        tell("a name", sum(names[i]->d_name, strlen(names[i]->d_name)));
        free(names[i]);
    }
    if (count >= 0) free(names);
}

// A child of a program with threads works on what it has inherited, and on a file of its own.
static void fork_with(int fd) {
    const char *at = path();
    long from = draw(9000);
    pid_t child = fork();
    if (child == 0) {
        long got = pread(fd, data, 4096, from);
        int said = got > 0 ? sum(data, got) & 31 : 1, own = open(at, O_RDWR | O_CREAT, 0600);
        if (own >= 0) said ^= (write(own, data, 100) > 0) << 6, close(own);
        said ^= (write(fd, "child", 5) == 5) << 5;
        _exit(said);
    }
    int status = 0;
    waitpid(child, &status, 0);
    tell("fork", status);
}

static void spawn(void) {
    char *words[] = {"cat", (char *)path(), NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t child;
    int status = 0, failed = posix_spawnp(&child, "cat", &actions, NULL, words, environ);
    if (!failed) waitpid(child, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    tell("spawn", failed ? failed : status);
}

static void open_at(int slot) {
    static const int flags[] = {O_RDWR, O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_APPEND, O_RDONLY, O_RDWR | O_CREAT | O_TRUNC, O_RDWR | O_CREAT | O_EXCL};
    close_at(slot);
    open_files[slot] = open(path(), flags[draw(6)], 0640);
    tell("open", open_files[slot] >= 0 ? 0 : -1);
}

static void with_stdio(void) {
    FILE *file = fopen(path(), draw(2) ? "r" : "a+");
    if (!file) { tell("fopen", -1); return; }
    if (draw(2)) fprintf(file, "line %ld\n", call);
    rewind(file);
    long got = fread(data, 1, 20000, file);
    fclose(file);
    tell_read("fread", got);
}

// Calls on a file that is open.
static void use(int fd) {
    struct stat st;
    switch (draw(16)) {
    case 0: case 1: tell("write", write(fd, data, filled(9000))); break;
    case 2: case 3: { long len = filled(9000); tell("pwrite", pwrite(fd, data, len, draw(40000))); break; }
    case 4: case 5: tell_read("read", read(fd, data, draw(60000))); break;
    case 6: case 7: { long len = draw(60000); tell_read("pread", pread(fd, data, len, draw(30000))); break; }
    case 8: { long to = draw(50000); tell("lseek", lseek(fd, to, draw(3))); break; }
    case 9: tell("ftruncate", ftruncate(fd, draw(50000))); break;
    case 10: tell("fstat", fstat(fd, &st)); tell("size", st.st_size); break;
    case 11: tell("fsync", draw(2) ? fsync(fd) : fdatasync(fd)); break;
    case 12: {
        struct iovec parts[3];
        for (int i = 0; i < 3; i++) parts[i] = (struct iovec){data + 9000 * i, draw(3000)};
        tell("vectors", draw(2) ? writev(fd, parts, 3) : readv(fd, parts, 3));
        break;
    }
    case 13: {
        static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE};
        long at = draw(30000), len = 1 + draw(9000);
        tell("fallocate", fallocate(fd, modes[draw(3)], at, len));
        break;
    }
    case 14: {
        if (fstat(fd, &st) || st.st_size < 4096) break;
        char *mapped = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        tell("mmap", mapped == MAP_FAILED ? -1 : sum(mapped, 4096));
        if (mapped != MAP_FAILED) munmap(mapped, 4096);
        break;
    }
    default: tell("flock", flock(fd, LOCK_EX | LOCK_NB)); flock(fd, LOCK_UN); break;
    }
}

static void step(void) {
    struct stat st;
    int slot = draw(OPEN), other = draw(OPEN), fd = open_files[slot];
    switch (draw(32)) {
    case 0: case 1: case 2: open_at(slot); break;
    case 3: { long got = stat(path(), &st); tell("stat", got ? got : st.st_size); break; }
    case 4: tell("unlink", unlink(path())); break;
    case 5: { const char *from = path(); tell("rename", rename(from, path())); break; }
    case 6: { const char *from = path(); tell("link", link(from, path())); break; }
    case 7: tell("truncate", truncate(path(), draw(20000))); break;
    case 8: list(); break;
    case 9: with_stdio(); break;
    case 10: if (draw(4) == 0) spawn(); break;
    case 11: if (draw(4) == 0 && fd >= 0) fork_with(fd); break;
    case 12: close_at(slot); break;
    case 13: if (fd >= 0 && other != slot) close_at(other), open_files[other] = dup(fd); break;
    case 14: {
        off_t from = draw(9000), to = draw(9000);
        if (fd >= 0 && open_files[other] >= 0) tell("copy", copy_file_range(fd, &from, open_files[other], &to, draw(9000), 0));
        break;
    }
    default: if (fd >= 0) use(fd); break;
    }
}

static void *work(void *number) {
    char at[300];
    thread = (long)number;
    begin(seed);
    state += 77777 * thread;
    for (int i = 0; i < OPEN; i++) open_files[i] = -1;
    static const char *made[] = {"", "d0", "d1"};
    for (int i = 0; i < 3; i++) snprintf(at, sizeof at, "%s/t%d/%s", root, thread, made[i]), mkdir(at, 0755);
    for (call = 0; call < calls; call++) step();
    for (int i = 0; i < OPEN; i++) close_at(i);
    return NULL;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    root = words[1], seed = words[2], calls = atol(words[3]);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
