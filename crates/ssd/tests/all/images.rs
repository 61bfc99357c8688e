//! Images as files: they last, they are one process's at a time, a kill leaves a whole device, and a damaged
//! one is refused by name.

use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use amphi_device::{BlockPort, BytePort, BytePortExt, Lpa, Structure, TxId, WriteLog};
use amphi_ssd::{ImageError, OpenOptions, Profile, Shutdown, Ssd};

const TAG: Structure = Structure::Other;

fn free() -> OpenOptions {
    OpenOptions { free: true, ..OpenOptions::default() }
}

fn small() -> Profile {
    let mut profile = Profile::named("mssd-pcie3").expect("built in");
    profile.flash.channels = 2;
    profile.flash.ways = 2;
    profile.flash.pages_per_block = 16;
    profile.log.region_bytes = 256 << 10;
    profile.log.txlog_bytes = 4096;
    profile
}

fn image(dir: &tempfile::TempDir) -> PathBuf {
    let path = dir.path().join("ssd.img");
    Ssd::create(&path, &small(), 8 << 20).expect("created");
    path
}

fn tx(number: u32) -> Option<TxId> {
    TxId::new(number)
}

fn read(ssd: &Ssd, page: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    ssd.read(Lpa(page), &mut bytes, TAG).expect("reads");
    bytes
}

#[test]
fn contents_and_counters_last() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = image(&dir);
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    {
        let ssd = Ssd::open(&path, &free()).expect("opens");
        assert_eq!(ssd.info().last_shutdown, Shutdown::New);
        ssd.write(Lpa(1), &[1; 4096], TAG).expect("writes");
        ssd.persist(Lpa(1).byte(100), &[2; 50], None, TAG).expect("persists");
        ssd.persist(Lpa(2).byte(0), &[3; 64], tx(1), TAG).expect("persists");
        ssd.commit(TxId::new(1).expect("one")).expect("commits");
        ssd.persist(Lpa(2).byte(64), &[4; 64], tx(2), TAG).expect("persists");
    }
    let (info, stats) = Ssd::inspect(&path).expect("whole");
    assert_eq!((info.last_shutdown, info.power_ups), (Shutdown::Clean, 1));
    assert_eq!((stats.commits, stats.byte_write.bytes(), stats.block_write.bytes()), (1, 178, 4096));
    let ssd = Ssd::open(&path, &free()).expect("opens");
    assert_eq!(ssd.info().last_shutdown, Shutdown::Clean);
    let report = ssd.recover().expect("recovers");
    assert_eq!((report.entries_scanned, report.entries_dropped, report.transactions), (3, 1, 1));
    let page = read(&ssd, 1);
    assert_eq!((page[99], &page[100..150], page[150]), (1, &[2; 50][..], 1));
    let page = read(&ssd, 2);
    assert_eq!((&page[..64], &page[64..128]), (&[3; 64][..], &[0; 64][..]), "the open transaction is gone");
    assert_eq!(ssd.stats().commits, 1);
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden").join(name)
}

/// Version 1 kept its mapping outside the flash, and no release wrote it.
#[test]
fn the_first_version_is_refused_by_its_number() {
    let refused = Ssd::open(&golden("ssd-v1.img"), &free()).expect_err("another version");
    assert_eq!(refused, ImageError::Version { found: 1, supported: 2 });
    assert!(refused.to_string().contains("amphi mkfs"), "{refused}");
}

/// `golden/ssd-v2.img` was written by the first program that wrote version 2; every later one reads it.
#[test]
fn the_golden_image_stays_readable() {
    let golden = golden("ssd-v2.img");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("golden.img");
    if std::env::var("AMPHI_WRITE_GOLDEN").is_ok() {
        write_golden(&golden);
    }
    std::fs::copy(&golden, &path).expect("copied");
    let ssd = Ssd::open(&path, &free()).expect("opens");
    assert_eq!(ssd.info().capacity_bytes, 256 << 10);
    let report = ssd.recover().expect("recovers");
    assert_eq!((report.entries_scanned, report.entries_dropped, report.transactions), (4, 1, 1));
    for page in 0..8 {
        let mut expected = vec![page as u8 + 1; 4096];
        match page {
            3 => expected[10..30].fill(0xaa),
            4 => expected[64..128].fill(0xbb),
            5 => expected.fill(0),
            6 => expected[..100].fill(0xcc),
            _ => {}
        }
        assert_eq!(read(&ssd, page), expected, "page {page}");
    }
}

/// Eight pages, the sixth trimmed; a lone store, a committed one, an open one, and one over the trimmed
/// page's neighbour.
fn write_golden(path: &Path) {
    let mut profile = small();
    profile.name = "golden".to_owned();
    profile.flash.pages_per_block = 4;
    profile.flash.ways = 1;
    profile.log.region_bytes = 64 << 10;
    profile.log.partition_bytes = 64 << 10;
    Ssd::create(path, &profile, 256 << 10).expect("created");
    let ssd = Ssd::open(path, &free()).expect("opens");
    for page in 0..8 {
        ssd.write(Lpa(page), &[page as u8 + 1; 4096], TAG).expect("writes");
    }
    ssd.persist(Lpa(3).byte(10), &[0xaa; 20], None, TAG).expect("persists");
    ssd.persist(Lpa(4).byte(64), &[0xbb; 64], tx(1), TAG).expect("persists");
    ssd.commit(TxId::new(1).expect("one")).expect("commits");
    ssd.persist(Lpa(7).byte(0), &[0xdd; 64], tx(2), TAG).expect("persists");
    ssd.persist(Lpa(6).byte(0), &[0xcc; 100], None, TAG).expect("persists");
    ssd.trim(Lpa(5), 1).expect("trims");
}

#[test]
fn an_image_is_sparse_and_belongs_to_one_process() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("big.img");
    let profile = Profile::named("mssd-pcie3").expect("built in");
    Ssd::create(&path, &profile, 1 << 40).expect("created");
    let refused = Ssd::create(&path, &profile, 1 << 20).expect_err("it exists");
    assert!(matches!(refused, ImageError::Exists { .. }), "{refused}");
    let ssd = Ssd::open(&path, &free()).expect("opens");
    let refused = Ssd::open(&path, &free()).expect_err("in use");
    assert!(matches!(refused, ImageError::InUse { .. }), "{refused}");
    Ssd::inspect(&path).expect("looking is allowed");
    for page in 0..256 {
        ssd.write(Lpa(page * 1_000_003), &[page as u8; 4096], TAG).expect("writes");
    }
    assert_eq!(read(&ssd, 200 * 1_000_003)[0], 200);
    drop(ssd);
    let disk = std::fs::metadata(&path).expect("there").blocks() * 512;
    assert!(disk < 100 << 20, "1 MB in a 1 TB device takes {disk} bytes");
}

#[test]
fn damaged_images_are_refused_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = image(&dir);
    let damage = |at: u64, bytes: &[u8]| {
        let copy = dir.path().join("damaged.img");
        std::fs::copy(&path, &copy).expect("copied");
        let file = std::fs::OpenOptions::new().write(true).open(&copy).expect("opens");
        file.write_all_at(bytes, at).expect("damaged");
        drop(file);
        Ssd::open(&copy, &free())
    };
    let message = |outcome: Result<Ssd, ImageError>| outcome.expect_err("refused").to_string();
    // One copy of the header is enough; both are not.
    damage(40, &[0xff; 8]).expect("the second header serves");
    let both = [[0xff; 4096], [0xff; 4096]].concat();
    assert!(message(damage(0, &both)).contains("not an Amphi image"));
    let file = std::fs::File::open(&path).expect("opens");
    let mut header = [0; 8192];
    file.read_exact_at(&mut header, 0).expect("reads");
    for copy in [0, 4096] {
        header[copy + 8] = 9;
    }
    assert!(message(damage(0, &header)).contains("version 9"));
    for copy in [0, 4096] {
        header[copy + 8] = 2;
        header[copy + 40] ^= 1;
    }
    assert!(message(damage(0, &header)).contains("header fails its checksum"));
    assert!(message(damage(4 * 4096 + 5, b"?")).contains("profile fails its checksum"));
    // Control words: the tail of a log region, the transaction log's head, the shutdown mark.
    assert!(message(damage(2 * 4096 + 16, &u64::MAX.to_le_bytes())).contains("log region 0"));
    assert!(message(damage(2 * 4096 + 56, &7_u64.to_le_bytes())).contains("transaction log"));
    assert!(message(damage(2 * 4096 + 80, &77_u64.to_le_bytes())).contains("shutdown mark"));
    assert!(message(damage(2 * 4096 + 96, &5000_u64.to_le_bytes())).contains("trim log"));
    assert!(message(damage(2 * 4096 + 104, &5000_u64.to_le_bytes())).contains("mapping checkpoint"));
    let short = dir.path().join("short.img");
    std::fs::copy(&path, &short).expect("copied");
    std::fs::OpenOptions::new().write(true).open(&short).expect("opens").set_len(1 << 20).expect("cut");
    assert!(message(Ssd::open(&short, &free())).contains("truncated"));
    std::fs::write(&short, b"").expect("emptied");
    assert!(message(Ssd::open(&short, &free())).contains("not an Amphi image"));
    assert!(message(Ssd::open(&dir.path().join("none"), &free())).contains("cannot open"));
}

/// Random bytes over everything but the header: the device may refuse to open or to read, but it answers.
#[test]
fn no_damage_makes_the_device_panic_or_hang() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = image(&dir);
    {
        let ssd = Ssd::open(&path, &free()).expect("opens");
        for page in 0..200 {
            ssd.write(Lpa(page), &[page as u8; 4096], TAG).expect("writes");
            ssd.persist(Lpa(page).byte(64), &[1; 40], tx(page as u32 / 8 + 1), TAG).expect("persists");
            if page % 16 == 7 {
                ssd.commit(TxId::new(page as u32 / 8 + 1).expect("not zero")).expect("commits");
            }
        }
    }
    let whole = std::fs::read(&path).expect("reads");
    let copy = dir.path().join("damaged.img");
    let mut state = 1_u64;
    let mut random = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) as usize) % bound
    };
    let mut refused = 0;
    for _ in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..1 + random(300) {
            // Mostly where structures are, not in the flash at the end.
            let region = [16 * 1024, whole.len() / 4, whole.len()][random(3)];
            let at = 8192 + random(region - 8192 - 8);
            let value = [0, 0xff, random(256) as u8][random(3)];
            let length = 1 + random(8);
            bytes[at..at + length].fill(value);
        }
        std::fs::write(&copy, &bytes).expect("written");
        let Ok(ssd) = Ssd::open(&copy, &free()) else {
            refused += 1;
            continue;
        };
        // Errors are fine; panics and endless loops are not.
        let _ = ssd.recover();
        let mut page = [0; 4096];
        for lpa in 0..2048 {
            let _ = ssd.read(Lpa(lpa), &mut page, TAG);
            if lpa % 3 == 0 {
                let _ = ssd.write(Lpa(lpa), &page, TAG);
            }
            let _ = ssd.load(Lpa(lpa).byte(60), &mut page[..8], TAG);
        }
        let _ = ssd.clean_log();
    }
    assert!((1..60).contains(&refused), "{refused} of 60 were refused");
}

/// The child of [`a_killed_process_leaves_a_whole_device`]: writes for ever, saying on its standard output
/// what is durable.
fn write_until_killed(path: &Path) {
    use std::io::Write;
    let ssd = Ssd::open(path, &free()).expect("opens");
    ssd.recover().expect("recovers");
    let mut out = std::io::stdout();
    for round in 1_u32.. {
        // One transaction over two pages, and one block write.
        let value = round.to_le_bytes();
        let tx = TxId::new(round).expect("not zero");
        for page in [1, 2] {
            let at = Lpa(page).byte((round as usize % 60) * 64);
            ssd.persist(at, &value, Some(tx), TAG).expect("persists");
        }
        ssd.commit(tx).expect("commits");
        ssd.write(Lpa(10 + u64::from(round % 500)), &[round as u8; 4096], TAG).expect("writes");
        writeln!(out, "@{round}").expect("the parent listens");
        out.flush().expect("the parent listens");
    }
}

#[test]
fn a_killed_process_leaves_a_whole_device() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};
    if let Ok(path) = std::env::var("AMPHI_WRITE_UNTIL_KILLED") {
        write_until_killed(Path::new(&path));
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let path = image(&dir);
    for kill in 0..25_usize {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["images::a_killed_process_leaves_a_whole_device", "--exact", "--nocapture"])
            .env("AMPHI_WRITE_UNTIL_KILLED", &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let mut acknowledged = 0;
        for line in lines.by_ref() {
            if let Some((_, number)) = line.expect("text").rsplit_once('@') {
                acknowledged = number.parse().expect("a round");
                if acknowledged as usize > 50 + kill * 137 {
                    break;
                }
            }
        }
        child.kill().expect("killed");
        for line in lines.map_while(Result::ok) {
            if let Some((_, number)) = line.rsplit_once('@') {
                acknowledged = number.parse().unwrap_or(acknowledged);
            }
        }
        child.wait().expect("reaped");
        let ssd = Ssd::open(&path, &free()).expect("a whole device");
        assert_eq!(ssd.info().last_shutdown, Shutdown::InUse);
        ssd.recover().expect("recovers");
        let (first, second) = (read(&ssd, 1), read(&ssd, 2));
        assert_eq!(first, second, "kill {kill}: a transaction is half there");
        let slot = (acknowledged as usize % 60) * 64;
        let there = u32::from_le_bytes(first[slot..slot + 4].try_into().expect("4 bytes"));
        assert!(there >= acknowledged, "kill {kill}: transaction {acknowledged} is lost, {there} is there");
        let page = read(&ssd, 10 + u64::from(acknowledged % 500));
        assert!(page.iter().all(|&byte| byte == page[0]), "kill {kill}: a block write is torn");
        assert!(
            page[0] == acknowledged as u8 || page[0] == (acknowledged + 500) as u8,
            "kill {kill}: block write {acknowledged} is lost"
        );
        // The next child starts its numbers again: so must the pages it compares.
        ssd.trim(Lpa(1), 600).expect("trims");
    }
}
