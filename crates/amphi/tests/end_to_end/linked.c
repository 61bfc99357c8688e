// Does things at random by the calls of amphi.h, or without AMPHI by those of POSIX, and tells what each
// answered: the same twice. Arguments: an image, a mount or a directory; a seed; how many calls.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include "told.h"
#ifdef AMPHI
#include "amphi.h"
static amphi_fs *fs;
#define P(name, path, ...) amphi_##name(fs, path, ##__VA_ARGS__)
#define F(name, ...) amphi_##name(__VA_ARGS__)
#define DIRT amphi_dir
static int set_times(const char *p, const struct timespec t[2]) { return amphi_utimens(fs, p, t); }
#define NAMED2(name, a, b) amphi_##name(fs, a, b)
#else
#define P(name, path, ...) name(path, ##__VA_ARGS__)
#define F(name, ...) name(__VA_ARGS__)
#define DIRT DIR
static int set_times(const char *p, const struct timespec t[2]) { return utimensat(AT_FDCWD, p, t, 0); }
#define NAMED2(name, a, b) name(a, b)
#endif
static char rooms[4][9000];
static const char *path(void) {
    static int turn;
    char *at = rooms[turn = (turn + 1) % 4];
    at[0] = 0;
    if (draw(200) == 0) { memset(at, 'n', 256 - draw(2)); at[255] = 0; return at; }
    int deep = draw(4) == 0 ? 2 : draw(2);
    for (int i = 0; i < deep; i++) { static const char *in[] = {"d0/", "d1/", "d2/", "s0/", "s1/", "./", "./d1/", "a/", "d0//"}; strcat(at, in[draw(9)]); }
    strcat(at, name_drawn());
    if (draw(20) == 0) strcat(at, "/");
    if (draw(40) == 0) strcat(at, "/.");
    return at;
}
// Links in sticky directories that all may write follow a setting of the kernel's.
static mode_t mode(void) {
    mode_t drawn = mode_drawn();
    return drawn == 01777 ? 01755 : drawn;
}
static int fds[6] = {-1, -1, -1, -1, -1, -1};
static char data[40000];
static void step(void) {
    const char *one = path(), *two = path();
    struct stat st;
    long got, at, len;
    int slot = draw(6), to = draw(6), fd = fds[slot];
    switch (draw(40)) {
    case 0: case 1: case 2: case 3: case 4: case 5: {
        static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDWR};
        int flags = modes[draw(4)] | (draw(2) ? O_CREAT : 0) | (draw(8) ? 0 : O_EXCL) | (draw(5) ? 0 : O_TRUNC) | (draw(6) ? 0 : O_NOFOLLOW) | (draw(6) ? 0 : O_APPEND);
        if (!(flags & O_CREAT)) flags &= ~O_EXCL;
        mode_t with = mode();
        int opened = P(open, one, flags, with);
        tell_of("open", one, NULL, opened < 0 ? -1 : 0);
        if (opened < 0) return;
        if (fds[slot] >= 0) tell_of("close", "", NULL, F(close, fds[slot]));
        fds[slot] = opened;
        return;
    }
    case 6: if (fd >= 0 && draw(3) == 0) { tell_of("close", "", NULL, F(close, fd)); fds[slot] = -1; } return;
    case 7: case 8: len = draw(3) ? draw(500) : draw(9000); memset(data, 'a' + draw(26), len); tell_of("write", "", NULL, F(write, fd, data, len)); return;
    case 9: len = draw(5000), at = draw(20000); memset(data, 'a' + draw(26), len); tell_of("pwrite", "", NULL, F(pwrite, fd, data, len, at)); return;
    case 10: case 11: len = draw(9000); got = F(read, fd, data, len); tell_of("read", "", NULL, got < 0 ? got : sum(data, got)); return;
    case 12: len = draw(9000), at = draw(20000); got = F(pread, fd, data, len, at); tell_of("pread", "", NULL, got < 0 ? got : sum(data, got)); return;
    case 13: case 14: { if (F(fstat, fd, &st) || !S_ISREG(st.st_mode)) return; static const int whence[] = {SEEK_SET, SEEK_CUR, SEEK_END}; int w = draw(3); at = (long)draw(20000) - (w ? 9000 : 0); tell_of("lseek", "", NULL, F(lseek, fd, at, whence[w])); return; }
    case 15: at = (long)draw(20000) - (draw(20) == 0 ? 20000 : 0); tell_of("ftruncate", "", NULL, F(ftruncate, fd, at)); return;
    case 16: { static const int how[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0x40000}; int h = how[draw(40) ? draw(3) : 3]; at = draw(20000), len = draw(9000); tell_of("fallocate", "", NULL, F(fallocate, fd, h, at, len)); return; }
    case 17: got = F(fstat, fd, &st); tell_of("fstat", "", NULL, got < 0 ? got : known(&st)); if (got == 0 && !S_ISDIR(st.st_mode)) tell_of("size", "", NULL, st.st_size); return;
    case 18: { off_t f = draw(20000), t = draw(20000); int w = draw(4); len = draw(9000); tell_of("copy", "", NULL, F(copy_file_range, fd, w & 1 ? &f : NULL, fds[to], w & 2 ? &t : NULL, len, 0)); return; }
    case 19: tell_of("fsync", "", NULL, draw(2) ? F(fsync, fd) : F(fdatasync, fd)); return;
    case 20: { mode_t with = mode(); tell_of("mkdir", one, NULL, P(mkdir, one, with)); return; }
    case 21: tell_of("rmdir", one, NULL, P(rmdir, one)); return;
    case 22: case 23: tell_of("unlink", one, NULL, P(unlink, one)); return;
    case 24: case 25: tell_of("rename", one, two, NAMED2(rename, one, two)); return;
    case 26: tell_of("link", one, two, NAMED2(link, one, two)); return;
    case 27: { static const char *t[] = {"a", "d0", "d1/b", "s0", "s1", "nothing", "d0/", "./d2"}; const char *target = t[draw(8)]; tell_of("symlink", target, one, NAMED2(symlink, target, one)); return; }
    case 28: len = draw(20); got = P(readlink, one, data, len); tell_of("readlink", one, NULL, got < 0 ? got : sum(data, got)); return;
    case 29: got = P(stat, one, &st); tell_of("stat", one, NULL, got < 0 ? got : known(&st)); return;
    case 30: got = P(lstat, one, &st); tell_of("lstat", one, NULL, got < 0 ? got : known(&st)); return;
    case 31: tell_of("access", one, NULL, P(access, one, draw(8))); return;
    case 32: { mode_t with = mode(); tell_of("chmod", one, NULL, P(chmod, one, with)); return; }
    case 33: { unsigned uid = id_drawn(5), gid = id_drawn(5); tell_of("lchown", one, NULL, P(lchown, one, uid, gid)); return; }
    case 34: at = (long)draw(3000) - (draw(20) == 0 ? 3000 : 0); tell_of("truncate", one, NULL, P(truncate, one, at)); return;
    case 35: {
        struct timespec times[2] = {{draw(100000), draw(1000000000)}, {draw(100000), draw(3) ? draw(1000000000) : draw(2) ? UTIME_OMIT : draw(2) ? UTIME_NOW : 1000000007}};
        got = set_times(one, times); tell_of("utimens", one, NULL, got);
        if (got == 0 && P(stat, one, &st) == 0) tell_of("mtime", one, NULL, st.st_mtim.tv_sec < 200000 ? st.st_mtim.tv_nsec + st.st_mtim.tv_sec : 0);
        return;
    }
    case 36: len = draw(6); tell_of("setxattr", one, NULL, P(setxattr, one, "user.x", "value", len, draw(3))); return;
    case 37: len = draw(8); got = P(getxattr, one, "user.x", data, len); tell_of("getxattr", one, NULL, got < 0 ? got : sum(data, len ? got : 0)); return;
    case 38: if (draw(2)) tell_of("removexattr", one, NULL, P(removexattr, one, "user.x")); else { got = P(listxattr, one, data, draw(2) ? 0 : 100); tell_of("listxattr", one, NULL, got); } return;
    default: {
        DIRT *open = P(opendir, one);
        if (!open) { tell_of("opendir", one, NULL, -1); return; }
        long seen = 0;
        for (struct dirent *entry; (entry = F(readdir, open));) seen += sum(entry->d_name, strlen(entry->d_name)) % 100000 + entry->d_type;
        F(closedir, open);
        tell_of("lists", one, NULL, seen);
    }
    }
}
int main(int count, char **words) {
    if (count != 4) return 2;
#ifdef AMPHI
    struct stat st0;
    fs = stat(words[1], &st0) == 0 && S_ISDIR(st0.st_mode) ? amphi_mounted(words[1]) : amphi_image(words[1], AMPHI_FREE);
    if (!fs) { fprintf(stderr, "%s\n", amphi_error()); return 3; }
#else
    if (chdir(words[1])) return 2;
#endif
    begin(words[2]);
    umask(0);
    long calls = strtol(words[3], NULL, 10);
    for (call = 0; call < calls; call++) step();
#ifdef AMPHI
    for (int i = 0; i < 6; i++) if (fds[i] >= 0) amphi_close(fds[i]);
    return amphi_leave(fs) == 0 ? 0 : 4;
#endif
    return 0;
}
