//! Command buffers: what programs get through them, and what those get that try to get more (DV-1, DV-8,
//! DV-9).

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use amphi_device::CommandPort;
use amphi_fs_devfs::{DevFs, FormatOptions, MountOptions, Reception, Speaks};
use amphi_queue::format::{COMPLETED_AT, Span, Submission, code, flag, op};
use amphi_queue::{Caller, Client, CommandDevice, Executor, Geometry, Memory, Watcher};
use amphi_rt::{Sim, task, time};
use amphi_ssd::{Firmware, OpenOptions, Profile, Ssd};
use amphi_vfs::{Cred, FileSystem, Ino, Name, SetAttr};
use amphi_volume::{TakeCommands, Volume};

use crate::small;
use crate::small::library::{Library, PAYLOAD, door, grant, user};

#[test]
fn commands_reach_the_file_system_and_a_mount_sees_what_they_did() {
    let fs = small::make(&MountOptions::default());
    let door = door(&fs, 2, Cred::ROOT);
    let (mut one, mut two) = (Library::new(&door, 0), Library::new(&door, 1));
    let handle = one.create(b"f", 0o644);
    assert_eq!(one.write(handle, 3, b"bytes"), code::DONE);
    assert_eq!(two.read(handle, 100), Ok(b"\0\0\0bytes".to_vec()), "lanes of a buffer share its open files");
    let found = fs.lookup(Ino::ROOT, Name::new(b"f").unwrap()).unwrap().attr;
    assert_eq!(found.size, 8);
    // The mount ends with the file open there.
    assert_eq!(one.send(unlink(), b"f", &[], 0).status.get(), code::DONE);
    fs.forget(found.ino, 1);
    let fs = small::remount(fs, &MountOptions::default());
    assert!(fs.lookup(Ino::ROOT, Name::new(b"f").unwrap()).is_err());
    assert_eq!(
        fs.statfs().unwrap().inodes_free,
        small::make(&MountOptions::default()).statfs().unwrap().inodes_free
    );
}

fn unlink() -> Submission {
    Submission { operation: op::UNLINK.into(), ..Submission::default() }
}

#[test]
fn a_buffer_speaks_for_one_whatever_its_commands_say() {
    let fs = small::make(&MountOptions::default());
    let (roots, users) = (door(&fs, 1, Cred::ROOT), door(&fs, 1, user(1000)));
    let mut root = Library::new(&roots, 0);
    let handle = root.create(b"secret", 0o600);
    assert_eq!(root.write(handle, 0, b"words"), code::DONE);

    let mut user = Library::new(&users, 0);
    assert_eq!(user.open(b"secret", flag::READ, 0).status.get(), code::PERMISSION_DENIED);
    assert_eq!(user.read(handle, 5), Err(code::BAD_HANDLE), "another buffer's open file");
    // Every number that there is, and some more.
    for forged in (1..=64).flat_map(|place| [0, 1, 2, 7].map(|uses| uses << 32 | place)).chain([u64::MAX]) {
        user.credential = forged;
        let answer = user.open(b"secret", flag::READ, 0).status.get();
        // Its own is among them.
        assert!(answer == code::BAD_CREDENTIAL || answer == code::PERMISSION_DENIED, "{forged}: {answer}");
    }
}

#[test]
fn every_read_and_write_asks_for_permission() {
    let fs = small::make(&MountOptions::default());
    let (roots, users) = (door(&fs, 1, Cred::ROOT), door(&fs, 1, user(1000)));
    let (mut root, mut user) = (Library::new(&roots, 0), Library::new(&users, 0));
    let made = root.create(b"f", 0o666);
    assert_eq!(root.write(made, 0, b"words"), code::DONE);
    let handle = user.open(b"f", flag::READ | flag::WRITE, 0).value.get();
    assert_eq!((user.read(handle, 5), user.write(handle, 0, b"W")), (Ok(b"words".to_vec()), code::DONE));
    assert_eq!(root.chmod(b"f", 0o644), code::DONE);
    assert_eq!(
        (user.read(handle, 1), user.write(handle, 0, b"x")),
        (Ok(b"W".to_vec()), code::PERMISSION_DENIED)
    );
    assert_eq!(root.chmod(b"f", 0o600), code::DONE);
    assert_eq!(user.read(handle, 1), Err(code::PERMISSION_DENIED));
    assert_eq!(root.chmod(b"f", 0o666), code::DONE);
    assert_eq!(user.read(handle, 1), Ok(b"W".to_vec()), "nothing was written meanwhile");
    // As `open` says: who makes a file without permissions may fill it.
    assert_eq!(root.chmod(b".", 0o777), code::DONE);
    let own = user.create(b"mine", 0o000);
    assert_eq!(user.write(own, 0, b"x"), code::DONE);
}

#[test]
fn what_the_system_takes_back_ends_with_the_next_command() {
    let fs = small::make(&MountOptions::default());
    let memory = Arc::new(Memory::private(Geometry::new(1, PAYLOAD).unwrap()).unwrap());
    let id = grant(&fs, Cred::ROOT);
    let door = fs.register(memory, Speaks::ForOne(id));
    let mut library = Library::new(&door, 0);
    let handle = library.create(b"f", 0o600);
    assert!(fs.credentials().change(id, user(1000)), "another process runs there now");
    let refused = library.open(b"f", flag::READ, 0).status.get();
    assert_eq!(refused, code::PERMISSION_DENIED);
    assert!(fs.credentials().revoke(id));
    assert_eq!(library.write(handle, 0, b"x"), code::BAD_CREDENTIAL);
    let other = grant(&fs, Cred::ROOT);
    assert_ne!(other, id);
    assert_eq!(library.write(handle, 0, b"x"), code::BAD_CREDENTIAL, "the place belongs to another now");
}

#[test]
fn a_buffer_of_the_system_speaks_for_whom_each_command_says() {
    let fs = small::make(&MountOptions::default());
    let memory = Arc::new(Memory::private(Geometry::new(1, PAYLOAD).unwrap()).unwrap());
    let (root, guest) = (grant(&fs, Cred::ROOT), grant(&fs, user(1000)));
    let door = fs.register(memory, Speaks::ForMany);
    let mut library = Library::new(&door, 0);
    assert_eq!(library.open(b"f", flag::READ, 0).status.get(), code::BAD_CREDENTIAL, "nobody");
    library.credential = root.number();
    library.create(b"f", 0o600);
    library.credential = guest.number();
    assert_eq!(library.open(b"f", flag::READ, 0).status.get(), code::PERMISSION_DENIED);
    library.credential = root.number();
    assert_eq!(library.open(b"f", flag::READ, 0).status.get(), code::DONE);
}

#[test]
fn a_buffer_that_is_scribbled_over_harms_nobody_else() {
    let fs = small::make(&MountOptions::default());
    let good = door(&fs, 1, user(1));
    let root = door(&fs, 1, Cred::ROOT);
    Library::new(&root, 0).chmod(b".", 0o777);
    let mut good = Library::new(&good, 0);
    let handle = good.create(b"good", 0o600);
    assert_eq!(good.write(handle, 0, b"words"), code::DONE);
    for seed in 0..40_u64 {
        let file = tempfile::tempfile().unwrap();
        let geometry = Geometry::new(2, 4096).unwrap();
        file.set_len(geometry.bytes() as u64).unwrap();
        let memory = Arc::new(Memory::create(&file, geometry).unwrap());
        let bad = fs.register(memory, Speaks::ForOne(grant(&fs, user(2))));
        let mut dice = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for round in 0..200 {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            // Counters small enough to be believed, entries with operations that exist, and anything.
            let at = (dice % geometry.bytes() as u64) & !3;
            let word = if round % 3 == 0 { (dice >> 32) as u32 } else { (dice >> 32) as u32 % 8 };
            file.write_all_at(&word.to_le_bytes(), at).unwrap();
            for lane in 0..2 {
                file.write_all_at(&(round as u32 % 9).to_le_bytes(), geometry.lane_at(lane) as u64).unwrap();
            }
        }
        assert_eq!(good.read(handle, 9), Ok(b"words".to_vec()));
        bad.close();
    }
    assert_eq!(good.write(handle, 0, b"w"), code::DONE);
}

#[test]
fn an_entry_that_the_ring_held_before_is_no_command() {
    let fs = small::make(&MountOptions::default());
    let file = tempfile::tempfile().unwrap();
    let geometry = Geometry::new(1, PAYLOAD).unwrap();
    file.set_len(geometry.bytes() as u64).unwrap();
    let door = fs
        .register(Arc::new(Memory::create(&file, geometry).unwrap()), Speaks::ForOne(grant(&fs, Cred::ROOT)));
    let mut library = Library::new(&door, 0);
    let handle = library.create(b"f", 0o600);
    let append = Submission {
        operation: op::WRITE.into(),
        flags: flag::APPEND.into(),
        handle: handle.into(),
        ..Submission::default()
    };
    // A whole turn of the ring is appends.
    for _ in 0..8 {
        assert_eq!(library.send(append, &[], b"x", 0).status.get(), code::DONE);
    }
    // The count says that there is one more, which is the turn before's. The command behind it rings.
    file.write_all_at(&10_u32.to_le_bytes(), geometry.lane_at(0) as u64).unwrap();
    let sync = Submission { operation: op::SYNC.into(), ..Submission::default() };
    Client::new(door.memory(), 0).submit(sync, door.bell());
    let completed = || {
        let mut count = [0; 4];
        file.read_exact_at(&mut count, (geometry.lane_at(0) + COMPLETED_AT) as u64).unwrap();
        u32::from_le_bytes(count)
    };
    while completed() != 11 {
        task::yield_now();
    }
    let size = fs.lookup(Ino::ROOT, Name::new(b"f").unwrap()).unwrap().attr.size;
    assert_eq!(size, 8, "no append was carried out twice");
}

/// A mount on a device with so many processors.
fn with_processors(processors: u64) -> DevFs<Ssd> {
    let mut profile = Profile::named("devfs-dram").expect("the profile exists");
    profile.firmware.kind = Firmware::FileSystem;
    profile.firmware.cores = processors;
    profile.firmware.memory_bytes = 4 << 20;
    profile.log.region_bytes = 4 << 20;
    let ssd = Arc::new(Ssd::try_in_memory(&profile, 128 << 20, &OpenOptions::default()).expect("an SSD"));
    assert_eq!(ssd.processors(), Ok(processors as usize));
    let format = FormatOptions { inodes: Some(12_000), ..FormatOptions::default() };
    DevFs::format(&ssd, &format).expect("the SSD can be formatted");
    DevFs::mount(&ssd, &MountOptions::default()).expect("it can be mounted")
}

/// Virtual time in which four lanes carry out 32 writes each on a device with `processors` processors, ns.
fn time_of_writes(processors: u64) -> u64 {
    Sim::new(1).run(move || {
        let fs = with_processors(processors);
        let door = door(&fs, 4, Cred::ROOT);
        let handles: Vec<u64> = (0..4)
            .map(|lane| Library::new(&door, lane).create(format!("f{lane}").as_bytes(), 0o600))
            .collect();
        let began = time::now_ns();
        let lanes: Vec<_> = (0..4)
            .map(|lane| {
                let (door, handle) = (Arc::clone(&door), handles[lane as usize]);
                task::spawn("program", move || {
                    let mut library = Library::new(&door, lane);
                    for write in 0..32 {
                        assert_eq!(library.write(handle, write * 1024, &[7; 1024]), code::DONE);
                    }
                })
            })
            .collect();
        lanes.into_iter().for_each(task::JoinHandle::join);
        let took = time::now_ns() - began;
        fs.unmount().expect("an idle file system unmounts");
        took
    })
}

#[test]
fn throughput_grows_with_the_devices_processors() {
    let times = [1, 2, 4].map(time_of_writes);
    let speedup = [times[0] as f64 / times[1] as f64, times[0] as f64 / times[2] as f64];
    assert!((1.8..=2.2).contains(&speedup[0]) && (3.6..=4.4).contains(&speedup[1]), "{times:?}");
}

#[test]
fn without_power_a_command_fails_and_says_so() {
    let fs = small::make(&MountOptions::default());
    let door = door(&fs, 1, Cred::ROOT);
    let mut library = Library::new(&door, 0);
    let handle = library.create(b"f", 0o600);
    fs.device().power_cut(1);
    assert_eq!(library.write(handle, 0, b"x"), code::IO);
}

/// Takes note of what clients change.
#[derive(Clone, Default)]
struct Changes(Arc<amphi_rt::sync::Mutex<Vec<Ino>>>);

impl Watcher for Changes {
    fn inode(&self, ino: Ino) {
        self.0.lock().push(ino);
    }

    fn name(&self, dir: Ino, _: Name<'_>, _renames: u64) -> bool {
        self.0.lock().push(dir);
        true
    }
}

/// Where a mount's commands go.
struct Opened;

impl TakeCommands<DevFs<Ssd>> for Opened {
    type Out = &'static str;

    fn by_calls(self, _: &Arc<DevFs<Ssd>>) -> Self::Out {
        "calls, as the kernel's"
    }

    fn by_device<C: CommandDevice>(self, _: &Arc<C>) -> Self::Out {
        "the device"
    }
}

#[test]
fn programs_commands_go_to_the_device_and_the_kernel_hears_of_them() {
    let fs = Arc::new(small::make(&MountOptions::default()));
    assert_eq!(DevFs::take_commands(&fs, Opened), "the device");
    let changes = Changes::default();
    let register =
        |uid| CommandDevice::register(&*fs, &user(uid), 10, changes.clone()).expect("there is room");
    let (one, two) = (register(1000), register(1001));
    let memory = Memory::private(Geometry::new(1, PAYLOAD).unwrap()).unwrap();
    let mut caller = Caller::new(Cred::ROOT);
    let mut make = |executor: &Reception<Ssd, Changes>, path: &[u8], credential: u64| {
        memory.payload(0).put(path);
        let command = Submission {
            operation: op::MAKE_DIRECTORY.into(),
            credential: credential.into(),
            first: Span::new(0, path.len() as u32),
            argument: 0o755.into(),
            ..Submission::default()
        };
        executor.execute(&mut caller, &command, memory.payload(0)).status.get()
    };
    assert_eq!(make(&one, b"d", 0), code::PERMISSION_DENIED, "the root directory is root's");
    let open_to_all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    fs.setattr(Ino::ROOT, &open_to_all, &Cred::ROOT).expect("it is there");
    assert_eq!(make(&one, b"d", 0), code::DONE);
    assert_eq!(fs.lookup(Ino::ROOT, Name::new(b"d").unwrap()).unwrap().attr.uid, 1000);
    assert!(changes.0.lock().contains(&Ino::ROOT), "the kernel is to forget what it knows of the root");
    assert_eq!(make(&two, b"d/e", 0), code::PERMISSION_DENIED);
    assert_eq!(fs.stats()["buffered_commands"], 3);
    // Who has gone is nobody any more, whatever is left of its buffer.
    one.close();
    assert_eq!(make(&one, b"f", 0), code::BAD_CREDENTIAL);
    two.close();
    assert_eq!(fs.stats()["memory"]["credentials"], 0);
}

/// Asks about what has changed, as the kernel may be doing just then.
#[derive(Clone)]
struct Asks(Arc<DevFs<Ssd>>, Arc<amphi_rt::sync::Mutex<Vec<u64>>>);

impl Watcher for Asks {
    fn inode(&self, ino: Ino) {
        let size = self.0.getattr(ino).expect("it is there").size;
        self.1.lock().push(size);
    }

    fn name(&self, dir: Ino, name: Name<'_>, _renames: u64) -> bool {
        let found = self.0.lookup(dir, name).expect("it is there");
        self.0.forget(found.attr.ino, 1);
        self.inode(found.attr.ino);
        true
    }
}

/// Who waited for the kernel with the last processor in its hand would wait for itself.
#[test]
fn the_kernel_hears_of_changes_when_the_processor_is_free_again() {
    Sim::new(1).run(|| {
        let fs = Arc::new(with_processors(1));
        let asks = Asks(Arc::clone(&fs), Arc::default());
        let program = CommandDevice::register(&*fs, &Cred::ROOT, 10, asks.clone()).expect("there is room");
        let memory = Memory::private(Geometry::new(1, PAYLOAD).unwrap()).unwrap();
        let mut caller = Caller::new(Cred::ROOT);
        memory.payload(0).put(b"d");
        let command = Submission {
            operation: op::MAKE_DIRECTORY.into(),
            first: Span::new(0, 1),
            argument: 0o755.into(),
            ..Submission::default()
        };
        assert_eq!(program.execute(&mut caller, &command, memory.payload(0)).status.get(), code::DONE);
        program.close();
        assert_eq!(asks.1.lock().len(), 1, "it hears of the name, once");
    });
}
