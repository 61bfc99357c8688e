/* What an NFS server does: keeps a file's handle, lets the kernel forget the file, and opens it by the handle. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #what, errno); exit(1); } } while (0)

static void forget(const char *root) {
    /* A remount drops what is cached of names and, with them, inodes. */
    CHECK(mount(NULL, root, NULL, MS_REMOUNT, NULL) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    const char *root = arguments[1], *path = arguments[2];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0 && write(fd, "by handle", 9) == 9 && close(fd) == 0);
    struct { struct file_handle head; unsigned char bytes[MAX_HANDLE_SZ]; } handle = { .head.handle_bytes = MAX_HANDLE_SZ };
    int mount_id;
    CHECK(name_to_handle_at(AT_FDCWD, path, &handle.head, &mount_id, 0) == 0);
    forget(root);
    int directory = open(root, O_RDONLY | O_DIRECTORY);
    CHECK(directory >= 0);
    fd = open_by_handle_at(directory, &handle.head, O_RDONLY);
    char text[10] = "";
    CHECK(fd >= 0 && read(fd, text, 9) == 9 && strcmp(text, "by handle") == 0);
    CHECK(close(fd) == 0 && unlink(path) == 0);
    CHECK(close(directory) == 0);
    forget(root);
    directory = open(root, O_RDONLY | O_DIRECTORY);
    CHECK(open_by_handle_at(directory, &handle.head, O_RDONLY) == -1 && errno == ESTALE);
    return 0;
}
