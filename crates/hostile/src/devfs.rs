//! DevFS before two kinds of enemies: a device whose flash and protected memory were overwritten, behind
//! renewed checksums if the input wants that; and a program that writes anything anywhere into its command
//! buffer.

use std::sync::Arc;

use amphi_device::{BlockPort, BytePort, BytePortExt, Lpa, PAGE_BYTES, Structure};
use amphi_fs_devfs::{DevFs, FormatOptions, MountOptions, Speaks};
use amphi_queue::{Geometry, Memory};
use amphi_rt::sync::OnceCell;
use amphi_rt::{Sim, time};
use amphi_ssd::{Firmware, Ssd};
use amphi_vfs::{
    Allocate, Capabilities, Cred, FileSystem, FileType, Ino, Name, RenameMode, Seek, SetAttr, WriteMode,
    XattrMode,
};
use amphi_volume::Volume;

use crate::input::Input;
use crate::queue::{Client, LANES, PAYLOAD_BYTES};
use crate::used::Damaged;

const PAGES: u64 = 1024;
const MEMORY: u64 = 64 << 10;
const PAGE: usize = PAGE_BYTES;
/// Names that are changed: a damaged directory may have any number.
const CHANGED: usize = 200;
/// Bytes of a slot's head, of an entry's mark, and where a mark has its checksum.
const HEAD: usize = 32;
const MARK: usize = 32;
const MARK_CRC: usize = 28;
const SECRET: &[u8] = b"what nobody but root reads or writes";

fn name(text: &[u8]) -> Name<'_> {
    Name::new(text).expect("a valid name")
}

/// A device with a DevFS that has a little of everything, after a loss of power. Forked, never used.
fn origin() -> &'static Ssd {
    static ORIGIN: OnceCell<Ssd> = OnceCell::new();
    ORIGIN.get_or_init(|| {
        let ssd = crate::with_memory(Firmware::FileSystem, MEMORY, PAGES);
        let format = FormatOptions { inodes: Some(100), ..FormatOptions::default() };
        DevFs::format(&ssd, &format).expect("the device is large enough");
        let fs = DevFs::mount(&ssd, &MountOptions::default()).expect("what was just formatted mounts");
        furnish(&fs).expect("an empty file system has room");
        drop(fs);
        Arc::into_inner(ssd).expect("nobody else has it").forkable().expect("memory")
    })
}

fn furnish(fs: &DevFs<Ssd>) -> amphi_vfs::Result<()> {
    let (root, how) = (&Cred::ROOT, WriteMode::default());
    let file =
        |dir, text: &[u8], mode| Ok(fs.create(dir, name(text), FileType::Regular, mode, 0, root)?.attr.ino);
    let secret = file(Ino::ROOT, b"secret", 0o600)?;
    fs.write(secret, 0, SECRET, how, root)?;
    let a = file(Ino::ROOT, b"a", 0o666)?;
    fs.write(a, 0, &[7; 10_000], how, root)?;
    fs.write(a, 30 << 20, &[8; 5000], how, root)?;
    fs.setxattr(a, b"user.key", b"value", XattrMode::Set)?;
    let dir = fs.mkdir(Ino::ROOT, name(b"d"), 0o777, root)?.attr.ino;
    fs.write(file(dir, b"b", 0o666)?, 100, &[9; 50], how, root)?;
    fs.symlink(Ino::ROOT, name(b"l"), b"d/b", root)?;
    for number in 0..20_u8 {
        file(dir, &vec![b'a' + number; 2 + usize::from(number) * 12], 0o644)?;
    }
    Ok(())
}

/// Damages the device as the input says, then does with it what people do with file systems.
pub fn devfs_image(input: &[u8]) {
    let ssd = Arc::new(origin().fork().expect("memory"));
    let mut input = Input::new(input);
    for _ in 0..8 {
        if input.is_empty() {
            break;
        }
        if input.one_in(3) { damage_slot(&ssd, &mut input) } else { damage_page(&ssd, &mut input) }
    }
    let damaged = Damaged {
        mount: |ssd| DevFs::mount(ssd, &MountOptions::default()),
        is_sound: |report| report.errors == 0,
        change: |fs| drop(change(fs)),
    };
    damaged.on(&ssd);
}

/// Changes eight bytes of a page, which has a right checksum again mostly.
fn damage_page(ssd: &Ssd, input: &mut Input<'_>) {
    // Metadata lie at the front, and among the first blocks.
    let number = input.below(120);
    let mut page = [0; PAGE];
    ssd.read(Lpa(number), &mut page, Structure::Other).expect("it is inside");
    let at = input.below(510) as usize * 8;
    page[at..at + 8].copy_from_slice(&input.telling(PAGES).to_le_bytes());
    if !input.one_in(8) {
        let at = if number == 0 { 12 } else { PAGE - 4 };
        page[at..at + 4].fill(0);
        let sealed = if number == 0 { &page[..112] } else { &page[..] };
        let crc = crc32c::crc32c(sealed);
        page[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    ssd.write(Lpa(number), &page, Structure::Other).expect("it is inside");
}

/// Changes eight bytes of a slot, whose head and first entry have right checksums again mostly.
fn damage_slot(ssd: &Ssd, input: &mut Input<'_>) {
    let at = input.below(8) * PAGE_BYTES as u64;
    let mut slot = [0; PAGE];
    ssd.load(at, &mut slot, Structure::Other).expect("it is inside");
    let within = input.below(256.min(PAGE as u64 - 8)) as usize;
    slot[within..within + 8].copy_from_slice(&input.telling(PAGES).to_le_bytes());
    if !input.one_in(8) {
        slot[HEAD - 4..HEAD].fill(0);
        let crc = crc32c::crc32c(&slot[..HEAD]);
        slot[HEAD - 4..HEAD].copy_from_slice(&crc.to_le_bytes());
        let bytes = usize::from(u16::from_le_bytes([slot[HEAD + 24], slot[HEAD + 25]]));
        let end = (HEAD + MARK + bytes).min(PAGE);
        let crc_at = HEAD + MARK_CRC;
        slot[crc_at..crc_at + 4].fill(0);
        let crc = crc32c::crc32c(&slot[HEAD..end]);
        slot[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    ssd.persist(at, &slot, None, Structure::Other).expect("it is inside");
}

/// Changes whatever is there. Errors are as good as answers.
fn change(fs: &DevFs<Ssd>) -> amphi_vfs::Result<()> {
    let root = &Cred::ROOT;
    let mut names = Vec::new();
    let _listed = fs.readdir(Ino::ROOT, 2, &mut |entry| {
        names.push((entry.ino, entry.name.to_vec()));
        names.len() < CHANGED
    });
    for (ino, text) in names {
        let _any = fs.write(ino, 50, &[9; 9000], WriteMode::default(), root);
        let _any = fs.allocate(ino, 1000, 50_000, Allocate::PunchHole, root);
        let _any = fs.seek(ino, 0, Seek::Hole);
        let _any = fs.setattr(ino, &SetAttr { size: Some(700), ..SetAttr::default() }, root);
        if let Ok(text) = Name::new(&text) {
            let _any = fs.rename(Ino::ROOT, text, Ino::ROOT, name(b"moved"), RenameMode::Replace);
            let _any = fs.unlink(Ino::ROOT, text);
        }
    }
    fs.mkdir(Ino::ROOT, name(b"new"), 0o755, root)?;
    fs.statfs().map(drop)
}

/// Lets a program without privileges do what the input says to its command buffer. Nobody else is harmed, and
/// the file system is whole afterwards, also after a loss of power.
pub fn devfs_commands(input: &[u8]) {
    Sim::new(1).run(|| {
        let mut input = Input::new(input);
        let ssd = Arc::new(origin().fork().expect("memory"));
        let fs = DevFs::mount(&ssd, &MountOptions::default()).expect("it is whole");
        let geometry = Geometry::new(LANES, PAYLOAD_BYTES).expect("a small queue");
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(geometry.bytes() as u64).expect("room for a small queue");
        let memory = Arc::new(Memory::create(&file, geometry).expect("a mapped queue"));
        let user = Cred { uid: 1000, gid: 1000, capabilities: Capabilities::NONE, ..Cred::ROOT };
        let id = fs.credentials().grant(user.clone()).expect("the table has room");
        let door = fs.register(memory, Speaks::ForOne(id));
        // Handles of nobody; it learns of its own only by luck, as numbers are small.
        let mut client = Client::new(&file, geometry, (0..6).collect());
        for _ in 0..150 {
            if input.is_empty() {
                break;
            }
            match input.u8() {
                // The system's side: another process runs there now, or none.
                0 => drop(fs.credentials().change(id, user.clone())),
                1 if input.one_in(4) => drop(fs.credentials().revoke(id)),
                _ => client.act(&mut input),
            }
            if !input.one_in(3) {
                door.ring();
                // Everything that can run does.
                time::sleep_until_ns(time::now_ns() + 1000);
            }
        }
        door.close();
        drop(door);
        let loses_power = input.one_in(2);
        if loses_power {
            drop(fs);
            ssd.power_cut(1);
            let cut = Arc::into_inner(ssd).expect("nobody else has it");
            look_after(Arc::new(cut.restart().expect("it powers up")));
        } else {
            fs.unmount().expect("it is idle");
            look_after(ssd);
        }
    });
}

/// What root has is as it was, and the check finds nothing.
fn look_after(ssd: Arc<Ssd>) {
    let fs = DevFs::mount(&ssd, &MountOptions::default()).expect("it is whole");
    let secret = fs.lookup(Ino::ROOT, name(b"secret")).expect("it is there").attr;
    let mut bytes = vec![0; SECRET.len() + 1];
    let read = fs.read(secret.ino, 0, &mut bytes, false).expect("it can be read");
    assert_eq!((&bytes[..read], secret.mode, secret.uid), (SECRET, 0o600, 0), "root's file");
    fs.unmount().expect("it is idle");
    let report = <DevFs<Ssd> as Volume<Ssd>>::check(&ssd, &mut |_| ()).expect("the SSD works");
    assert!(report.is_clean(), "the check found {:?}", report.findings);
}
