//! Programs that change a command, its data or a completion after they have sent it (DV-8): what the device
//! does is one of the things that they could have asked for, and nobody else notices.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_fs_devfs::{DevFs, Door, MountOptions, Speaks};
use amphi_queue::format::{COMPLETIONS_AT, SUBMISSIONS_AT, Span, Submission, code, flag, op};
use amphi_queue::{Client, Geometry, Memory};
use amphi_rt::task;
use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileSystem, Ino, Name};
use zerocopy::IntoBytes;

use crate::small::library::{DATA_AT, Library, PAYLOAD, door, grant, user};
use crate::small::make;

/// A buffer of one lane that a program can also write by its file.
fn open_buffer(fs: &DevFs<Ssd>, cred: Cred) -> (Arc<Door<Ssd>>, File, Geometry) {
    let geometry = Geometry::new(1, PAYLOAD).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(geometry.bytes() as u64).unwrap();
    let memory = Arc::new(Memory::create(&file, geometry).unwrap());
    (fs.register(memory, Speaks::ForOne(grant(fs, cred))), file, geometry)
}

/// Has `scribble` run again and again on another thread while `body` runs.
fn while_changing(scribble: impl Fn() + Send + 'static, body: impl FnOnce()) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let scribbling = task::spawn("scribbler", move || {
        while !stopped.load(Ordering::Relaxed) {
            scribble();
        }
    });
    body();
    stop.store(true, Ordering::Relaxed);
    scribbling.join();
}

#[test]
fn lengths_and_offsets_that_change_after_submission_stay_within_what_could_be_asked() {
    let fs = make(&MountOptions::default());
    let roots = door(&fs, 1, Cred::ROOT);
    let mut root = Library::new(&roots, 0);
    root.chmod(b".", 0o777);
    let victim = root.create(b"victim", 0o600);
    assert_eq!(root.write(victim, 0, b"words"), code::DONE);
    let (bad, file, geometry) = open_buffer(&fs, user(1000));
    let handle = Library::new(&bad, 0).create(b"own", 0o600);
    // The second entry of the ring: the first was the creation.
    let at = geometry.lane_at(0) + SUBMISSIONS_AT;
    let honest = move |sequence: u32| Submission {
        operation: op::WRITE.into(),
        sequence: sequence.into(),
        handle: handle.into(),
        data: Span::new(DATA_AT, 100),
        ..Submission::default()
    };
    let wild = move |sequence: u32| Submission {
        offset: (1 << 20).into(),
        handle: victim.into(),
        data: Span::new(DATA_AT, u32::MAX),
        ..honest(sequence)
    };
    let scribbled = file.try_clone().unwrap();
    let scribble = move || {
        for slot in 0..8_u32 {
            for sequence in [slot, slot + 8, slot + 16, slot + 24] {
                // Everything behind the sequence number, one way and the other.
                let to = (at + slot as usize * size_of::<Submission>()) as u64;
                for entry in [honest(sequence), wild(sequence)] {
                    scribbled.write_all_at(&entry.as_bytes()[4..], to + 4).unwrap();
                }
            }
        }
    };
    while_changing(scribble, || {
        let mut library = Library { door: &bad, client: Client::new(bad.memory(), 0), credential: 0 };
        for _ in 0..300 {
            let answer = library.raw(honest(0)).status.get();
            assert!(
                [code::DONE, code::MALFORMED, code::BAD_HANDLE, code::BAD_CREDENTIAL].contains(&answer),
                "{answer}"
            );
        }
    });
    assert_eq!(root.read(victim, 9), Ok(b"words".to_vec()), "root's file");
    let size = fs.lookup(Ino::ROOT, Name::new(b"own").unwrap()).unwrap().attr.size;
    assert!(size <= (1 << 20) + u64::from(PAYLOAD), "{size}");
}

#[test]
fn data_that_change_while_they_are_written_cost_nobody_elses_what_a_queue_holds() {
    for round in 0..20_u8 {
        let fs = make(&MountOptions::default());
        let roots = door(&fs, 1, Cred::ROOT);
        let mut root = Library::new(&roots, 0);
        let shared = root.create(b"shared", 0o666);
        assert_eq!(root.write(shared, 0, &[0; 4096]), code::DONE);
        let bad = door(&fs, 1, user(1000));
        let mut library = Library::new(&bad, 0);
        let handle = library.open(b"shared", flag::READ | flag::WRITE, 0).value.get();
        let memory = Arc::clone(bad.memory());
        let scribble = move || {
            let data = memory.payload(0).part(DATA_AT, 1000).expect("it is inside");
            data.put(&[0xAA; 1000]);
            data.put(&[0x55; 1000]);
        };
        while_changing(scribble, || {
            for _ in 0..2 {
                assert_eq!(library.write(handle, 0, &[1; 1000]), code::DONE);
            }
            // Behind it in the file's queue.
            assert_eq!(root.write(shared, 2000, &[round + 1; 100]), code::DONE);
        });
        let ssd = Arc::clone(fs.device());
        drop((roots, bad, fs));
        ssd.power_cut(u64::from(round));
        let ssd = Arc::into_inner(ssd).expect("nobody else has it").restart().expect("it powers up");
        let fs = DevFs::mount(&Arc::new(ssd), &MountOptions::default()).expect("it can be mounted");
        let ino = fs.lookup(Ino::ROOT, Name::new(b"shared").unwrap()).unwrap().attr.ino;
        let mut bytes = [0; 100];
        assert_eq!(fs.read(ino, 2000, &mut bytes, false), Ok(100));
        assert_eq!(bytes, [round + 1; 100], "what root wrote, and was told to be written");
    }
}

#[test]
fn completions_that_are_replayed_or_forged_mislead_nobody_but_their_program() {
    let fs = make(&MountOptions::default());
    let roots = door(&fs, 1, Cred::ROOT);
    let mut root = Library::new(&roots, 0);
    root.chmod(b".", 0o777);
    let (bad, file, geometry) = open_buffer(&fs, user(1000));
    let mut library = Library::new(&bad, 0);
    let handle = library.create(b"own", 0o600);
    assert_eq!(library.write(handle, 0, b"first"), code::DONE);
    // All completions become the last one, which said that a write was done.
    let at = (geometry.lane_at(0) + COMPLETIONS_AT) as u64;
    let mut done = [0; 128];
    file.read_exact_at(&mut done, at + 128).unwrap();
    (0..8).for_each(|slot| file.write_all_at(&done, at + slot * 128).unwrap());
    assert_eq!(root.chmod(b".", 0o755), code::DONE);
    let refused = library.open(b"other", flag::CREATE | flag::WRITE, 0o600).status.get();
    assert_eq!(refused, code::PERMISSION_DENIED, "the device's own answer, not what lay there");
    assert!(fs.lookup(Ino::ROOT, Name::new(b"other").unwrap()).is_err());
    assert_eq!(library.read(handle, 9), Ok(b"first".to_vec()));
}
