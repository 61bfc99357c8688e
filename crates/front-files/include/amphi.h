/* Files of an Amphi file system, for programs that link to libamphifiles. No call goes through the kernel.
 *
 * A file system is reached by the queue of a mount's daemon (amphi_mounted), beside which everybody else uses
 * the mount, or in an image that this process opens and has to itself (amphi_image).
 *
 * The functions have the shapes and the answers of POSIX's of the same name without `amphi_`: -1, or NULL,
 * and errno where they fail. They differ in this:
 * - Paths begin at the file system's root, with a slash or without. One that leads out of it by a symbolic
 *   link or by `..` is EXDEV.
 * - Permission bits of what is made are as given: no umask is applied.
 * - Descriptors are numbers of this library's own. The kernel answers EBADF to them.
 * - A child of fork() must open its own file system; with the parent's it gets EBADF.
 * - A mount whose daemon has ended answers ENOTCONN.
 *
 * Threads may share everything but an amphi_dir. Link with: pkg-config --cflags --libs amphi */
#ifndef AMPHI_H
#define AMPHI_H

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <time.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct amphi_fs amphi_fs;
typedef struct amphi_dir amphi_dir;

enum {
    AMPHI_FREE = 1 /* amphi_image: no device times */
};

/* The file system mounted at `directory`, a mount's root. */
amphi_fs *amphi_mounted(const char *directory);

/* The file system on `image`: EBUSY while another process has it. A crash before is recovered from. */
amphi_fs *amphi_image(const char *image, int flags);

/* Makes everything durable and gives the mount or the image back. EBUSY while a file or a directory of it is
 * open; after any other answer `fs` is gone. */
int amphi_leave(amphi_fs *fs);

/* Why the calling thread's last amphi_mounted or amphi_image failed, in a sentence. */
const char *amphi_error(void);

/* Makes everything durable. */
int amphi_sync(const amphi_fs *fs);
int amphi_statvfs(const amphi_fs *fs, struct statvfs *space);

/* Open files. `mode` counts where a file is made. One amphi_write of up to 1016 KiB is one operation of the
 * file system, also to append. */
int amphi_open(const amphi_fs *fs, const char *path, int flags, mode_t mode);
int amphi_close(int fd);
ssize_t amphi_read(int fd, void *data, size_t len);
ssize_t amphi_write(int fd, const void *data, size_t len);
ssize_t amphi_pread(int fd, void *data, size_t len, off_t offset);
ssize_t amphi_pwrite(int fd, const void *data, size_t len, off_t offset);
off_t amphi_lseek(int fd, off_t offset, int whence);
int amphi_fsync(int fd);
int amphi_fdatasync(int fd);
int amphi_ftruncate(int fd, off_t bytes);
int amphi_fallocate(int fd, int mode, off_t offset, off_t length);
int amphi_fstat(int fd, struct stat *attributes);
ssize_t amphi_copy_file_range(int from, off_t *from_at, int to, off_t *to_at, size_t len, unsigned flags);

/* Paths. */
int amphi_stat(const amphi_fs *fs, const char *path, struct stat *attributes);
int amphi_lstat(const amphi_fs *fs, const char *path, struct stat *attributes);
int amphi_access(const amphi_fs *fs, const char *path, int mode);
int amphi_unlink(const amphi_fs *fs, const char *path);
int amphi_rename(const amphi_fs *fs, const char *from, const char *to);
int amphi_mkdir(const amphi_fs *fs, const char *path, mode_t mode);
int amphi_rmdir(const amphi_fs *fs, const char *path);
int amphi_link(const amphi_fs *fs, const char *from, const char *to);
int amphi_symlink(const amphi_fs *fs, const char *target, const char *path);
ssize_t amphi_readlink(const amphi_fs *fs, const char *path, char *target, size_t len);
int amphi_truncate(const amphi_fs *fs, const char *path, off_t bytes);
int amphi_chmod(const amphi_fs *fs, const char *path, mode_t mode);
int amphi_lchown(const amphi_fs *fs, const char *path, uid_t uid, gid_t gid);
int amphi_utimens(const amphi_fs *fs, const char *path, const struct timespec times[2]);

/* Extended attributes. */
ssize_t amphi_getxattr(const amphi_fs *fs, const char *path, const char *name, void *value, size_t len);
int amphi_setxattr(const amphi_fs *fs, const char *path, const char *name, const void *value, size_t len,
                   int flags);
ssize_t amphi_listxattr(const amphi_fs *fs, const char *path, char *names, size_t len);
int amphi_removexattr(const amphi_fs *fs, const char *path, const char *name);

/* Directories. An entry is valid until the next call with its directory. */
amphi_dir *amphi_opendir(const amphi_fs *fs, const char *path);
struct dirent *amphi_readdir(amphi_dir *dir);
int amphi_closedir(amphi_dir *dir);

#ifdef __cplusplus
}
#endif

#endif
