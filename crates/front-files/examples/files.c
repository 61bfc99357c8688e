/* Appends a line to a file of a mount or of an image, durably, and shows the file. `files PLACE TEXT` */
#include <amphi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long check(const char *what, long answer) {
    if (answer < 0) {
        perror(what);
        exit(1);
    }
    return answer;
}

int main(int argc, char **argv) {
    struct stat place;
    if (argc < 3)
        return 2;
    check(argv[1], stat(argv[1], &place));
    amphi_fs *fs = S_ISDIR(place.st_mode) ? amphi_mounted(argv[1]) : amphi_image(argv[1], AMPHI_FREE);
    if (!fs) {
        fprintf(stderr, "%s\n", amphi_error());
        return 1;
    }
    int fd = check("open", amphi_open(fs, "/log", O_RDWR | O_CREAT | O_APPEND, 0644));
    check("write", amphi_write(fd, argv[2], strlen(argv[2])));
    check("write", amphi_write(fd, "\n", 1));
    check("fsync", amphi_fsync(fd));
    char data[4096];
    fwrite(data, 1, check("read", amphi_pread(fd, data, sizeof data, 0)), stdout);
    check("close", amphi_close(fd));
    return check("leave", amphi_leave(fs)) != 0;
}
