//! Inputs that libFuzzer found and what they showed; each was an error once.

use amphi_hostile::{augefs_image, bytefs_image, devfs_image, queue, romefs_image};

/// A superblock that counts 2^64 - 1 mounts: mounting counted one more.
#[test]
fn the_mount_counter_may_be_full() {
    bytefs_image(&[0x18, 0x06, 0x01, 0x3b, 0x01]);
}

/// A superblock whose first time stamp is nearly 2^64: a check and a mount counted on from it.
#[test]
fn the_first_time_stamp_may_be_nearly_the_last() {
    let slot = [0xf8, 0x96, 0x00, 0x80, 0x3a, 0x3a];
    let rest = [0x01, 0x00, 0x00, 0x07, 0x00, 0x69, 0x74, 0x27, 0xff, 0xff, 0xff, 0x0f];
    let end = *b"abilit'-\x8c";
    devfs_image(&[&slot[..], &[0; 22], &rest, &end].concat());
}

/// An inode with too many levels of pointers, and a queue of its parts that a mount brings in place.
#[test]
fn a_damaged_inode_may_have_a_queue() {
    let slot = [0xfd, 0xe7, 0x2f, 0x60, 0x0a, 0x92, 0x90, 0x21];
    devfs_image(&[&slot[..], &[b'/'; 12], b"\0block_durabili///entr#15pu_n"].concat());
}

/// All inodes are orphans, and no directory names them any more: a repair left those that have links.
#[test]
fn orphans_may_have_links() {
    let marked = [0xff, 0x5c, 0xb6, 0x43, 0xb3, 0x81, 0x81, 0x81, 0x33, 0x06, 0x0b, 0, 0, 0, 0x24, 0xe8];
    romefs_image(&marked);
}

/// A plan in which there is nothing of a kind: whoever wanted one looked in no part of it.
#[test]
fn there_may_be_nothing_to_hand_out() {
    romefs_image(b"$$$");
}

/// The head of a journal's lane lies rounds behind: what a repair wrote led to records of before.
#[test]
fn a_head_of_the_journal_may_lie_rounds_behind() {
    let first = [0x11, 0xff, 0x15, 0x1c, 0x01, 0xf8, 0xe4, 0xe4, 0xe4, 0xf8, 0xf8, 0xf8, 0xf8, 0x3a, 0x9a];
    let second = [0xca, 0x00, 0x0e, 0x00, 0x06, 0xc2, 0xc2, 0xc2, 0xc2, 0xc2, 0xc2, 0xc2, 0xc2, 0x3a, 0x0b];
    romefs_image(&[&first[..], &second, b"files\x0cH"].concat());
}

/// An inode with the last number of all: a check counted on from it.
#[test]
fn an_inode_may_say_the_last_number() {
    augefs_image(&[0x5b, 0, 0x5b, 0, 1, 1, 0xa6, 1, 0, 1, 1, 0xa6, 1, 0, 0, 2]);
}

/// A rename is refused as `BUSY`: what was looked for here knew of no such answer.
#[test]
fn a_client_may_be_told_that_something_is_busy() {
    let first = [40, 104, 104, 124, 1, 0, 64, 124, 124, 124, 124, 124, 1, 64, 64, 3, 3, 124];
    let second = [124, 117, 64, 64, 64, 124, 124, 124, 124, 124, 1, 0, 0, 64, 64, 3, 3];
    queue(&[&first[..], &second].concat());
}
