// Does things with paths at random and tells what each call answered. Run on two file systems with the same
// arguments it says the same twice. Arguments: a directory, a seed, how many calls.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

#include "told.h"

static int root_fd, dirs[3] = {-1, -1, -1};
static char rooms[4][9000];

static const char *path(void) {
    static int turn;
    char *at = rooms[turn = (turn + 1) % 4];
    at[0] = 0;
    if (draw(200) == 0) { memset(at, 'n', 256 - draw(2)); at[255] = 0; return at; }
    if (draw(300) == 0) { for (int i = 0; i < 2100; i++) strcpy(at + 2 * i, "./"); strcpy(at + 4200, "a"); return at; }
    if (draw(300) == 0) { for (int i = 0; i < 2040; i++) strcpy(at + 2 * i, "./"); strcpy(at + 4080, "a"); return at; }
    if (draw(200) == 0) return at;
    int deep = draw(4) == 0 ? 2 : draw(2);
    for (int i = 0; i < deep; i++) { static const char *in[] = {"d0/", "d1/", "d2/", "s0/", "s1/", "./", "../t/", "a/", "d0//"}; strcat(at, in[draw(9)]); }
    strcat(at, name_drawn());
    if (draw(20) == 0) strcat(at, "/");
    if (draw(40) == 0) strcat(at, "/.");
    if (draw(60) == 0) strcat(at, "/..");
    return at;
}

static int dir(void) {
    int of = draw(6);
    return of == 0 ? root_fd : of < 3 ? dirs[of - 1] : AT_FDCWD;
}

// Access lists: version 2; tag, bits, id.
static long list_of(char *to) {
    unsigned short *at = (unsigned short *)(to + 4);
    *(unsigned *)to = 2;
    int count = 0;
    #define ENTRY(tag, bits, id) (at[0] = tag, at[1] = bits, *(unsigned *)(at + 2) = id, at += 4, count++)
    ENTRY(1, draw(8), -1u);
    if (draw(2)) { ENTRY(2, draw(8), id_drawn(4)); ENTRY(4, draw(8), -1u); ENTRY(0x10, draw(8), -1u); } else ENTRY(4, draw(8), -1u);
    ENTRY(0x20, draw(8), -1u);
    return 4 + 8 * count;
}

static void step(void) {
    const char *one = path(), *two = path();
    struct stat st;
    char data[1000];
    long got;
    int fd, at = dir();
    switch (draw(38)) {
    case 0: case 1: case 2: case 3: case 4: {
        static const int modes[] = {O_RDONLY, O_WRONLY, O_RDWR};
        int flags = modes[draw(3)] | (draw(2) ? O_CREAT : 0) | (draw(8) ? 0 : O_EXCL) | (draw(5) ? 0 : O_TRUNC) | (draw(6) ? 0 : O_NOFOLLOW) | (draw(10) ? 0 : O_DIRECTORY) | (draw(6) ? 0 : O_APPEND);
        if (!(flags & O_CREAT)) flags &= ~O_EXCL;
        if (flags & O_CREAT) flags &= ~O_DIRECTORY;
        flags |= O_NONBLOCK;
        mode_t with = mode_drawn();
        fd = draw(2) ? open(one, flags, with) : openat(at, one, flags, with);
        tell_of("open", one, NULL, fd < 0 ? -1 : 0);
        if (fd < 0) return;
        got = fstat(fd, &st);
        tell_of("fstat", one, NULL, got < 0 ? got : known(&st));
        if (S_ISREG(st.st_mode)) {
            memset(data, 'a' + draw(26), sizeof data);
            if ((flags & O_ACCMODE) != O_RDONLY) tell_of("write", one, NULL, write(fd, data, draw(1000)));
            got = pread(fd, data, sizeof data, 0);
            tell_of("pread", one, NULL, got < 0 ? got : sum(data, got));
        }
        close(fd);
        return;
    }
    case 5: { mode_t with = mode_drawn(); tell_of("mkdir", one, NULL, draw(2) ? mkdir(one, with) : mkdirat(at, one, with)); return; }
    case 6: tell_of("rmdir", one, NULL, draw(2) ? rmdir(one) : unlinkat(at, one, AT_REMOVEDIR)); return;
    case 7: case 8: tell_of("unlink", one, NULL, draw(2) ? unlink(one) : unlinkat(at, one, 0)); return;
    case 9: case 10: tell_of("rename", one, two, draw(2) ? rename(one, two) : renameat(at, one, dir(), two)); return;
    case 11: tell_of("renameat2", one, two, renameat2(at, one, dir(), two, draw(2) ? RENAME_EXCHANGE : RENAME_NOREPLACE)); return;
    case 12: case 13: tell_of("link", one, two, draw(2) ? link(one, two) : linkat(at, one, dir(), two, draw(2) ? AT_SYMLINK_FOLLOW : 0)); return;
    case 14: { static const char *to[] = {"a", "d0", "../a", "d1/b", "s0", "s1", "../d1", "nothing", "d0/", "./d2/.."}; const char *target = to[draw(10)]; tell_of("symlink", target, one, draw(2) ? symlink(target, one) : symlinkat(target, at, one)); return; }
    case 15: got = draw(2) ? readlink(one, data, 100) : readlinkat(at, one, data, 3); tell_of("readlink", one, NULL, got < 0 ? got : sum(data, got)); return;
    case 16: got = stat(one, &st); tell_of("stat", one, NULL, got < 0 ? got : known(&st)); return;
    case 17: got = lstat(one, &st); tell_of("lstat", one, NULL, got < 0 ? got : known(&st)); return;
    case 18: got = fstatat(at, one, &st, draw(2) ? AT_SYMLINK_NOFOLLOW : draw(4) ? 0 : AT_EMPTY_PATH); tell_of("fstatat", one, NULL, got < 0 ? got : known(&st)); return;
    case 19: { struct statx x; got = statx(at, one, draw(2) ? AT_SYMLINK_NOFOLLOW : 0, STATX_BASIC_STATS, &x); tell_of("statx", one, NULL, got < 0 ? got : (long)x.stx_mode << 20 | x.stx_uid); return; }
    case 20: tell_of("access", one, NULL, draw(2) ? access(one, draw(8)) : faccessat(at, one, draw(8), draw(3) ? 0 : draw(2) ? AT_EACCESS : AT_SYMLINK_NOFOLLOW)); return;
    case 21: case 22: { mode_t with = mode_drawn(); tell_of("chmod", one, NULL, draw(2) ? chmod(one, with) : fchmodat(at, one, with, 0)); return; }
    case 23: { unsigned uid = id_drawn(5), gid = id_drawn(5); int how = draw(3); tell_of("chown", one, NULL, how == 0 ? chown(one, uid, gid) : how == 1 ? lchown(one, uid, gid) : fchownat(at, one, uid, gid, draw(2) ? AT_SYMLINK_NOFOLLOW : 0)); return; }
    case 24: {
        struct timespec times[2] = {{draw(100000), draw(1000000000)}, {draw(100000), draw(3) ? draw(1000000000) : draw(2) ? UTIME_OMIT : UTIME_NOW}};
        int how = draw(4);
        got = how == 0 ? utimensat(at, one, times, 0) : how == 1 ? utimensat(at, one, times, AT_SYMLINK_NOFOLLOW) : how == 2 ? utimensat(at, one, NULL, 0) : utime(one, NULL);
        tell_of("utimes", one, NULL, got);
        if (got == 0 && how == 0 && fstatat(at, one, &st, 0) == 0) tell_of("mtime", one, NULL, st.st_mtim.tv_sec < 200000 ? st.st_mtim.tv_nsec + st.st_mtim.tv_sec : 0);
        return;
    }
    case 25: tell_of("truncate", one, NULL, truncate(one, draw(3000))); return;
    case 26: { mode_t with = mode_drawn(); tell_of("mknod", one, NULL, draw(2) ? mknod(one, S_IFREG | with, 0) : mkfifoat(at, one, with)); return; }
    case 27: tell_of("setxattr", one, NULL, draw(2) ? setxattr(one, "user.x", "value", draw(6), draw(3)) : lsetxattr(one, "user.y", "v", 1, 0)); return;
    case 28: got = draw(2) ? getxattr(one, "user.x", data, draw(8)) : lgetxattr(one, "user.y", data, 100); tell_of("getxattr", one, NULL, got); return;
    case 29: tell_of("removexattr", one, NULL, draw(2) ? removexattr(one, "user.x") : lremovexattr(one, "user.y")); return;
    case 30: got = draw(2) ? listxattr(one, data, sizeof data) : llistxattr(one, NULL, 0); tell_of("listxattr", one, NULL, got); return;
    case 31: { char list[100]; got = list_of(list); const char *which = draw(2) ? "system.posix_acl_access" : "system.posix_acl_default"; tell_of("setacl", one, which + 17, setxattr(one, which, list, got, 0)); return; }
    case 32: { const char *which = draw(2) ? "system.posix_acl_access" : "system.posix_acl_default"; got = getxattr(one, which, data, sizeof data); tell_of("getacl", one, which + 17, got < 0 ? got : sum(data, got)); return; }
    case 33: {
        DIR *open = opendir(one);
        if (!open) { tell_of("opendir", one, NULL, -1); return; }
        long seen = 0;
        for (struct dirent *entry; (entry = readdir(open));) seen += sum(entry->d_name, strlen(entry->d_name)) % 100000 + entry->d_type;
        closedir(open);
        tell_of("lists", one, NULL, seen);
        return;
    }
    case 34: if (draw(3)) { tell_of("chdir", one, NULL, chdir(one)); } else { tell_of("fchdir", "", NULL, fchdir(root_fd)); } return;
    case 35: { int which = draw(2); if (dirs[which] >= 0) close(dirs[which]); dirs[which] = open(one, O_RDONLY | O_DIRECTORY | (draw(3) ? 0 : O_PATH)); tell_of("opens", one, NULL, dirs[which] < 0 ? -1 : 0); return; }
    case 36: umask(draw(3) ? 022 : draw(2) ? 0 : 077); return;
    default: { char here[5000]; char *was = getcwd(here, sizeof here); char *tail = was ? strstr(was, "/t") : NULL; while (tail && strstr(tail + 1, "/t")) tail = strstr(tail + 1, "/t"); tell_of("getcwd", tail ? tail : "", NULL, was ? 0 : -1); return; }
    }
}

int main(int count, char **words) {
    if (count != 4 || chdir(words[1])) return 2;
    begin(words[2]);
    umask(022);
    root_fd = open(".", O_RDONLY | O_DIRECTORY);
    long calls = strtol(words[3], NULL, 10);
    for (call = 0; call < calls; call++) step();
    return 0;
}
