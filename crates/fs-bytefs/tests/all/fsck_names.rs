//! One planted corruption per finding about directories, names, links and symbolic links, its checksum
//! renewed, and exactly the findings that follow from it.

use amphi_fs_bytefs::format::*;
use amphi_fs_bytefs::fsck::{EntryAt, FindingKind as F, FoundName};

use crate::fsck_image::*;

fn entry_at(image: &Image, dir: u32, name: &str) -> EntryAt {
    let at = image.entry(dir, name);
    EntryAt { dir, page: (at / PAGE) as u32, offset: (at % PAGE) as u16 }
}

fn name(text: &str) -> FoundName {
    FoundName(text.into())
}

#[test]
fn unreachable_and_orphaned_inodes() {
    expect(
        |i| i.put_file(FREE_INODE, 1, 0, 0, &[], 0),
        |_| vec![F::InodeUnreachable { ino: FREE_INODE, what: "a file" }],
    );
    expect(
        |i| i.put_dir(FREE_INODE, DOCS, 2),
        |_| vec![F::InodeUnreachable { ino: FREE_INODE, what: "a directory" }],
    );
    expect(|i| i.set_orphan(3, 0), |_| vec![F::OrphanNotInTable { ino: DELETED }]);
    expect(|i| i.set_orphan(700, FREE_INODE), |_| vec![F::OrphanSlotInvalid { slot: 700, ino: FREE_INODE }]);
    expect(|i| i.set_orphan(700, u32::MAX), |_| vec![F::OrphanSlotInvalid { slot: 700, ino: u32::MAX }]);
    expect(|i| i.set_orphan(0, ROOT_INO), |_| vec![F::OrphanSlotInvalid { slot: 0, ino: ROOT_INO }]);
    expect(|i| i.set_orphan(5000, DELETED), |_| vec![F::OrphanSlotDuplicate { slot: 5000, ino: DELETED }]);
}

#[test]
fn a_deleted_directory_is_empty() {
    expect(
        |i| {
            i.put_dir(FREE_INODE, DOCS, 0);
            i.set_orphan(1, FREE_INODE);
            i.name(FREE_INODE, "another", FILE, mode::REGULAR);
            i.edit_lower(FILE, |l| l.nlink = 3.into());
            i.write_dirs();
        },
        |_| vec![F::OrphanDirectoryNotEmpty { ino: FREE_INODE, entries: 1 }],
    );
}

#[test]
fn link_counts() {
    let wrong = |ino, stored, actual| vec![F::LinkCountWrong { ino, stored, actual }];
    expect(|i| i.edit_lower(FILE, |l| l.nlink = 1.into()), |_| wrong(FILE, 1, 2));
    expect(|i| i.edit_lower(FILE, |l| l.nlink = 0.into()), |_| wrong(FILE, 0, 2));
    expect(|i| i.edit_lower(DOCS, |l| l.nlink = 2.into()), |_| wrong(DOCS, 2, 3));
}

#[test]
fn directory_holes_and_sizes() {
    let hole = |file_page| F::DirectoryHole { ino: DOCS, file_page };
    let mut image = Image::sample();
    let entries = image.lower(DOCS).size.get();
    image.edit_lower(DOCS, |l| l.size = (entries + PAGE as u64).into());
    assert!(image.findings().contains(&hole(2)), "{:?}", image.findings());
    let mut image = Image::sample();
    image.edit_upper(DOCS, |u| {
        let lba = u.root[0].lba.get();
        u.count = 2.into();
        u.root[0] = extent(0, lba, 1);
        u.root[1] = extent(2, lba + 1, 1);
    });
    assert!(image.findings().contains(&hole(1)), "{:?}", image.findings());
    let mut image = Image::sample();
    image.edit_upper(DOCS, |u| u.root[0].file_page = 1.into());
    assert!(image.findings().contains(&hole(0)), "{:?}", image.findings());
    expect(|i| i.edit_upper(DOCS, |u| u.root[0] = reserved(u.root[0])), |_| vec![hole(0)]);
    expect(
        |i| i.edit_lower(DOCS, |l| l.size = (l.size.get() + 8).into()),
        |i| vec![F::DirectorySizeWrong { ino: DOCS, size: i.lower(DOCS).size.get() + 8 }],
    );
    expect(
        |i| i.edit_lower(DOCS, |l| l.size = (l.size.get() - 8).into()),
        |i| {
            let size = i.lower(DOCS).size.get() - 8;
            vec![
                F::DirectorySizeWrong { ino: DOCS, size },
                F::LinkCountWrong { ino: DOCS, stored: 3, actual: 2 },
                F::InodeUnreachable { ino: SUB, what: "a directory" },
            ]
        },
    );
}

#[test]
fn entry_lengths() {
    for (lines, name_bytes) in [(0, 4), (64, 4), (1, 57), (1, 65535)] {
        let mut image = Image::sample();
        let at = entry_at(&image, ROOT_INO, "long");
        image.edit_entry(ROOT_INO, "long", |h, _| {
            h.lines = lines;
            h.name_bytes = name_bytes.into();
        });
        let found = image.findings();
        assert_eq!(found[0], F::EntryLengthBad { at }, "lines {lines}, name {name_bytes}");
        assert!(
            found.contains(&F::InodeUnreachable { ino: LONG_LINK, what: "a symbolic link" }),
            "{found:?}"
        );
    }
}

#[test]
fn entry_names() {
    for bad in ["a/b", "a\0b", ".", ".."] {
        expect(
            |i| {
                i.edit_entry(ROOT_INO, "long", |h, rest| {
                    h.name_bytes = (bad.len() as u16).into();
                    rest[..bad.len()].copy_from_slice(bad.as_bytes());
                });
            },
            |i| vec![F::EntryNameBad { at: entry_at(i, ROOT_INO, "long"), name: name(bad) }],
        );
    }
    expect(
        |i| i.edit_entry(ROOT_INO, "long", |h, _| h.name_bytes = 0.into()),
        |i| vec![F::EntryNameBad { at: entry_at(i, ROOT_INO, "long"), name: name("") }],
    );
    expect(
        |i| {
            i.edit_entry(ROOT_INO, "long", |h, rest| {
                h.name_bytes = 4.into();
                rest[..4].copy_from_slice(b"file");
            });
        },
        |i| vec![F::EntryNameDuplicate { at: entry_at(i, ROOT_INO, "long"), name: name("file") }],
    );
}

#[test]
fn entries_to_nowhere() {
    for ino in [FREE_INODE, INODES, u32::MAX] {
        expect(
            |i| i.edit_entry(SUB, "leaf", |h, _| h.ino = ino.into()),
            |i| {
                vec![
                    F::EntryToFreeInode { at: entry_at(i, SUB, "leaf"), name: name("leaf"), ino },
                    F::InodeUnreachable { ino: LEAF, what: "a file" },
                ]
            },
        );
    }
}

#[test]
fn entry_types() {
    expect(
        |i| i.edit_entry(SUB, "leaf", |h, _| h.file_type = 4),
        |i| {
            vec![F::EntryTypeWrong {
                at: entry_at(i, SUB, "leaf"),
                name: name("leaf"),
                ino: LEAF,
                found: 4,
                expected: 8,
            }]
        },
    );
}

#[test]
fn directories_form_a_tree() {
    // "leaf" becomes a second name of its grandparent.
    let mut image = Image::sample();
    let at = entry_at(&image, SUB, "leaf");
    image.edit_entry(SUB, "leaf", |h, _| {
        h.ino = DOCS.into();
        h.file_type = 4;
    });
    let found = image.findings();
    assert!(found.contains(&F::DirectoryTwoParents { ino: DOCS, at }), "{found:?}");
    let mut image = Image::sample();
    image.edit_entry(SUB, "leaf", |h, _| {
        h.ino = ROOT_INO.into();
        h.file_type = 4;
    });
    let found = image.findings();
    assert!(found.contains(&F::DirectoryTwoParents { ino: ROOT_INO, at }), "{found:?}");
    // "docs" gets lost, and its grandchild becomes its parent.
    let mut image = Image::sample();
    image.edit_entry(ROOT_INO, "docs", |h, _| h.ino = 0.into());
    image.edit_entry(SUB, "leaf", |h, _| {
        h.ino = DOCS.into();
        h.file_type = 4;
    });
    let found = image.findings();
    assert!(found.contains(&F::DirectoryCycle { ino: DOCS }), "{found:?}");
    assert!(found.contains(&F::DirectoryParentWrong { ino: DOCS, stored: 1, actual: SUB }), "{found:?}");
    let wrong = |ino, stored, actual| vec![F::DirectoryParentWrong { ino, stored, actual }];
    expect(|i| i.edit_upper(SUB, |u| u.parent_or_rdev = 1.into()), |_| wrong(SUB, 1, DOCS));
    expect(|i| i.edit_upper(ROOT_INO, |u| u.parent_or_rdev = 5.into()), |_| wrong(ROOT_INO, 5, 1));
}

#[test]
fn symlink_targets() {
    let bad = |ino, reason| vec![F::SymlinkTargetBad { ino, reason }];
    expect(
        |i| i.edit_upper(LONG_LINK, |u| u.root[0] = reserved(u.root[0])),
        |_| bad(LONG_LINK, "its page is only reserved"),
    );
    let contradicts = "its length in the inode contradicts its size";
    expect(|i| i.edit_lower(INLINE_LINK, |l| l.size = 12.into()), |_| bad(INLINE_LINK, contradicts));
    expect(
        |i| {
            i.edit_lower(INLINE_LINK, |l| l.size = 49.into());
            i.edit_upper(INLINE_LINK, |u| u.count = 49.into());
        },
        |_| bad(INLINE_LINK, contradicts),
    );
    expect(
        |i| {
            i.edit_lower(INLINE_LINK, |l| l.size = 14.into());
            i.edit_upper(INLINE_LINK, |u| u.count = 14.into());
        },
        |_| bad(INLINE_LINK, "it holds a NUL byte"),
    );
    expect(|i| i.edit_lower(LONG_LINK, |l| l.size = 101.into()), |_| bad(LONG_LINK, "it holds a NUL byte"));
    expect(
        |i| i.edit_lower(LONG_LINK, |l| l.size = 4096.into()),
        |_| bad(LONG_LINK, "it is longer than 4095 bytes"),
    );
    expect(
        |i| i.edit_lower(LONG_LINK, |l| l.size = 48.into()),
        |_| bad(LONG_LINK, "it is short and not in the inode"),
    );
    let mut image = Image::sample();
    image.edit_upper(LONG_LINK, |u| u.count = 0.into());
    assert_eq!(image.findings()[0], bad(LONG_LINK, "its page is missing")[0]);
}

#[test]
fn access_control_lists() {
    let with = |value: &'static str| {
        let mut image = Image::sample();
        image.put_attributes(LEAF, &[("system.posix_acl_access", value)]);
        image.findings()
    };
    // Version 2, then nothing or half an entry.
    for value in ["", "\u{2}\0\0\0", "\u{2}\0\0\0\u{1}\0", "no list"] {
        let found = with(value);
        let no_list = |reason: &str| reason == "an access control list is none";
        assert!(
            matches!(&found[..], [F::AttributesBad { ino: LEAF, reason, .. }] if no_list(reason)),
            "{value:?}: {found:?}"
        );
    }
    let entry = |tag: char, permissions: char, id: &str| format!("{tag}\0{permissions}\0{id}");
    let nobody = "\u{1}\0\0\0";
    let list = ["\u{2}\0\0\0", &entry('\u{1}', '\u{6}', nobody), &entry('\u{4}', '\u{4}', nobody)].concat()
        + &entry('\u{20}', '\0', nobody);
    assert_eq!(with(list.leak()), []);
}

#[test]
fn reports_are_sentences_and_json() {
    let mut image = Image::sample();
    image.edit_entry(SUB, "leaf", |h, _| h.ino = FREE_INODE.into());
    let report = image.check();
    let at = entry_at(&Image::sample(), SUB, "leaf");
    assert_eq!(
        report.findings[0].to_string(),
        format!("\"leaf\" in directory 8 (page {}, offset 0) names inode 250, which is not in use", at.page)
    );
    let json = serde_json::to_value(&report).expect("a report is JSON");
    assert_eq!(json["findings"][0]["finding"], "entry-to-free-inode");
    assert_eq!(json["findings"][0]["severity"], "error");
    assert_eq!(json["findings"][0]["name"], "leaf");
    assert_eq!(json["errors"], 2);
}
