//! Keys of the metadata store.

use smallvec::SmallVec;

/// What a key names. Numbers stand big-endian, so that keys of one kind sort by them.
#[derive(Clone, Copy, Debug)]
pub enum Key<'a> {
    /// `m.superblock`: what changes of the file system as a whole.
    Super,
    /// `m:<parent>:<hash><name>`: an entry, mostly with its inode.
    Entry(u64, &'a [u8]),
    /// `i:<ino>`: where an inode is, or the inode.
    Inode(u64),
    /// `x:<ino>`: extended attributes.
    Attributes(u64),
    /// `l:<ino>`: a symbolic link's target that is not in its inode.
    Target(u64),
    /// `n:<ino>:<chunk>`: numbers of nodes beyond those in the inode.
    Nodes(u64, u64),
    /// `o:<ino>`: an inode without names, or whose deletion has begun.
    Orphan(u64),
    /// `sit:<segment>:<version>`: which blocks of a segment are valid, as of a checkpoint.
    Sit(u32, u64),
    /// `cp:<domain>`: the last checkpoint.
    Checkpoint(u16),
    /// `t:<domain>:<sequence>`: what has become of segments and nodes since the checkpoint.
    Intents(u16, u64),
}

/// Bytes of a key that needs no memory of its own: with a name of 45 bytes.
const KEY_BYTES: usize = 64;
/// The bytes of a key.
pub type KeyBytes = SmallVec<[u8; KEY_BYTES]>;

/// The bytes of a key.
#[must_use]
pub fn key(of: Key<'_>) -> KeyBytes {
    match of {
        Key::Super => parts([b"m.superblock"]),
        Key::Entry(parent, name) => {
            parts([b"m:", &parent.to_be_bytes(), b":", &name_hash(name).to_be_bytes(), name])
        }
        Key::Inode(ino) => parts([b"i:", &ino.to_be_bytes()]),
        Key::Attributes(ino) => parts([b"x:", &ino.to_be_bytes()]),
        Key::Target(ino) => parts([b"l:", &ino.to_be_bytes()]),
        Key::Nodes(ino, chunk) => parts([b"n:", &ino.to_be_bytes(), b":", &chunk.to_be_bytes()]),
        Key::Orphan(ino) => parts([b"o:", &ino.to_be_bytes()]),
        Key::Sit(segment, version) => parts([b"sit:", &segment.to_be_bytes(), b":", &version.to_be_bytes()]),
        Key::Checkpoint(domain) => parts([b"cp:", &domain.to_be_bytes()]),
        Key::Intents(domain, sequence) => {
            parts([b"t:", &domain.to_be_bytes(), b":", &sequence.to_be_bytes()])
        }
    }
}

/// Parts one behind the other. Most keys are put together where they fit without memory of their own, by
/// copies whose sizes are mostly known.
#[inline]
fn parts<const N: usize>(parts: [&[u8]; N]) -> KeyBytes {
    let len = parts.iter().map(|part| part.len()).sum();
    let mut bytes = [0; KEY_BYTES];
    if len > bytes.len() {
        return KeyBytes::from_vec(parts.concat());
    }
    let mut at = 0;
    for part in parts {
        bytes[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    KeyBytes::from_buf_and_len(bytes, len)
}

/// The first key behind all that begin with `prefix`, whose last byte is not 255.
#[must_use]
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// The hash by which a directory lists: 55 bits above 8 zeros, which a cookie has for names of one hash.
/// Never 0.
#[must_use]
pub fn name_hash(name: &[u8]) -> u64 {
    let mut hash = (u64::from(crc32c::crc32c(name)) << 32) ^ name.len() as u64;
    for part in name.chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^= hash >> 29;
    }
    ((hash >> 9).max(1)) << 8
}
