// What LevelDB's own benchmark does as `fillsync`, over its C interface: keys of 16 bytes in random order, values of 100 bytes, each write synced
// or, as its `fillrandom`, none.
// Usage: fillsync DATABASE WRITES synced|unsynced
#include <leveldb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: fillsync DATABASE WRITES synced|unsynced\n");
        return 2;
    }
    long writes = atol(argv[2]);
    char *error = NULL;
    leveldb_options_t *options = leveldb_options_create();
    leveldb_options_set_create_if_missing(options, 1);
    leveldb_options_set_compression(options, leveldb_no_compression);
    leveldb_t *database = leveldb_open(options, argv[1], &error);
    leveldb_writeoptions_t *synced = leveldb_writeoptions_create();
    leveldb_writeoptions_set_sync(synced, strcmp(argv[3], "synced") == 0);
    unsigned long chance = 301;
    char key[32], value[100];
    double begin = seconds();
    for (long number = 0; number < writes && error == NULL; number++) {
        chance = chance * 6364136223846793005UL + 1442695040888963407UL;
        snprintf(key, sizeof key, "%016lu", (chance >> 33) % (unsigned long)writes);
        for (unsigned at = 0; at < sizeof value; at++) {
            value[at] = (char)(chance >> (at % 57));
        }
        leveldb_put(database, synced, key, 16, value, sizeof value, &error);
    }
    double took = seconds() - begin;
    if (error != NULL) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    leveldb_close(database);
    printf("%.1f ops/sec\n", (double)writes / took);
    return 0;
}
