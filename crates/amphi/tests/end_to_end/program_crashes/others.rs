//! The same programs on the other file systems of the house: git and RocksDB once each, which between them
//! make, rename and remove much; the others with `--long`.

use super::{Place, build, git, postgres, redis, rocksdb, sqlite, survive_on};

macro_rules! on {
    ($make:ident: $($name:ident),*) => {$(
        mod $name {
            use super::{Place, build, git, postgres, redis, rocksdb, sqlite, survive_on};

            const PLACE: Place = Place {
                mkfs: &["--fs", stringify!($name)],
                options: &[],
                iterations: [1, 10],
                crashes: 2,
                fewer: 1,
            };
            const LONG: Place = Place { iterations: [0, 10], ..PLACE };

            #[test]
            fn sqlite() {
                survive_on(LONG, sqlite::$make);
            }

            #[test]
            fn rocksdb() {
                survive_on(PLACE, rocksdb::make);
            }

            #[test]
            fn redis() {
                survive_on(LONG, redis::make);
            }

            #[test]
            fn postgres() {
                survive_on(LONG, postgres::make);
            }

            #[test]
            fn git() {
                survive_on(PLACE, git::$make);
            }

            #[test]
            fn build() {
                survive_on(LONG, build::make);
            }
        }
    )*};
}

on!(make: augefs, devfs, novalike, pmfslike, romefs);
on!(make_syncing_names: ext4like, f2fslike);
