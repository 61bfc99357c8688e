//! The durability contract: what survives what. Declared once by the device; read by file systems, which take
//! their guarantees from it, and by the emulator's power-cut code, which takes its licence to destroy from
//! it.

/// When a store on the byte port is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteDurability {
    /// After its lines were flushed and fenced, and a write-verify read returned (PCIe posted writes).
    VerifyRead,
    /// After its lines were flushed and fenced (CXL.mem with global persistent flush), unless
    /// [`verify_read`](crate::BytePort::verify_read) then says that the device could not accept them.
    Fence,
}

/// When a write on the block port is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockDurability {
    /// When the command completes: the write buffer is protected against power loss.
    Completion,
    /// After the next `flush` that starts once it has completed: the write buffer is volatile.
    Flush,
}

/// What survives a host crash and a power loss.
///
/// *Host crash*: CPU caches and write-combining buffers are lost in any 8 B aligned part; what was posted and
/// what the device holds stays. *Power loss*: additionally posted writes may be lost in any part, and block
/// writes in flight (and, with [`BlockDurability::Flush`], completed but unflushed ones) may be kept,
/// dropped, or torn at `block_atomic_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurabilityContract {
    /// Naturally aligned bytes of a store that are never torn. At least 8.
    pub store_atomic_bytes: u32,
    /// When a store is durable.
    pub byte_durability: ByteDurability,
    /// Aligned bytes of a block write that are never torn, 512 to 4096.
    pub block_atomic_bytes: u32,
    /// When a block write is durable.
    pub block_durability: BlockDurability,
    /// Whether `commit` makes the transaction durable when it returns, and all of its stores with it or none.
    pub transactions: bool,
}
