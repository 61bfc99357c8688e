/* Calls every function of amphi.h on an empty directory of a mount or an image, and asserts what came of it.
 * `calls PLACE` */
#undef NDEBUG
#define _GNU_SOURCE
#include <amphi.h>
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define FAILS(call, why) (assert((call) == -1), assert(errno == (why)))
enum { THREADS = 40, LINES = 50, LARGE = 5 << 20 };

static amphi_fs *fs;
static int shared;

static void *append(void *line) {
    for (int number = 0; number < LINES; number++)
        assert(amphi_write(shared, line, 8) == 8);
    return NULL;
}

static void descriptors(void) {
    char data[64] = {0};
    struct stat attributes;
    int fd = amphi_open(fs, "/d/f", O_RDWR | O_CREAT | O_EXCL, 0640);
    assert(fd >= 1 << 30);
    FAILS(write(fd, "x", 1), EBADF);
    FAILS(amphi_open(fs, "d/f", O_RDWR | O_CREAT | O_EXCL, 0640), EEXIST);
    FAILS(amphi_open(fs, "d/none", O_RDONLY, 0), ENOENT);
    FAILS(amphi_open(fs, "d/f", O_RDONLY | O_DIRECTORY, 0), ENOTDIR);
    assert(amphi_write(fd, "0123456789", 10) == 10);
    assert(amphi_lseek(fd, 0, SEEK_CUR) == 10 && amphi_lseek(fd, -3, SEEK_END) == 7);
    assert(amphi_read(fd, data, sizeof data) == 3 && !memcmp(data, "789", 3));
    assert(amphi_pwrite(fd, "ab", 2, 4) == 2 && amphi_pread(fd, data, 4, 3) == 4);
    assert(!memcmp(data, "3ab6", 4) && amphi_read(fd, data, 1) == 0);
    FAILS(amphi_pread(fd, data, 1, -1), EINVAL);
    FAILS(amphi_pread(fd, NULL, 1, 0), EFAULT);
    assert(!amphi_fsync(fd) && !amphi_fdatasync(fd) && !amphi_ftruncate(fd, 8192));
    assert(!amphi_fallocate(fd, 0, 8192, 4096) && !amphi_fstat(fd, &attributes));
    assert(attributes.st_size == 12288 && attributes.st_nlink == 1);
    assert(attributes.st_mode == (S_IFREG | 0640) && attributes.st_uid == geteuid());
    FAILS(amphi_lseek(fd, 12288, SEEK_DATA), ENXIO);
    int copy = amphi_open(fs, "d/copy", O_WRONLY | O_CREAT, 0600);
    off_t from = 2, to = 1;
    assert(amphi_copy_file_range(fd, &from, copy, &to, 4, 0) == 4 && from == 6 && to == 5);
    FAILS(amphi_read(copy, data, 1), EBADF);
    assert(!amphi_close(copy) && !amphi_close(fd));
    FAILS(amphi_close(fd), EBADF);
    FAILS(amphi_fsync(3), EBADF);

    /* More than one command moves. */
    char *large = malloc(LARGE), *back = malloc(LARGE);
    for (int at = 0; at < LARGE; at++)
        large[at] = (char)(at >> 10 ^ at);
    fd = amphi_open(fs, "d/f", O_RDWR | O_TRUNC, 0);
    assert(amphi_pwrite(fd, large, LARGE, 100) == LARGE && amphi_pread(fd, back, LARGE, 100) == LARGE);
    assert(!memcmp(large, back, LARGE) && amphi_pread(fd, back, LARGE, LARGE) == 100);
    assert(!amphi_close(fd));
    free(large);
    free(back);

    /* A file without a name. */
    fd = amphi_open(fs, "d", O_TMPFILE | O_RDWR, 0600);
    assert(fd > 0 && !amphi_fstat(fd, &attributes) && attributes.st_nlink == 0 && !amphi_close(fd));
}

static void threads(void) {
    pthread_t thread[THREADS];
    char lines[THREADS][9], *all = malloc(THREADS * LINES * 8);
    shared = amphi_open(fs, "d/lines", O_RDWR | O_CREAT | O_APPEND, 0600);
    for (int number = 0; number < THREADS; number++) {
        sprintf(lines[number], "%07d\n", number);
        assert(!pthread_create(&thread[number], NULL, append, lines[number]));
    }
    for (int number = 0; number < THREADS; number++)
        assert(!pthread_join(thread[number], NULL));
    int seen[THREADS] = {0};
    assert(amphi_pread(shared, all, THREADS * LINES * 8, 0) == THREADS * LINES * 8);
    for (int line = 0; line < THREADS * LINES; line++)
        seen[atoi(all + line * 8)]++;
    for (int number = 0; number < THREADS; number++)
        assert(seen[number] == LINES);
    assert(!amphi_close(shared));
    free(all);
}

static void names(void) {
    char text[256];
    struct stat attributes;
    struct timespec times[2] = {{7, 5}, {0, UTIME_OMIT}};
    assert(!amphi_symlink(fs, "copy", "d/s") && amphi_readlink(fs, "d/s", text, 2) == 2);
    assert(amphi_readlink(fs, "d/s", text, sizeof text) == 4 && !memcmp(text, "copy", 4));
    assert(!amphi_lstat(fs, "d/s", &attributes) && S_ISLNK(attributes.st_mode));
    assert(!amphi_stat(fs, "d/s", &attributes) && attributes.st_size == 5);
    assert(!amphi_link(fs, "d/copy", "d/l") && !amphi_rename(fs, "d/l", "d/m"));
    assert(!amphi_truncate(fs, "d/m", 3) && !amphi_chmod(fs, "d/m", 0604) && !amphi_utimens(fs, "d/m", times));
    assert(!amphi_lchown(fs, "d/m", geteuid(), -1) && !amphi_stat(fs, "d/copy", &attributes));
    assert(attributes.st_size == 3 && attributes.st_nlink == 2 && attributes.st_mode == (S_IFREG | 0604));
    assert(attributes.st_atim.tv_sec == 7 && attributes.st_atim.tv_nsec == 5);
    assert(!amphi_access(fs, "d/m", R_OK));
    FAILS(amphi_access(fs, "d/none", F_OK), ENOENT);
    assert(!amphi_symlink(fs, "/etc", "d/out"));
    FAILS(amphi_stat(fs, "d/out/passwd", &attributes), EXDEV);
    FAILS(amphi_stat(fs, "..", &attributes), EXDEV);
    FAILS(amphi_stat(fs, "", &attributes), ENOENT);
    assert(!amphi_setxattr(fs, "d/m", "user.a", "value", 5, XATTR_CREATE));
    FAILS(amphi_setxattr(fs, "d/m", "user.a", "value", 5, XATTR_CREATE), EEXIST);
    assert(amphi_getxattr(fs, "d/m", "user.a", NULL, 0) == 5);
    FAILS(amphi_getxattr(fs, "d/m", "user.a", text, 4), ERANGE);
    assert(amphi_getxattr(fs, "d/m", "user.a", text, 9) == 5 && !memcmp(text, "value", 5));
    assert(amphi_listxattr(fs, "d/m", text, sizeof text) == 7 && !strcmp(text, "user.a"));
    assert(!amphi_removexattr(fs, "d/m", "user.a"));
    FAILS(amphi_getxattr(fs, "d/m", "user.a", text, 9), ENODATA);
}

/* Removes what `d` holds: how many. */
static int empty(void) {
    char path[300];
    int found = 0, dots = 0;
    amphi_dir *dir = amphi_opendir(fs, "d");
    for (struct dirent *entry; (entry = amphi_readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) {
            dots++;
            continue;
        }
        found++;
        snprintf(path, sizeof path, "d/%s", entry->d_name);
        assert(entry->d_type == DT_REG || entry->d_type == DT_LNK);
        assert(!amphi_unlink(fs, path));
    }
    assert(!amphi_closedir(dir) && dots == 2);
    return found;
}

/* A child has the parent's memory, and nothing that it could do harm with. */
static void child(void) {
    int status, fd = amphi_open(fs, "d/f", O_RDWR | O_CREAT, 0600);
    pid_t pid = fork();
    if (!pid) {
        FAILS(amphi_write(fd, "x", 1), EBADF);
        FAILS(amphi_unlink(fs, "d/f"), EBADF);
        assert(!amphi_close(fd)); /* the number, not the parent's file */
        exit(0);
    }
    assert(waitpid(pid, &status, 0) == pid && status == 0);
    assert(amphi_write(fd, "x", 1) == 1 && !amphi_close(fd));
}

int main(int argc, char **argv) {
    struct stat place;
    struct statvfs space;
    assert(argc == 2 && !stat(argv[1], &place));
    assert(!amphi_mounted("/") && strstr(amphi_error(), "mount"));
    assert(!amphi_image("/dev/null", 2) && errno == EINVAL);
    fs = S_ISDIR(place.st_mode) ? amphi_mounted(argv[1]) : amphi_image(argv[1], AMPHI_FREE);
    if (!fs)
        fprintf(stderr, "%s\n", amphi_error());
    assert(fs && !amphi_mkdir(fs, "/d", 0700));
    FAILS(amphi_mkdir(fs, "/d/", 0700), EEXIST);
    descriptors();
    threads();
    names();
    FAILS(amphi_rmdir(fs, "d"), ENOTEMPTY);
    child();
    int fd = amphi_open(fs, "d/f", O_RDONLY, 0);
    FAILS(amphi_leave(fs), EBUSY);
    assert(!amphi_close(fd) && empty() == 6 && !amphi_rmdir(fs, "d"));
    assert(!amphi_statvfs(fs, &space) && space.f_bfree > 0 && space.f_namemax == 255);
    assert(!amphi_sync(fs) && !amphi_leave(fs));
    puts("all");
    return 0;
}
