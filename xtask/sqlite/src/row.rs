//! The rows: everything in a row follows from its number, so that a row read back proves itself.

/// Bytes in a row's payload: with the record's overhead about 128 bytes a row.
pub const PAYLOAD_BYTES: usize = 100;

/// The table that holds them.
pub const CREATE_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, payload BLOB NOT NULL) STRICT";

/// The payload of row `id`.
pub fn payload(id: i64) -> [u8; PAYLOAD_BYTES] {
    // splitmix64: cheap, and no two neighbouring rows look alike.
    let mut state = id as u64;
    let mut bytes = [0; PAYLOAD_BYTES];
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(word ^ (word >> 31)).to_le_bytes()[..chunk.len()]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_differ_and_repeat() {
        assert_eq!(payload(7), payload(7));
        assert_ne!(payload(7), payload(8));
        assert_ne!(payload(7)[..8], payload(7)[8..16]);
    }
}
