//! A file system's label and UUID change, all or nothing after a power cut, and nothing else does.

use std::sync::Arc;

use amphi_ssd::Ssd;
use amphi_vfs::{Cred, FileType, Ino, Name, WriteMode};
use amphi_volume::{About, Changes, Error, MountOptions, Volume};
use amphi_volumes::{Act, Kind};

use crate::list::{device, make};

/// Those that are not tuned, and say so.
const NEVER: [Kind; 2] = [Kind::Ext4like, Kind::Toy];

fn changes() -> Changes {
    Changes { label: Some("tuned".to_owned()), uuid: Some([7; 16]), ..Changes::default() }
}

/// Leaves a file that is durable, and a mount that does not end.
struct Use<'a>(&'a Arc<Ssd>);

impl Act<Ssd> for Use<'_> {
    type Out = ();

    fn on<V: Volume<Ssd>>(self) {
        let fs = V::mount(self.0, &MountOptions::default()).expect("what was made mounts");
        let name = Name::new(b"file").expect("a plain name");
        let made = fs.create(Ino::ROOT, name, FileType::Regular, 0o644, 0, &Cred::ROOT);
        let ino = made.expect("there is room").attr.ino;
        assert_eq!(fs.write(ino, 0, b"kept", WriteMode::default(), &Cred::ROOT), Ok(4));
        fs.fsync(ino, false).expect("it can be synced");
        fs.sync().expect("it can be synced");
    }
}

struct Tune<'a>(&'a Ssd, &'a Changes);

impl Act<Ssd> for Tune<'_> {
    type Out = amphi_volume::Result<About>;

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        V::tune(self.0, self.1)
    }
}

/// Finds the file, and what the superblock says; the file system is sound.
struct Look(Arc<Ssd>);

impl Act<Ssd> for Look {
    type Out = (String, [u8; 16]);

    fn on<V: Volume<Ssd>>(self) -> Self::Out {
        let title = V::IDENTITY.title;
        let fs = V::mount(&self.0, &MountOptions::default()).expect("it mounts");
        let found = fs.lookup(Ino::ROOT, Name::new(b"file").expect("a plain name"));
        let mut bytes = [0; 5];
        let ino = found.expect("it is there").attr.ino;
        assert_eq!((fs.read(ino, 0, &mut bytes, false), &bytes[..4]), (Ok(4), &b"kept"[..]), "{title}");
        fs.forget(ino, 1);
        let About { label, uuid, .. } = fs.about();
        fs.unmount().expect("it is idle");
        let report = V::check(&self.0, &mut |_| {}).expect("it can be checked");
        assert!(report.is_clean(), "{title}: {:?}", report.findings);
        let about = V::probe(&self.0).expect("it is there");
        assert_eq!((&about.label, about.uuid), (&label, uuid), "{title}");
        (label, uuid)
    }
}

#[test]
fn label_and_uuid_change_all_or_nothing() {
    for kind in Kind::ALL.iter().copied() {
        let device = device(kind);
        make(kind, &device);
        kind.with(Use(&device));
        device.power_cut(1);
        let device = Arc::into_inner(device).expect("nobody else has it").restart().expect("it powers up");
        if NEVER.contains(&kind) {
            let refused = kind.with(Tune(&device, &changes()));
            assert!(matches!(refused, Err(Error::Unsupported { .. })), "{kind:?}");
            continue;
        }
        let long = Changes { label: Some("x".repeat(33)), ..Changes::default() };
        let refused = kind.with(Tune(&device, &long)).expect_err("it is too long").to_string();
        assert!(refused.contains("label is longer than 32 bytes"), "{kind:?}: {refused}");
        let (mut before, mut steps, mut cut) = (0, 0, true);
        while cut {
            // What of the lines under way arrives is the dice's.
            for seed in 0..8 {
                let fork = device.fork().expect("there is memory");
                fork.cut_after_steps(steps, seed);
                let done = kind.with(Tune(&fork, &changes()));
                cut = done.is_err();
                assert!(!cut || steps < 1000, "{kind:?}: {done:?}");
                if let Ok(about) = done {
                    assert_eq!((about.label.as_str(), about.uuid), ("tuned", [7; 16]), "{kind:?}");
                }
                fork.power_cut(seed);
                let fork = Arc::new(fork.restart().expect("it powers up"));
                match kind.with(Look(fork)) {
                    (label, uuid) if label == "tuned" => assert_eq!(uuid, [7; 16], "{kind:?}"),
                    (label, uuid) => {
                        let old = cut && label == "list" && uuid != [7; 16];
                        assert!(old, "{kind:?} after {steps} steps, seed {seed}");
                        before += 1;
                    }
                }
            }
            steps += 1;
        }
        assert!(before > 0, "{kind:?}: no cut came before the change");
    }
}

#[test]
fn those_that_keep_no_mount_options_say_so() {
    let options = Changes { options: Some(String::new()), ..changes() };
    for kind in Kind::ALL.iter().copied().filter(|kind| !NEVER.contains(kind)) {
        let device = device(kind);
        make(kind, &device);
        let outcome = kind.with(Tune(&device, &options));
        let keeps = [Kind::Bytefs, Kind::Romefs].contains(&kind);
        assert_eq!(outcome.is_ok(), keeps, "{kind:?}");
        let named = kind.with(Tune(&device, &Changes::default())).expect("nothing to change").label;
        assert_eq!(named, if keeps { "tuned" } else { "list" }, "{kind:?}");
    }
}
