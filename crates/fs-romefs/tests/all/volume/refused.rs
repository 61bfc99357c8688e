//! What RomeFS refuses before it writes anything, in which words; and what `tune` and `resize` change.

use std::sync::Arc;

use amphi_device::{BytePort, BytePortExt, Structure};
use amphi_fs_romefs::format::Superblock;
use amphi_fs_romefs::{FormatOptions, IDENTITY, MountOptions, RomeFs, fsck, probe};
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, WriteMode};
use amphi_volume::{Changes, Volume};
use zerocopy::{FromBytes, IntoBytes};

use crate::small::{roomy, ssd};

fn format() -> FormatOptions {
    FormatOptions { inodes: Some(64), ..FormatOptions::default() }
}

/// The first page of the memory area.
fn page(ssd: &Ssd) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    ssd.load(0, &mut bytes, Structure::Other).expect("it is inside");
    bytes
}

#[test]
fn thresholds_are_powers_of_two_up_to_a_megabyte() {
    let ssd = ssd(2 << 20, 32 << 20);
    for (bytes, shown) in [(0, "0"), (2048, "2048"), (65_000, "65000"), (2 << 20, "2097152")] {
        let refused = RomeFs::format(&ssd, &FormatOptions { block_bytes: bytes, ..format() });
        let wanted = format!(
            "RomeFS cannot use this device: a threshold of {shown} bytes is no power of two from 4K to 1M"
        );
        assert_eq!(refused.map_err(|error| error.to_string()), Err(wanted));
    }
    assert_eq!(page(&ssd), [0; 4096], "nothing is written");
    for block_bytes in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        RomeFs::format(&ssd, &FormatOptions { block_bytes, ..format() })
            .expect("one of the paper's thresholds");
        let mut options = roomy();
        options.set_all(&format!("threshold={}K", (2 * block_bytes).min(1 << 20) >> 10)).expect("a word");
        let fs = RomeFs::mount(&ssd, options).expect("at mount it is that or a multiple");
        fs.unmount().expect("it is idle");
    }
    let error = RomeFs::mount(&ssd, MountOptions { threshold: 4096, ..roomy() }).map(drop);
    let wanted = "a threshold of 4096 bytes is below the data blocks of 1048576 bytes that this file system was made with";
    assert_eq!(error.map_err(|error| error.to_string()), Err(wanted.to_owned()));
}

#[test]
fn a_memory_area_too_small_for_the_metadata_is_refused() {
    let ssd = ssd(1 << 20, 32 << 20);
    let refused = RomeFs::format(&ssd, &FormatOptions { inodes: Some(4000), ..format() });
    let text = refused.expect_err("a megabyte holds no 4000 inodes").to_string();
    assert!(text.contains("ask for fewer inodes, or make the SSD with a larger --memory"), "{text}");
    assert_eq!(page(&ssd), [0; 4096], "nothing is written");
}

#[test]
fn zones_that_disagree_are_refused() {
    type Damage = fn(&mut Superblock);
    let damages: [(Damage, &str); 4] = [
        (|sb| sb.blocks = 4096.into(), "its block zone is larger than the device"),
        (|sb| sb.log_pages = 100_000.into(), "its memory zone is larger than the device's memory area"),
        (|sb| sb.memory_bytes = (1 << 40).into(), "its memory zone is larger than the device's memory area"),
        (|sb| sb.lanes = 99.into(), "its journal has an impossible number of lanes"),
    ];
    for (damage, wanted) in damages {
        let ssd = ssd(2 << 20, 32 << 20);
        RomeFs::format(&ssd, &format()).expect("it can be formatted");
        let mut sb = Superblock::read_from_bytes(&page(&ssd)[..256]).expect("a superblock's bytes");
        damage(&mut sb);
        sb.crc = sb.checksum().into();
        for at in [0, 256] {
            ssd.persist(at, sb.as_bytes(), None, Structure::Other).expect("it is inside");
        }
        let before = page(&ssd);
        let wanted = format!("the superblock of RomeFS is damaged: {wanted}");
        let refused = RomeFs::mount(&ssd, roomy()).map(drop);
        assert_eq!(refused.map_err(|error| error.to_string()), Err(wanted.clone()));
        assert_eq!(fsck::check(&ssd).map(drop).map_err(|error| error.to_string()), Err(wanted.clone()));
        assert_eq!(fsck::repair(&ssd).map(drop).map_err(|error| error.to_string()), Err(wanted));
        assert_eq!(page(&ssd), before, "nothing is written");
    }
}

#[test]
fn tuning_changes_the_superblock_and_its_copy() {
    let ssd = ssd(2 << 20, 32 << 20);
    RomeFs::format(&ssd, &format()).expect("it can be formatted");
    let changes = Changes {
        label: Some("new".into()),
        uuid: Some([7; 16]),
        options: Some("write-back=20,data=lazy".into()),
    };
    let about = <RomeFs<Ssd> as Volume<Ssd>>::tune(&ssd, &changes).expect("a sound change");
    assert_eq!((about.label.as_str(), about.uuid), ("new", [7; 16]));
    let bytes = page(&ssd);
    assert_eq!(bytes[..256], bytes[256..512]);
    let info = probe(&*ssd).expect("it is one");
    assert_eq!((info.label.as_str(), info.options.as_str()), ("new", "write-back=20,data=lazy"));
    // They hold, unless the mount says otherwise.
    let promise = |words: &str| {
        let options = amphi_volume::MountOptions { words: words.into(), ..Default::default() };
        let fs = <RomeFs<Ssd> as Volume<Ssd>>::mount(&ssd, &options).expect("it can be mounted");
        let promise = fs.promise();
        fs.unmount().expect("it is idle");
        promise.data_durable_on_return
    };
    assert_eq!((promise(""), promise("data=persist")), (false, true));
    for (changes, wanted) in [
        (Changes { label: Some("x".repeat(33)), ..Changes::default() }, "the label is longer than 32 bytes"),
        (
            Changes { options: Some("size=3".into()), ..Changes::default() },
            "`size=3` is no mount option of RomeFS",
        ),
    ] {
        let refused = <RomeFs<Ssd> as Volume<Ssd>>::tune(&ssd, &changes).expect_err("impossible").to_string();
        assert!(refused.starts_with(wanted), "{refused}");
    }
    assert_eq!(page(&ssd)[..512], bytes[..512], "what is refused changes nothing");
    assert!(IDENTITY.words.contains("threshold=SIZE"));
}

#[test]
fn the_block_zone_grows_to_what_the_device_has() {
    let ssd = ssd(2 << 20, 32 << 20);
    RomeFs::format(&ssd, &FormatOptions { bytes: Some(8 << 20), ..format() }).expect("it can be formatted");
    let free = |ssd: &Arc<Ssd>| {
        let fs = RomeFs::mount(ssd, roomy()).expect("it can be mounted");
        let (name, cred) = (Name::new(b"file").expect("a name"), &Cred::ROOT);
        let ino = match fs.lookup(Ino::ROOT, name) {
            Ok(found) => found.attr.ino,
            Err(_) => {
                let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, cred);
                let ino = made.expect("there is room").attr.ino;
                fs.write(ino, 0, &[7; 1 << 20], WriteMode::default(), cred).expect("there is room");
                ino
            }
        };
        let mut bytes = vec![0; 1 << 20];
        assert_eq!(fs.read(ino, 0, &mut bytes, false), Ok(1 << 20));
        assert!(bytes == [7; 1 << 20]);
        let free = fs.statfs().expect("it is mounted").blocks_free;
        fs.unmount().expect("it is idle");
        assert_eq!(fsck::check(ssd).expect("it can be checked").findings, []);
        free
    };
    assert_eq!(free(&ssd), 128 - 16);
    let grow = |bytes| <RomeFs<Ssd> as Volume<Ssd>>::grow(&ssd, bytes).map_err(|error| error.to_string());
    let larger = grow(Some(64 << 20)).expect_err("the device is smaller");
    assert!(larger.contains("can grow to 33554432 bytes, fewer than asked for"), "{larger}");
    let smaller = grow(Some(1 << 20)).expect_err("it cannot shrink");
    assert!(smaller.contains("it can grow but not shrink"), "{smaller}");
    assert_eq!(grow(Some(16 << 20)), Ok((8 << 20, 16 << 20)));
    assert_eq!(free(&ssd), 256 - 16);
    assert_eq!(grow(None), Ok((16 << 20, 32 << 20)));
    assert_eq!(free(&ssd), 512 - 16);
}
