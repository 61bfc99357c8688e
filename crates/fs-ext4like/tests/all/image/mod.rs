//! A small image with one of everything, as a map of the blocks that are not zeros.

use std::collections::BTreeMap;
use std::sync::Arc;

use amphi_device::{BlockPort, Lpa, PAGE_BYTES, Structure};
use amphi_fs_ext4like::{Ext4Like, FormatOptions, MountOptions};
use amphi_ssd::{Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, FileType, Ino, Name, Result, WriteMode, XattrMode};

/// Blocks of the device.
pub const BLOCKS: u64 = 640;

/// The blocks of a device that are not zeros.
pub type Blocks = BTreeMap<u64, [u8; PAGE_BYTES]>;

/// Nothing runs in the background.
pub fn quiet() -> MountOptions {
    MountOptions { commit_interval_ns: 0, ..MountOptions::default() }
}

/// A device with these blocks.
pub fn device(blocks: &Blocks) -> Arc<Ssd> {
    let device = Ssd::in_memory(&Profile::named("free").expect("built in"), BLOCKS * PAGE_BYTES as u64);
    for (number, block) in blocks {
        device.write(Lpa(*number), block, Structure::Other).expect("written");
    }
    Arc::new(device)
}

/// What a device holds.
pub fn contents(device: &Ssd) -> Blocks {
    let mut blocks = Blocks::new();
    for number in 0..BLOCKS {
        let mut block = [0; PAGE_BYTES];
        device.read(Lpa(number), &mut block, Structure::Other).expect("read");
        if block.iter().any(|&byte| byte != 0) {
            blocks.insert(number, block);
        }
    }
    blocks
}

/// A new file system with one of everything: an indexed directory, a file with more extents than fit the
/// inode and one with reserved space, hard links, both kinds of symbolic links, attributes in the inode and
/// in a block, a device node.
pub fn furnished() -> Arc<Ssd> {
    let device = device(&Blocks::new());
    let options = FormatOptions { label: "golden".to_owned(), ..FormatOptions::default() };
    Ext4Like::format(&*device, &options).expect("it can be formatted");
    let fs = Ext4Like::mount(Arc::clone(&device), quiet()).expect("it can be mounted");
    furnish(&fs).expect("it has room");
    fs.unmount().expect("it can be unmounted");
    device
}

fn furnish(fs: &dyn FileSystem) -> Result<()> {
    let (cred, how) = (&Cred { uid: 1000, gid: 100, ..Cred::ROOT }, WriteMode::default());
    let docs = fs.mkdir(Ino::ROOT, Name::new(b"docs")?, 0o750, cred)?.attr.ino;
    let large = fs.create(docs, Name::new(b"large")?, FileType::Regular, 0o640, 0, cred)?.attr.ino;
    fs.write(large, 0, &(0..50_000).map(|at| (at / 100 % 251) as u8).collect::<Vec<_>>(), how, cred)?;
    fs.setxattr(large, b"user.colour", b"green", XattrMode::Create)?;
    fs.link(large, Ino::ROOT, Name::new(b"large too")?)?;
    let sparse = fs.create(Ino::ROOT, Name::new(b"sparse")?, FileType::Regular, 0o600, 0, cred)?.attr.ino;
    for page in 0..12 {
        fs.write(sparse, page * 2 * PAGE_BYTES as u64, &[page as u8 + 1; 100], how, cred)?;
    }
    fs.allocate(sparse, 1 << 20, 50_000, amphi_vfs::Allocate::Reserve { keep_size: true }, cred)?;
    fs.setxattr(sparse, b"user.long", &[b'l'; 500], XattrMode::Create)?;
    fs.symlink(docs, Name::new(b"short")?, b"large", cred)?;
    fs.symlink(docs, Name::new(b"long")?, &[b'x'; 200], cred)?;
    fs.create(docs, Name::new(b"console")?, FileType::CharDevice, 0o620, 0x501, &Cred::ROOT)?;
    for number in 0..60 {
        let name = format!("{}{number:02}", "a-long-name-so-that-the-directory-has-an-index-".repeat(3));
        fs.link(large, docs, Name::new(name.as_bytes())?)?;
    }
    fs.sync()
}

/// Reads everything there is, and says it in one text: attributes, listings, contents.
pub fn walk(fs: &dyn FileSystem) -> Result<String> {
    let mut text = String::new();
    let mut waiting = vec![(String::new(), Ino::ROOT)];
    while let Some((path, ino)) = waiting.pop() {
        let attr = fs.getattr(ino)?;
        text += &format!(
            "{path} {:?} {:o} {} {} {} {} {:x} {}\n",
            attr.file_type, attr.mode, attr.nlink, attr.uid, attr.gid, attr.size, attr.rdev, attr.blocks
        );
        for name in fs.listxattr(ino)? {
            text += &format!("  {} {:?}\n", name.escape_ascii(), fs.getxattr(ino, &name)?.len());
        }
        match attr.file_type {
            FileType::Directory => {
                let mut entries = Vec::new();
                fs.readdir(ino, 2, &mut |entry| {
                    entries.push(entry.name.to_vec());
                    entries.len() < 10_000
                })?;
                for name in entries {
                    let below = fs.lookup(ino, Name::new(&name)?)?.attr.ino;
                    waiting.push((format!("{path}/{}", name.escape_ascii()), below));
                }
            }
            FileType::Regular => {
                let mut bytes = vec![0; attr.size.min(1 << 20) as usize];
                let read = fs.read(ino, 0, &mut bytes, false)?;
                text += &format!("  {read} bytes, {:08x}\n", crc32c::crc32c(&bytes[..read]));
            }
            FileType::Symlink => text += &format!("  to {}\n", fs.readlink(ino)?.escape_ascii()),
            _ => {}
        }
        if waiting.len() > 10_000 || text.len() > 1 << 22 {
            break;
        }
    }
    Ok(text)
}
