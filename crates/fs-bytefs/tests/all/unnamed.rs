//! Files made without a name (`O_TMPFILE`) and crashes: without a name they are gone, with their space; once
//! named they are there, whole. Cut at every change of the device.

use std::sync::Arc;

use amphi_fs_bytefs::{ByteFs, FormatOptions, MountOptions, fsck};
use amphi_vfs::{Cred, Error, FileSystem, Ino, Name, WriteMode};

use amphi_memory_device::Memory;

static CONTENTS: [u8; 20_000] = [7; 20_000];

fn mount(device: &Arc<Memory>) -> ByteFs<Memory> {
    let options = MountOptions { write_back_interval_ns: 0, ..MountOptions::default() };
    ByteFs::mount(Arc::clone(device), options).unwrap()
}

fn formatted() -> Arc<Memory> {
    let device = Arc::new(Memory::new(vec![0; 16 << 20]));
    ByteFs::format(&*device, &FormatOptions::default()).unwrap();
    device
}

/// Makes a file without a name, writes it, and names it. Returns whether the naming was completed.
fn make(fs: &ByteFs<Memory>, named: bool) -> Result<(), Error> {
    let made = fs.tmpfile(Ino::ROOT, 0o600, &Cred::ROOT)?.attr.ino;
    fs.write(made, 0, &CONTENTS, WriteMode::default(), &Cred::ROOT)?;
    fs.fsync(made, false)?;
    if named {
        fs.link(made, Ino::ROOT, Name::new(b"f").unwrap())?;
    }
    Ok(())
}

#[test]
fn without_a_name_a_file_does_not_outlive_a_crash_and_with_one_it_does() {
    for named in [false, true] {
        for cut in 0.. {
            let device = formatted();
            let fs = mount(&device);
            let before = fs.statfs().unwrap();
            device.lose_power_after(cut);
            let made = make(&fs, named);
            // The machine stops here, with the file still open.
            drop(fs);
            device.power_on();
            let fs = mount(&device);
            let found = fs.lookup(Ino::ROOT, Name::new(b"f").unwrap()).map(|entry| entry.attr);
            match (&found, &made) {
                (Ok(attr), _) if named => {
                    let mut bytes = vec![0; CONTENTS.len() + 1];
                    assert_eq!(fs.read(attr.ino, 0, &mut bytes, false), Ok(CONTENTS.len()), "cut {cut}");
                    assert!(bytes[..CONTENTS.len()] == CONTENTS, "cut {cut}");
                    assert_eq!(attr.nlink, 1);
                    fs.forget(attr.ino, 1);
                }
                (Err(Error::NotFound), Err(_)) | (Err(Error::NotFound), Ok(()))
                    if !(named && made.is_ok()) =>
                {
                    assert_eq!(
                        fs.statfs().unwrap(),
                        before,
                        "cut {cut}: what had no name gave its space back"
                    );
                }
                _ => panic!("cut {cut}, named: {named}: {found:?} after {made:?}"),
            }
            fs.unmount().unwrap();
            let report = fsck::check(&*device, &mut |_| ()).unwrap();
            assert!(report.is_clean(), "cut {cut}, named: {named}: {:?}", report.findings);
            if made.is_ok() {
                assert!(cut > 5, "only {cut} changes");
                break;
            }
        }
    }
}
