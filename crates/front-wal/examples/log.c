/* Shows what a log holds, adds two records to it, and commits them. `log IMAGE FILE [crash]` */
#include <amphi_wal.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int64_t check(int64_t answer) {
    if (answer < 0) {
        fprintf(stderr, "%s\n", amphi_wal_error());
        _exit(1);
    }
    return answer;
}

int main(int argc, char **argv) {
    amphi_wal *log;
    check(amphi_wal_open(argv[1], argv[2], 1 << 20, AMPHI_WAL_BA | AMPHI_WAL_FREE, &log));
    const void *data;
    size_t len;
    uint64_t sequence;
    while (check(amphi_wal_next(log, &data, &len, &sequence)))
        printf("%" PRIu64 ": %.*s\n", sequence, (int)len, (const char *)data);
    check(amphi_wal_append(log, "set a = 1", 9));
    check(amphi_wal_append(log, "set b = 2", 9));
    check(amphi_wal_commit(log));
    printf("durable: %" PRId64 "\n", check(amphi_wal_durable(log)));
    fflush(stdout);
    if (argc > 3)
        _exit(0); /* as a crash would end it */
    return check(amphi_wal_close(log)) != 0;
}
