//! Device profiles: the parameters of one SSD, read from TOML.
//!
//! A profile is copied into every image made with it, so that an image keeps behaving as the device it was
//! made as. The built-in ones are the files of `profiles/`; each value there carries its source.

mod ba_buffer;
mod built_in;
mod firmware;
mod link;
pub(crate) mod probe;

use std::path::Path;

use amphi_device::{BlockDurability, ByteDurability, DurabilityContract, PAGE_BYTES};
use serde::{Deserialize, Serialize};

use crate::error::ProfileError;
use crate::flash::MediaProfile;
pub use ba_buffer::BaBufferProfile;
use built_in::BUILT_IN;
pub use firmware::{Firmware, FirmwareProfile};
pub use link::{CompletionKind, LinkKind, LinkProfile, QueueProfile};

/// A key, its value, whether that is in range, and the range in words.
type Rule = (&'static str, u64, bool, &'static str);

/// The range of every time.
struct Time {
    most: u64,
}

const TIME: Time = Time { most: 1_000_000_000 };

impl Time {
    const fn rule(&self, key: &'static str, ns: u64) -> Rule {
        (key, ns, ns <= self.most, "at most 1000000000 ns")
    }
}

/// The parameters of one SSD.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Short name, as given on command lines.
    pub name: String,
    /// One line for people.
    pub description: String,
    /// The link between host and device.
    pub link: LinkProfile,
    /// Flash chips and the translation layer above them.
    pub flash: FlashProfile,
    /// The firmware's write log.
    pub log: LogProfile,
    /// What the firmware does with the device's memory, and the processors it runs on.
    #[serde(default)]
    pub firmware: FirmwareProfile,
    /// The BA-buffer, where the firmware has one.
    #[serde(default)]
    pub ba_buffer: BaBufferProfile,
    /// Planes, garbage collection, failures.
    #[serde(default)]
    pub media: MediaProfile,
    /// The queues that commands travel through.
    #[serde(default)]
    pub queue: QueueProfile,
    /// What survives what.
    pub persistence: PersistenceProfile,
    /// Figures published about the device, which [`calibrate`](crate::calibrate) measures.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// A figure published about a device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The probe that measures it, with `@` and a number of bytes where it takes one.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where it was published.
    pub source: String,
    /// Why the emulator does not meet it, where it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmet: Option<String>,
}

/// Flash chips and the translation layer above them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashProfile {
    /// Bytes in a flash page: 4096.
    pub page_bytes: u64,
    /// Independent channels, 1 to 64.
    pub channels: u64,
    /// Dies on a channel, 1 to 64.
    pub ways: u64,
    /// Pages in an erase block, 4 to 4096.
    pub pages_per_block: u64,
    /// Time of a page read on its die, in ns.
    pub read_ns: u64,
    /// Time of a page program on its die, in ns.
    pub program_ns: u64,
    /// Time of a block erase on its die, in ns.
    pub erase_ns: u64,
    /// Time that one page occupies its channel, in ns.
    pub transfer_ns: u64,
    /// Flash beyond the host's capacity, in percent of it, 1 to 100. Small devices get at least a few blocks.
    pub over_provisioning_percent: u64,
    /// Pages the write buffer admits before a write waits for programs. With none each write waits for its
    /// own.
    pub write_buffer_pages: u64,
    /// Pages programmed between two checkpoints of the mapping, at least 16: what a power-up after a power
    /// loss has to scan.
    #[serde(default = "FlashProfile::default_checkpoint_pages")]
    pub checkpoint_pages: u64,
    /// Pages of such a checkpoint that are on their way to flash at a time, past the write buffer, so that
    /// what the host writes waits for as many programs at most; 0: they go through the write buffer, and
    /// whoever writes to that die, or takes their place in the buffer, waits for all of them.
    #[serde(default)]
    pub checkpoint_at_once: u64,
}

impl FlashProfile {
    /// 256 MiB of programs: some 40 ms of scanning on 64 dies at 40 us a page.
    const fn default_checkpoint_pages() -> u64 {
        65_536
    }
}

/// The firmware's write log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogProfile {
    /// Bytes of one of the two log regions: a multiple of 4096, 64 KiB to 4 GiB.
    pub region_bytes: u64,
    /// Use of the active region, in percent, at which cleaning starts, 1 to 95.
    pub clean_at_percent: u64,
    /// Bytes of the transaction log of 4 B commit entries: a multiple of 4096, at least 4096.
    pub txlog_bytes: u64,
    /// Bytes of one partition of the log's index: a multiple of 4096, 64 KiB to 64 MiB.
    pub partition_bytes: u64,
}

/// What survives what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PersistenceProfile {
    /// Aligned bytes of a store that are never torn: 8.
    pub store_atomic_bytes: u32,
    /// When a store is durable.
    pub byte_durability: ByteDurabilityName,
    /// Aligned bytes of a block write that are never torn: 512, 1024, 2048 or 4096.
    pub block_atomic_bytes: u32,
    /// When a block write is durable.
    pub block_durability: BlockDurabilityName,
}

/// [`ByteDurability`] as profiles spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ByteDurabilityName {
    /// After a write-verify read.
    VerifyRead,
    /// After flush and fence.
    Fence,
}

/// [`BlockDurability`] as profiles spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockDurabilityName {
    /// On completion.
    Completion,
    /// After a flush.
    Flush,
}

impl Profile {
    /// The names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// The built-in profile called `name`.
    ///
    /// # Errors
    /// [`ProfileError::Unknown`], which lists the names there are.
    pub fn named(name: &str) -> Result<Self, ProfileError> {
        let text =
            BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text).ok_or_else(|| {
                ProfileError::Unknown {
                    name: name.to_owned(),
                    known: Self::names().collect::<Vec<_>>().join(", "),
                }
            })?;
        Self::parse(text)
    }

    /// Reads a profile from a TOML file.
    ///
    /// # Errors
    /// The file cannot be read, or as for [`parse`](Self::parse).
    pub fn load(path: &Path) -> Result<Self, ProfileError> {
        let text = std::fs::read_to_string(path).map_err(|cause| ProfileError::Read {
            path: path.display().to_string(),
            cause: cause.to_string(),
        })?;
        Self::parse(&text)
    }

    /// Reads a profile from TOML text.
    ///
    /// # Errors
    /// [`ProfileError::Syntax`] or [`ProfileError::Value`], which name the key.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text)
            .map_err(|cause| ProfileError::Syntax(cause.to_string().trim_end().to_owned()))?;
        profile.check()?;
        Ok(profile)
    }

    /// The profile as TOML, as an image stores it.
    ///
    /// # Errors
    /// [`ProfileError::Syntax`] if a name cannot be written as TOML.
    pub(crate) fn to_toml(&self) -> Result<String, ProfileError> {
        toml::to_string(self).map_err(|cause| ProfileError::Syntax(cause.to_string()))
    }

    /// Checks every value's range.
    ///
    /// # Errors
    /// [`ProfileError::Value`] naming the first key that is out of range.
    pub fn check(&self) -> Result<(), ProfileError> {
        let (flash, log, persistence) = (&self.flash, &self.log, &self.persistence);
        let firmware = &self.firmware;
        let page = PAGE_BYTES as u64;
        let rules: [Rule; 18] = [
            ("flash.page_bytes", flash.page_bytes, flash.page_bytes == page, "4096"),
            ("flash.channels", flash.channels, (1..=64).contains(&flash.channels), "1 to 64"),
            ("flash.ways", flash.ways, (1..=64).contains(&flash.ways), "1 to 64"),
            (
                "flash.pages_per_block",
                flash.pages_per_block,
                (4..=4096).contains(&flash.pages_per_block),
                "4 to 4096",
            ),
            TIME.rule("flash.read_ns", flash.read_ns),
            TIME.rule("flash.program_ns", flash.program_ns),
            TIME.rule("flash.erase_ns", flash.erase_ns),
            TIME.rule("flash.transfer_ns", flash.transfer_ns),
            (
                "flash.over_provisioning_percent",
                flash.over_provisioning_percent,
                (1..=100).contains(&flash.over_provisioning_percent),
                "1 to 100",
            ),
            (
                "flash.write_buffer_pages",
                flash.write_buffer_pages,
                (0..=1 << 20).contains(&flash.write_buffer_pages),
                "0 to 1048576",
            ),
            (
                "flash.checkpoint_pages",
                flash.checkpoint_pages,
                (16..=1 << 40).contains(&flash.checkpoint_pages),
                "16 to 1099511627776",
            ),
            (
                "flash.checkpoint_at_once",
                flash.checkpoint_at_once,
                (0..=64).contains(&flash.checkpoint_at_once),
                "0 to 64",
            ),
            (
                "log.region_bytes",
                log.region_bytes,
                log.region_bytes.is_multiple_of(page) && (64 << 10..=4 << 30).contains(&log.region_bytes),
                "a multiple of 4096 from 64 KiB to 4 GiB",
            ),
            (
                "log.clean_at_percent",
                log.clean_at_percent,
                (1..=90).contains(&log.clean_at_percent),
                "1 to 90",
            ),
            (
                "log.txlog_bytes",
                log.txlog_bytes,
                log.txlog_bytes.is_multiple_of(page) && (page..=64 << 20).contains(&log.txlog_bytes),
                "a multiple of 4096 from 4 KiB to 64 MiB",
            ),
            (
                "log.partition_bytes",
                log.partition_bytes,
                log.partition_bytes.is_multiple_of(page)
                    && (64 << 10..=64 << 20).contains(&log.partition_bytes),
                "a multiple of 4096 from 64 KiB to 64 MiB",
            ),
            (
                "persistence.store_atomic_bytes",
                u64::from(persistence.store_atomic_bytes),
                persistence.store_atomic_bytes == 8,
                "8",
            ),
            (
                "persistence.block_atomic_bytes",
                u64::from(persistence.block_atomic_bytes),
                [512, 1024, 2048, 4096].contains(&persistence.block_atomic_bytes),
                "512, 1024, 2048 or 4096",
            ),
        ];
        self.media.check()?;
        for point in &self.published {
            if point.unmet.is_none() {
                probe::find(&point.name).map_err(ProfileError::Syntax)?;
            }
        }
        if firmware.kind != Firmware::Log && persistence.block_durability != BlockDurabilityName::Completion {
            let message = "persistence.block_durability must be \"completion\" unless firmware.kind = \"log\": what protects the \
                           memory of the others protects their write buffers too";
            return Err(ProfileError::Syntax(message.to_owned()));
        }
        let rules =
            rules.into_iter().chain(self.link.rules()).chain(self.queue.rules()).chain(firmware.rules());
        let rules = rules.chain(self.ba_buffer.rules());
        for (key, value, fine, expected) in rules {
            if !fine {
                return Err(ProfileError::Value { key, value, expected });
            }
        }
        Ok(())
    }

    /// The durability contract this profile declares.
    ///
    /// A file system that is the firmware writes flash without the link: a page is programmed to a new place
    /// and then mapped, so no failure tears it; its stores are to memory of its own, which capacitors save.
    #[must_use]
    pub fn contract(&self) -> DurabilityContract {
        if self.firmware.kind == Firmware::FileSystem {
            return DurabilityContract {
                store_atomic_bytes: 8,
                byte_durability: ByteDurability::Fence,
                block_atomic_bytes: PAGE_BYTES as u32,
                block_durability: BlockDurability::Completion,
                transactions: false,
            };
        }
        DurabilityContract {
            store_atomic_bytes: self.persistence.store_atomic_bytes,
            byte_durability: match self.persistence.byte_durability {
                ByteDurabilityName::VerifyRead => ByteDurability::VerifyRead,
                ByteDurabilityName::Fence => ByteDurability::Fence,
            },
            block_atomic_bytes: self.persistence.block_atomic_bytes,
            block_durability: match self.persistence.block_durability {
                BlockDurabilityName::Completion => BlockDurability::Completion,
                BlockDurabilityName::Flush => BlockDurability::Flush,
            },
            transactions: self.firmware.kind == Firmware::Log,
        }
    }

    /// Bytes of the memory area or the BA-buffer; none with another firmware.
    pub(crate) const fn window_bytes(&self) -> u64 {
        match self.firmware.kind {
            Firmware::Log | Firmware::PageCache => 0,
            Firmware::Memory | Firmware::FileSystem => self.firmware.memory_bytes,
            Firmware::BaBuffer => self.ba_buffer.bytes,
        }
    }

    /// Entries of the table of pins; none without a BA-buffer.
    pub(crate) const fn pin_entries(&self) -> u64 {
        match self.firmware.kind {
            Firmware::Log | Firmware::PageCache | Firmware::Memory | Firmware::FileSystem => 0,
            Firmware::BaBuffer => self.ba_buffer.entries,
        }
    }

    /// Whether no command takes any time.
    pub(crate) fn is_free(&self) -> bool {
        let flash = &self.flash;
        self.link.is_free()
            && self.firmware.is_free()
            && self.ba_buffer.is_free()
            && self.queue.completion_ns() == 0
            && [flash.read_ns, flash.program_ns, flash.erase_ns, flash.transfer_ns]
                .into_iter()
                .all(|value| value == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_valid_and_carry_their_own_name() {
        for name in Profile::names() {
            let profile = Profile::named(name).expect("valid");
            assert_eq!(profile.name, name);
            assert_eq!(Profile::parse(&profile.to_toml().expect("writes")).expect("reads"), profile);
        }
        assert!(Profile::named("free").expect("valid").is_free());
        assert!(!Profile::named("mssd-pcie3").expect("valid").is_free());
    }

    #[test]
    fn refusals_name_the_key() {
        let text = BUILT_IN[0].1;
        let unknown = text.replace("[log]", "[log]\nturbo = 1");
        assert!(Profile::parse(&unknown).expect_err("unknown key").to_string().contains("turbo"));
        let missing = text.replace("erase_ns", "# erase_ns");
        assert!(Profile::parse(&missing).expect_err("missing key").to_string().contains("erase_ns"));
        let range = text.replace("channels = 8", "channels = 0");
        assert!(Profile::parse(&range).expect_err("range").to_string().contains("flash.channels is 0"));
        let nothing = Profile::named("fast").expect_err("unknown name").to_string();
        assert!(nothing.contains("fast") && nothing.contains("mssd-pcie3"), "{nothing}");
    }
}
