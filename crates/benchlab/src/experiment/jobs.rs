//! How many cells run at once: each has a device in memory, so processors are not all that they take.

use amphi_rt::cpu;

/// What a cell takes beside its device, in bytes: 0.5 GB at a scale of 0.001, where the device has its least
/// size.
const CELL_BYTES: f64 = 0.5e9;
/// What a cell takes in proportion to its scale: a device, the copy of it that was loaded, and caches. YCSB,
/// the largest, took 1.15 GB at 0.01.
const CELL_BYTES_AT_FULL_SCALE: f64 = 110e9;

/// One for each processor, as long as the memory that is available holds so many cells of `scale`; at least
/// one.
pub(super) fn that_fit(scale: f64) -> usize {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available_bytes(&text));
    within(cpu::count(), available, scale)
}

fn within(processors: usize, available_bytes: Option<u64>, scale: f64) -> usize {
    let cell = CELL_BYTES + CELL_BYTES_AT_FULL_SCALE * scale;
    let room = available_bytes.map_or(usize::MAX, |bytes| (bytes as f64 / cell) as usize);
    processors.min(room).max(1)
}

/// What the kernel says could be taken without swapping.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says_is_understood() {
        let text = "MemTotal:       24642928 kB\nMemFree:        12345 kB\nMemAvailable:   23018400 kB\nBuffers: 1 kB\n";
        assert_eq!(available_bytes(text), Some(23_018_400 * 1024));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
        assert_eq!(available_bytes("MemAvailable: much\n"), None);
    }

    #[test]
    fn cells_at_once_fit_processors_and_memory() {
        let gib = |count: u64| Some(count << 30);
        assert_eq!(within(2, gib(16), 0.01), 2);
        assert_eq!(within(64, gib(16), 0.01), 10);
        assert_eq!(within(2, gib(16), 0.1), 1);
        assert_eq!(within(2, gib(1), 0.01), 1, "one always runs");
        assert_eq!(within(8, None, 0.01), 8);
    }
}
