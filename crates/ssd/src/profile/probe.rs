//! What a published point is called: a probe of the calibration, and the access size that it takes.

use amphi_device::PAGE_BYTES;

/// Most bytes of one access that a probe makes.
const MOST: usize = 16 << 20;

/// What is measured.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// us of a load.
    Load,
    /// us of a store, posted.
    Store,
    /// us of a store, until it is durable.
    Persist,
    /// us of a load by the DMA engine.
    DmaRead,
    /// us of a flash read.
    FlashRead,
    /// us of a flash program.
    FlashWrite,
    /// us of a block read.
    BlockRead,
    /// us of a block write.
    BlockWrite,
    /// GB/s of block reads, so many at a time.
    ReadRate(usize),
    /// GB/s of block writes, so many at a time.
    WriteRate(usize),
    /// GB/s from flash into the BA-buffer.
    InternalRead,
    /// GB/s from the BA-buffer to flash.
    InternalWrite,
}

/// A way to measure a figure at an access size.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    pub kind: Kind,
    pub bytes: usize,
}

/// A probe's name, what it is, the access size it takes where none is given, and the sizes' granularity.
type Row = (&'static str, Kind, usize, usize);

const PROBES: [Row; 16] = [
    ("line-read-us", Kind::Load, 64, 64),
    ("line-write-us", Kind::Persist, 64, 64),
    ("load-us", Kind::Load, 64, 1),
    ("store-us", Kind::Store, 64, 1),
    ("persist-us", Kind::Persist, 64, 1),
    ("dma-read-us", Kind::DmaRead, PAGE_BYTES, 1),
    ("flash-read-us", Kind::FlashRead, 64, 64),
    ("flash-write-us", Kind::FlashWrite, PAGE_BYTES, PAGE_BYTES),
    ("block-read-us", Kind::BlockRead, PAGE_BYTES, PAGE_BYTES),
    ("block-write-us", Kind::BlockWrite, PAGE_BYTES, PAGE_BYTES),
    ("block-read-gb-s", Kind::ReadRate(32), 128 << 10, PAGE_BYTES),
    ("block-write-gb-s", Kind::WriteRate(32), 128 << 10, PAGE_BYTES),
    ("block-read-qd1-gb-s", Kind::ReadRate(1), 4 << 20, PAGE_BYTES),
    ("block-write-qd1-gb-s", Kind::WriteRate(1), 4 << 20, PAGE_BYTES),
    ("internal-read-gb-s", Kind::InternalRead, 4 << 20, PAGE_BYTES),
    ("internal-write-gb-s", Kind::InternalWrite, 4 << 20, PAGE_BYTES),
];

/// The probe that a published point names.
///
/// # Errors
/// There is none; says which there are, or which sizes it takes.
pub(crate) fn find(name: &str) -> Result<Probe, String> {
    let (base, size) = name.split_once('@').map_or((name, None), |(base, size)| (base, Some(size)));
    let Some(&(_, kind, default, unit)) = PROBES.iter().find(|(known, ..)| *known == base) else {
        let known: Vec<&str> = PROBES.iter().map(|(known, ..)| *known).collect();
        return Err(format!("published: no probe is called '{base}'; there are {}", known.join(", ")));
    };
    let bytes = match size {
        None => default,
        Some(text) => text
            .parse()
            .ok()
            .filter(|bytes: &usize| (1..=MOST).contains(bytes) && bytes.is_multiple_of(unit))
            .ok_or_else(|| {
                format!("published: '{name}' must end in a multiple of {unit}, at most {MOST}, after the @")
            })?,
    };
    Ok(Probe { kind, bytes })
}
