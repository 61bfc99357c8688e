// Uses streams of files and of directories at random and tells what each call answered. Run on two file systems
// with the same arguments it says the same twice. Arguments: a directory, a seed, how many calls.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/wait.h>

#include "told.h"

enum { SLOTS = 4, KEPT = 30, NAMES = 40 };
static FILE *files[SLOTS];
static DIR *dirs[SLOTS];
static int appends[SLOTS];
static char data[40000], line[300];
static long walked;

static void tell(const char *what, long one, long two, long three) {
    int failed = errno;
    int len = snprintf(line, sizeof line, "%ld %s %ld %ld: %ld", call, what, one, two, three);
    tell_line(line, len, sizeof line, three, failed);
}

static const char *path(void) {
    static char rooms[2][100];
    static int turn;
    char *at = rooms[turn ^= 1];
    snprintf(at, sizeof rooms[0], "%s%s", draw(2) ? "" : draw(2) ? "d0/" : "d1/", name_drawn());
    return at;
}

// Of names, what does not depend on their order.
static long weighed(const char *name) { return sum(name, strlen(name)) % 1000003; }

static int walk(const char *path, const struct stat *st, int kind, struct FTW *at) {
    walked += weighed(path) + kind + at->level + (S_ISREG(st->st_mode) ? st->st_size : 0);
    return 0;
}

static long rest(DIR *dir) {
    long all = 0;
    for (struct dirent *entry; (entry = readdir(dir));) all += weighed(entry->d_name) + entry->d_type;
    return all;
}

// Lists a directory whose names come and go meanwhile: of those that stay, each is there once.
static void lists_what_changes(int slot, DIR *dir) {
    int seen[NAMES] = {0}, listed = 0, at = dirfd(dir);
    char name[20];
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "k%d", i);
        close(openat(at, name, O_CREAT | O_RDWR, 0600));
    }
    rewinddir(dir);
    for (struct dirent *entry; listed < 500 && (entry = readdir(dir)); listed++) {
        if (entry->d_name[0] == 'k') seen[atoi(entry->d_name + 1)]++;
        if (listed % 7 != 6) continue;
        snprintf(name, sizeof name, "t%d", listed);
        if (listed % 2) mkdirat(at, name, 0700);
        snprintf(name, sizeof name, "k%d", KEPT + listed % (NAMES - KEPT));
        unlinkat(at, name, 0);
    }
    long wrong = 0;
    for (int i = 0; i < NAMES; i++) wrong += i < KEPT ? seen[i] != 1 : seen[i] > 1;
    tell("lists what changes", slot, 0, wrong);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "%c%d", i < NAMES ? 'k' : 't', i < NAMES ? i : i - NAMES);
        unlinkat(at, name, i < NAMES ? 0 : AT_REMOVEDIR);
    }
    rewinddir(dir);
}

static void of_directories(int slot, DIR *dir) {
    static const char *which[] = {".", ".", "d0", "d1"};
    const char *one = which[draw(4)];
    long got = draw(5), all, place;
    int fd;
    struct dirent **list;
    switch (draw(13)) {
    case 0: case 1:
        if (dir) tell("closedir", slot, 0, closedir(dir));
        tell_of("opendir", one, NULL, (dirs[slot] = opendir(one)) ? 0 : -1);
        return;
    case 2:
        if (dir) closedir(dir);
        fd = open(one, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && draw(2)) close(fcntl(fd, F_DUPFD_CLOEXEC, 0));
        tell_of("fdopendir", one, NULL, (dirs[slot] = fd < 0 ? NULL : fdopendir(fd)) ? 0 : -1);
        return;
    case 3: for (all = 0; all < 500; all++) { snprintf(line, sizeof line, "d0/w%ld", all); if (draw(4) == 0) close(open(line, O_CREAT | O_WRONLY, 0600)); else unlink(line); } return;
    case 4: { int n = scandir(one, &list, NULL, alphasort); for (all = 0, got = n; n > 0; all = (all * 31 + weighed(list[n]->d_name)) % 1000000007, free(list[n])) n--; if (got >= 0) free(list); tell("scandir", got, 0, all); return; }
    case 5: walked = 0; got = nftw(".", walk, 3, FTW_PHYS | (draw(2) ? FTW_DEPTH : 0)); tell("nftw", got, 0, walked); return;
    case 6: tell_of("rmdir", "d1", NULL, rmdir("d1")); tell_of("mkdir", "d1", NULL, mkdir("d1", 0755)); return;
    default: break;
    }
    if (!dir) return;
    switch (draw(7)) {
    case 0: case 1: lists_what_changes(slot, dir); return;
    case 2: case 3: rewinddir(dir); tell("readdir", slot, 0, rest(dir)); tell("at the end", slot, 0, rest(dir)); return;
    case 4:
        rewinddir(dir);
        for (; got > 0 && readdir(dir); got--) {}
        place = telldir(dir), all = rest(dir), seekdir(dir, place);
        tell("seekdir", slot, 0, rest(dir) == all);
        return;
    case 5: {
        struct dirent *entry;
        rewinddir(dir);
        for (all = 0; got > 0 && (entry = readdir(dir)); got--) all += weighed(entry->d_name) + entry->d_type;
        pid_t child = fork();
        if (child == 0) _exit((all + rest(dir)) % 251);
        int status = -1;
        waitpid(child, &status, 0);
        tell("a child lists the rest", slot, 0, WEXITSTATUS(status));
        rewinddir(dir);
        return;
    }
    default: fd = openat(dirfd(dir), name_drawn(), O_RDWR | O_CREAT, 0644); tell("openat", slot, 0, fd < 0 ? -1 : 0); close(fd); return;
    }
}

static void of_files(int slot, FILE *file) {
    static const char *modes[] = {"r", "w", "a", "r+", "w+", "a+", "wx", "r+e"};
    const char *one = path(), *two = path();
    long len = draw(3) ? draw(500) : draw(sizeof data), got;
    struct stat st;
    switch (draw(12)) {
    case 0: case 1: case 2:
        if (file) tell("fclose", slot, 0, fclose(file));
        got = draw(8), appends[slot] = modes[got][0] == 'a';
        tell_of("fopen", one, modes[got], (files[slot] = fopen(one, modes[got])) ? 0 : -1);
        return;
    case 3: tell_of("unlink", one, NULL, unlink(one)); return;
    case 4: tell_of("rename", one, two, rename(one, two)); return;
    case 5: got = stat(one, &st); tell_of("stat", one, NULL, got < 0 ? got : known(&st)); return;
    default: break;
    }
    if (!file || fstat(fileno(file), &st) || !S_ISREG(st.st_mode)) return;
    switch (draw(5)) {
    case 0: case 1: fseeko(file, 0, SEEK_CUR), memset(data, 'a' + draw(26), len), tell("fwrite", slot, len, fwrite(data, 1, len, file)); tell("fflush", slot, 0, fflush(file)); return;
    case 2: case 3: fseeko(file, draw(900), SEEK_SET), got = fread(data, 1, len, file), tell("fread", slot, got, sum(data, got)), clearerr(file); return;
    // Where a stream that appends is, is said to nobody but by what it appends.
    default: if (!appends[slot]) { fflush(file), tell("ftruncate", slot, len, ftruncate(fileno(file), len)), tell("ftell", slot, 0, ftello(file)); } return;
    }
}

int main(int count, char **words) {
    if (count != 4 || chdir(words[1])) return 2;
    begin(words[2]);
    mkdir("d0", 0755), mkdir("d1", 0755);
    long calls = strtol(words[3], NULL, 10);
    for (call = 0; call < calls; call++) {
        int slot = draw(SLOTS);
        if (draw(2)) of_directories(slot, dirs[slot]); else of_files(slot, files[slot]);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (files[i]) tell("fclose", i, 0, fclose(files[i]));
        if (dirs[i]) tell("closedir", i, 0, closedir(dirs[i]));
    }
    walked = 0, nftw(".", walk, 3, FTW_PHYS), tell("in the end", 0, 0, walked);
    return 0;
}
