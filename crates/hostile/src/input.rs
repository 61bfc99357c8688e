//! Bytes taken one after the other as numbers. When they run out there are only zeros, and the end can be
//! asked for.

/// What is left of the input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of the input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `bytes`, or as many as are left.
    pub fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn number(&mut self, bytes: usize) -> u64 {
        self.take(bytes).iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        self.number(1) as u8
    }

    /// True for one in `n` values of the next byte.
    pub fn one_in(&mut self, n: u8) -> bool {
        self.u8().is_multiple_of(n)
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        self.number(2) as u16
    }

    /// The next four bytes.
    pub fn u32(&mut self) -> u32 {
        self.number(4) as u32
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number(if bound > 1 << 16 { 4 } else { 2 }) % bound.max(1)
    }

    /// A number that is likely to be a limit of something: small, huge, a power of two, near `limit`, or any.
    pub fn telling(&mut self, limit: u64) -> u64 {
        match self.u8() % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => limit,
            3 => limit.wrapping_sub(u64::from(self.u8())),
            4 => limit.wrapping_add(u64::from(self.u8())),
            5 => 1_u64.rotate_left(u32::from(self.u8())),
            6 => u64::from(self.u8()),
            _ => self.number(8),
        }
    }
}
