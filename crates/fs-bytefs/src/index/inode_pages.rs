//! Pages of the inode table in host DRAM (BY-9): a miss loads the whole page by block, so that its 31
//! neighbours come along; updates travel by bytes and are noted here once they are durable.
//!
//! A page that is being read is locked. A committed update looks for its page only after its commit, so it
//! finds either a page read before, which it patches, or none, and then a later read sees the update on the
//! device.

use std::sync::Arc;

use amphi_device::Lpa;
use amphi_rt::hash::HashMap;
use amphi_rt::sync::{Mutex, Padded};
use amphi_vfs::Result;

use crate::format::{INODE_BYTES, PAGE};
use crate::planted::{self, Bug};

const SHARDS: usize = 16;
/// Pages kept per shard: 16 MB of inode table in all, 131,072 inodes.
const SHARD_PAGES: usize = 256;

type Page = Arc<Mutex<Option<Box<[u8; PAGE]>>>>;

/// The cache.
#[derive(Default)]
pub struct InodePages {
    shards: [Padded<Mutex<HashMap<u64, Page>>>; SHARDS],
}

impl InodePages {
    fn shard(&self, page: u64) -> &Mutex<HashMap<u64, Page>> {
        &self.shards[page as usize % SHARDS]
    }

    /// The inode at byte `offset` of `page`, as the device holds it. `load` reads a page that is not here.
    ///
    /// # Errors
    /// Those of `load`.
    pub fn read(
        &self,
        (page, offset): (u64, usize),
        load: impl FnOnce(Lpa, &mut [u8]) -> Result<()>,
    ) -> Result<[u8; INODE_BYTES]> {
        let cached = {
            let mut shard = self.shard(page).lock();
            if shard.len() >= SHARD_PAGES && !shard.contains_key(&page) {
                let victim = shard.keys().copied().next();
                victim.map(|victim| shard.remove(&victim));
            }
            Arc::clone(shard.entry(page).or_default())
        };
        let mut cached = cached.lock();
        if cached.is_none() || planted::has(Bug::InodePageForgotten) {
            let mut bytes = Box::new([0; PAGE]);
            load(Lpa(page), &mut bytes[..])?;
            *cached = Some(bytes);
        }
        let mut inode = [0; INODE_BYTES];
        if let Some(bytes) = cached.as_ref() {
            inode.copy_from_slice(&bytes[offset..offset + INODE_BYTES]);
        }
        Ok(inode)
    }

    /// Notes that `bytes` are now on the device at byte address `at`.
    pub fn note(&self, at: u64, bytes: &[u8]) {
        let page = at / PAGE as u64;
        let Some(cached) = self.shard(page).lock().get(&page).map(Arc::clone) else { return };
        if let Some(cached) = cached.lock().as_mut() {
            let offset = (at % PAGE as u64) as usize;
            cached[offset..offset + bytes.len()].copy_from_slice(bytes);
        }
    }
}
