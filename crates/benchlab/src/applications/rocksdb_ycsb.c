// YCSB's core workloads on RocksDB, over its C interface, as `crates/benchlab/src/ycsb` runs them on the
// stand-in: the same keys, mixes, distributions and sizes, RocksDB's defaults but for buffers, files and
// levels, which are scaled as the stand-in's are. One client; each write synced. It loads, writes the
// word `begin` to standard output, and does the operations, so that whoever traces its system calls can
// tell the two apart. Usage: ycsb DATABASE a-f RECORDS OPERATIONS BUFFER_BYTES CACHE_BYTES
#include <math.h>
#include <rocksdb/c.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THETA 0.99
#define SCRAMBLED 10000000000.0
#define VALUE 1000

static uint64_t chance = 1;

static uint64_t next(void) {
    uint64_t mixed = (chance += 0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

static double unit(void) {
    return (double)(next() >> 11) / 9007199254740992.0;
}

// FNV-1a over the bytes of a number.
static uint64_t spread(uint64_t number) {
    uint64_t hash = 0xcbf29ce484222325;
    for (int byte = 0; byte < 8; byte++) {
        hash = (hash ^ ((number >> (8 * byte)) & 0xff)) * 0x100000001b3;
    }
    return hash;
}

// The sum of i^-THETA, the first thousand terms one by one, the others by Euler and Maclaurin.
static double zeta(double n) {
    double sum = 0;
    for (int i = 1; i <= 1000 && i <= n; i++) {
        sum += pow(i, -THETA);
    }
    if (n > 1000) {
        sum += (pow(n, 1 - THETA) - pow(1000, 1 - THETA)) / (1 - THETA);
        sum += (pow(n, -THETA) - pow(1000, -THETA)) / 2;
    }
    return sum;
}

// A rank, 0 the most popular, by the method of Gray et al.
static uint64_t zipfian(double items, double sum) {
    double two = 1 + pow(0.5, THETA), u = unit(), mass = u * sum;
    double eta = (1 - pow(2 / items, 1 - THETA)) / (1 - two / sum);
    if (mass < 1) {
        return 0;
    }
    return mass < two ? 1 : (uint64_t)fmin(items * pow(eta * u - eta + 1, 1 / (1 - THETA)), items - 1);
}

static void fail(char *error) {
    if (error != NULL) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
}

static rocksdb_t *database;

static size_t name(uint64_t record, char *key) {
    return (size_t)sprintf(key, "user%019llu", (unsigned long long)(spread(record) >> 1));
}

static void put(const rocksdb_writeoptions_t *how, uint64_t record) {
    static uint64_t value[VALUE / 8];
    char key[32], *error = NULL;
    for (int at = 0; at < VALUE / 8; at++) {
        value[at] = next();
    }
    rocksdb_put(database, how, key, name(record, key), (char *)value, VALUE, &error);
    fail(error);
}

static void get(const rocksdb_readoptions_t *how, uint64_t record) {
    char key[32], *error = NULL;
    size_t length;
    char *found = rocksdb_get(database, how, key, name(record, key), &length, &error);
    fail(error != NULL ? error : found == NULL ? "a record is lost" : NULL);
    rocksdb_free(found);
}

// Waits until nothing is flushed or merged any more, which the stand-in does before a write returns.
static void settle(void) {
    static const char *const PROPERTIES[] = {
        "rocksdb.mem-table-flush-pending",
        "rocksdb.compaction-pending",
        "rocksdb.num-running-flushes",
        "rocksdb.num-running-compactions",
    };
    for (int calm = 0; calm < 5;) {
        uint64_t busy = 0, value = 0;
        for (int at = 0; at < 4; at++) {
            rocksdb_property_int(database, PROPERTIES[at], &value);
            busy += value;
        }
        calm = busy == 0 ? calm + 1 : 0;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

int main(int argc, char **argv) {
    if (argc != 7) {
        fprintf(stderr, "usage: ycsb DATABASE a-f RECORDS OPERATIONS BUFFER_BYTES CACHE_BYTES\n");
        return 2;
    }
    char workload = argv[2][0];
    uint64_t records = strtoull(argv[3], NULL, 10), operations = strtoull(argv[4], NULL, 10);
    uint64_t buffer = strtoull(argv[5], NULL, 10), cache = strtoull(argv[6], NULL, 10);
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_write_buffer_size(options, buffer);
    rocksdb_options_set_target_file_size_base(options, buffer);
    rocksdb_options_set_max_bytes_for_level_base(options, 4 * buffer);
    rocksdb_block_based_table_options_t *tables = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(tables, rocksdb_cache_create_lru(cache));
    rocksdb_options_set_block_based_table_factory(options, tables);
    char *error = NULL;
    database = rocksdb_open(options, argv[1], &error);
    fail(error);
    rocksdb_writeoptions_t *loading = rocksdb_writeoptions_create(), *synced = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(synced, 1);
    rocksdb_readoptions_t *reading = rocksdb_readoptions_create();
    for (uint64_t record = 0; record < records; record++) {
        put(loading, record);
    }
    rocksdb_flush_wal(database, 1, &error);
    fail(error);
    settle();
    if (write(1, "begin\n", 6) != 6) {
        return 1;
    }
    unsigned writes = workload == 'a' || workload == 'f' ? 50 : workload == 'c' ? 0 : 5;
    int inserts = workload == 'd' || workload == 'e';
    uint64_t there = records, upper = records + (inserts ? 2 * operations / 20 : 0);
    double scrambled = zeta(SCRAMBLED);
    for (uint64_t number = 0; number < operations; number++) {
        int is_write = next() % 100 < writes;
        if (is_write && inserts) {
            put(synced, there++);
            continue;
        }
        uint64_t record;
        if (workload == 'd') {
            record = there - 1 - zipfian((double)there, zeta((double)there));
        } else {
            do {
                record = spread(zipfian(SCRAMBLED, scrambled)) % upper;
            } while (record >= there);
        }
        if (workload == 'e') {
            char key[32];
            rocksdb_iterator_t *iterator = rocksdb_create_iterator(database, reading);
            rocksdb_iter_seek(iterator, key, name(record, key));
            for (uint64_t left = 1 + next() % 100; left > 0 && rocksdb_iter_valid(iterator); left--) {
                rocksdb_iter_next(iterator);
            }
            rocksdb_iter_destroy(iterator);
            continue;
        }
        get(reading, record);
        if (is_write) {
            if (workload == 'f') {
                get(reading, record);
            }
            put(synced, record);
        }
    }
    settle();
    rocksdb_close(database);
    return 0;
}
