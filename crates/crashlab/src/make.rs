//! Making the states in which a crash may leave the device, each from a fork.

use amphi_device::{BaBuffer, BlockPort, Lpa, PAGE_BYTES, Structure, WriteLog};
use amphi_rt::random::Generator;
use amphi_ssd::{Fate, ImageError, Ssd};
use hashbrown::HashMap;

use crate::rig::{Next, Port, Unit};
use crate::state::State;

/// Why a state cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MakeError {
    /// The emulator has no memory, or its image is damaged.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The log has no room for what arrives, so that this is no state of the device.
    #[error("the log has no room for all that would arrive")]
    NoRoom,
    /// The command is not cut by then: it has fewer steps.
    #[error("the command has ended by then")]
    Ended,
}

/// The device as `state` leaves it, powered up again.
///
/// # Errors
/// [`MakeError`].
pub fn make(device: &Ssd, next: &Next<'_>, units: &[Unit], state: &State) -> Result<Ssd, MakeError> {
    let fork = device.fork_device()?;
    let nothing_arrives = units.is_empty() && *state == State::Everything || *state == State::Nothing;
    if nothing_arrives && !units.iter().any(|unit| unit.buffered) {
        // Making a fork is powering up what the device has.
        return Ok(fork);
    }
    let cut = |fork: &Ssd, steps: u32, work: &dyn Fn(&Ssd)| {
        fork.cut_after_steps(u64::from(steps), u64::from(steps) ^ 0xc0de);
        work(fork);
        if fork.has_power() { Err(MakeError::Ended) } else { Ok(()) }
    };
    match state {
        State::Nothing => {}
        State::Midway(steps) => cut(&fork, *steps, &|fork| carry_out(fork, next))?,
        State::Cleaning(steps, _) => cut(&fork, *steps, &|fork| {
            // The cut is what is wanted; it shows in the power.
            let _cut = fork.clean_log();
        })?,
        State::Collecting(steps, _) => cut(&fork, *steps, &Ssd::collect_garbage)?,
        _ => {}
    }
    fork.power_cut(0);
    let mut dice = Generator::new(if let State::Torn(seed) = state { *seed } else { 0 });
    let mut buffered = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        let fate = match state.keeps(number) {
            Some(true) => Fate::Kept,
            Some(false) => Fate::Lost,
            None => match dice.below(4) {
                0 => Fate::Lost,
                1 => Fate::Kept,
                _ => Fate::Torn(if unit.buffered { dice.next() } else { 0 }),
            },
        };
        match fate {
            _ if unit.buffered => buffered.push((unit, fate)),
            Fate::Lost => {}
            Fate::Kept => arrive(&fork, unit, &[(0, unit.data.len())])?,
            Fate::Torn(_) => tear(&fork, unit, &mut dice)?,
        }
    }
    lose_buffered(device, &fork, &buffered);
    Ok(fork.restart()?)
}

/// Lets the fork, whose power is off, lose what is to be lost of its write buffer.
fn lose_buffered(device: &Ssd, fork: &Ssd, buffered: &[(&Unit, Fate)]) {
    let mut written = device.unflushed();
    let mut fates = HashMap::new();
    // Of several writes of one page the recorder and the device have the same order; the device may have put
    // the oldest into flash already.
    for (unit, fate) in buffered.iter().rev() {
        if let Some(last) = written.iter().rposition(|(_, page)| page.byte(0) == unit.at) {
            fates.insert(written.remove(last).0, *fate);
        }
    }
    // What a command that was cut midway has written is no unit: that is how far it had come.
    fork.lose_unflushed(&mut |number| fates.get(&number).copied().unwrap_or(Fate::Kept));
}

/// Lets parts of a unit arrive, each from its first byte to that behind its last.
fn arrive(fork: &Ssd, unit: &Unit, parts: &[(usize, usize)]) -> Result<(), MakeError> {
    let arrived = match unit.port {
        Port::Bytes => parts
            .iter()
            .all(|&(from, to)| fork.arrive(unit.at + from as u64, &unit.data[from..to], unit.tx, unit.tag)),
        Port::Blocks => {
            let parts: Vec<_> = parts.iter().map(|&(from, to)| (from, &unit.data[from..to])).collect();
            fork.arrive_in_page(Lpa::of_byte(unit.at), &parts)
        }
    };
    if arrived { Ok(()) } else { Err(MakeError::NoRoom) }
}

/// Lets each part of a unit that is never torn arrive or not.
fn tear(fork: &Ssd, unit: &Unit, dice: &mut Generator) -> Result<(), MakeError> {
    let len = unit.data.len();
    let atoms = |at: u64| at / unit.atom as u64;
    let (mut from, mut parts) = (0, Vec::new());
    while from < len {
        let at = unit.at + from as u64;
        let to = (from + ((atoms(at) + 1) * unit.atom as u64 - at) as usize).min(len);
        if dice.below(2) == 0 {
            parts.push((from, to));
        }
        from = to;
    }
    arrive(fork, unit, &parts)
}

/// Has the fork carry out the command that is next on the device, so that it can be cut midway.
fn carry_out(fork: &Ssd, next: &Next<'_>) {
    // Whatever the command answers, the power tells whether it was cut.
    let _cut = match next {
        Next::Idle | Next::Arrival => Ok(()),
        Next::Write(at, bufs) => {
            let data: Vec<u8> = bufs.concat();
            debug_assert!(data.len().is_multiple_of(PAGE_BYTES), "block writes are whole pages");
            fork.write(*at, &data, Structure::Other)
        }
        Next::Trim(at, pages) => fork.trim(*at, *pages),
        Next::Commit(tx) => fork.commit(*tx),
        Next::CleanLog => fork.clean_log(),
        Next::Recover => fork.recover().map(drop),
        Next::Flush => fork.flush(),
        Next::Pin(entry) => fork.pin(entry.id, entry.offset, entry.at, entry.bytes()),
        Next::FlushEntry(id) => fork.flush_entry(*id),
    };
}

/// How many firmware steps cleaning the whole log takes on this device.
///
/// # Errors
/// There is no memory.
pub fn cleaning_steps(device: &Ssd) -> Result<u32, ImageError> {
    steps_of(device, &|fork| {
        // Counted, whatever it answers.
        let _counted = fork.clean_log();
    })
}

/// How many firmware steps garbage collection in the background takes on this device: none where it is not
/// due.
///
/// # Errors
/// There is no memory.
pub fn collection_steps(device: &Ssd) -> Result<u32, ImageError> {
    if device.is_collection_due() { steps_of(device, &Ssd::collect_garbage) } else { Ok(0) }
}

/// How many firmware steps the command takes that is next.
///
/// # Errors
/// There is no memory.
pub fn command_steps(device: &Ssd, next: &Next<'_>) -> Result<u32, ImageError> {
    if matches!(next, Next::Idle | Next::Arrival) {
        return Ok(0);
    }
    steps_of(device, &|fork| carry_out(fork, next))
}

fn steps_of(device: &Ssd, work: &dyn Fn(&Ssd)) -> Result<u32, ImageError> {
    const MANY: u64 = 1 << 30;
    let fork = device.fork_device()?;
    fork.cut_after_steps(MANY, 0);
    work(&fork);
    Ok(fork.steps_before_cut().map_or(0, |left| (MANY - left) as u32))
}

#[cfg(test)]
mod tests {
    use amphi_device::{BytePort, BytePortExt, Device, Lpa};
    use amphi_ssd::Firmware;

    use super::*;
    use crate::subject::{self, Size};

    #[test]
    fn collection_is_cut_at_every_step_where_it_is_due_and_loses_nothing() {
        let cramped = subject::device("free", Firmware::Log, Size::Cramped).expect("a device");
        let device = cramped.forkable().expect("forkable").fork_device().expect("a fork");
        assert_eq!(collection_steps(&device), Ok(0), "nobody collects on a new device");
        let mut dice = Generator::new(7);
        for round in 0..20_000_u64 {
            let at = Lpa(dice.below(device.capacity_pages()));
            device.write(at, &[round as u8; PAGE_BYTES], Structure::Data).expect("written");
            if round > 1000 && device.is_collection_due() {
                break;
            }
        }
        let before = device.contents(&[]).expect("readable");
        let steps = collection_steps(&device).expect("counted");
        assert!(steps >= 5, "a move and an erase: {steps}");
        for step in 0..steps {
            let state = State::Collecting(step, false);
            let left = make(&device, &Next::Idle, &[], &state).expect("the state can be made");
            assert_eq!(left.contents(&[]), Ok(before), "{state}");
        }
        let beyond = make(&device, &Next::Idle, &[], &State::Collecting(steps, false));
        assert_eq!(beyond.map(drop), Err(MakeError::Ended));
    }

    #[test]
    fn a_write_buffer_loses_any_of_what_no_flush_has_covered() {
        let device = subject::device("nvme", Firmware::Log, Size::Small).expect("a device");
        let device = device.forkable().expect("forkable").fork_device().expect("a fork");
        let byte_at = |device: &Ssd, at: Lpa| {
            let mut page = [0; PAGE_BYTES];
            device.read(at, &mut page, Structure::Data).expect("readable");
            page[0]
        };
        let mut units = Vec::new();
        for (at, byte) in [(1, 1), (2, 2), (1, 3)] {
            device.write(Lpa(at), &[byte; PAGE_BYTES], Structure::Data).expect("written");
            if byte == 1 {
                device.flush().expect("flushed");
                continue;
            }
            let (at, data) = (Lpa(at).byte(0), vec![byte; PAGE_BYTES]);
            let (port, tag) = (Port::Blocks, Structure::Data);
            units.push(Unit { port, at, data, tx: None, tag, atom: 512, buffered: true });
        }
        // Newer than what is in the buffer, and not in it.
        device.persist(Lpa(2).byte(64), &[9], None, Structure::Data).expect("stored");
        for (state, first, second) in [
            (State::Nothing, 1, 0),
            (State::Everything, 3, 2),
            (State::Mask(1), 1, 2),
            (State::Mask(2), 3, 0),
            (State::Cleaning(0, false), 1, 0),
        ] {
            let left = make(&device, &Next::Idle, &units, &state).expect("the state can be made");
            assert_eq!((byte_at(&left, Lpa(1)), byte_at(&left, Lpa(2))), (first, second), "{state}");
            let mut stored = [0];
            left.load(Lpa(2).byte(64), &mut stored, Structure::Data).expect("readable");
            assert_eq!(stored, [9], "{state}");
        }
        device.flush().expect("flushed");
        let left = make(&device, &Next::Idle, &[], &State::Nothing).expect("the state can be made");
        assert_eq!((byte_at(&left, Lpa(1)), byte_at(&left, Lpa(2))), (3, 2));
    }

    #[test]
    fn stores_into_a_memory_area_and_block_writes_arrive_each_where_it_belongs() {
        let device = subject::device("free", Firmware::Memory, Size::Small).expect("a device");
        let device = device.forkable().expect("forkable").fork_device().expect("a fork");
        let unit = |port, data: Vec<u8>, atom| Unit {
            port,
            at: PAGE_BYTES as u64,
            data,
            tx: None,
            tag: Structure::Data,
            atom,
            buffered: false,
        };
        let units = [unit(Port::Bytes, vec![1; 64], 8), unit(Port::Blocks, vec![2; PAGE_BYTES], 512)];
        let mut torn = (0, 0);
        for (state, first, second) in [
            (State::Nothing, Some(0), Some(0)),
            (State::Everything, Some(64), Some(4096 * 2)),
            (State::Mask(1), Some(64), Some(0)),
            (State::Mask(2), Some(0), Some(4096 * 2)),
        ]
        .into_iter()
        .chain((0..60).map(|seed| (State::Torn(seed), None, None)))
        {
            let left = make(&device, &Next::Idle, &units, &state).expect("the state can be made");
            let (mut stored, mut page) = ([0; 64], [0; PAGE_BYTES]);
            left.load(PAGE_BYTES as u64, &mut stored, Structure::Data).expect("readable");
            left.read(Lpa(1), &mut page, Structure::Data).expect("readable");
            let sum = |bytes: &[u8]| bytes.iter().map(|&byte| usize::from(byte)).sum::<usize>();
            let found = (sum(&stored), sum(&page));
            assert!(
                first.is_none_or(|sum| sum == found.0) && second.is_none_or(|sum| sum == found.1),
                "{state}"
            );
            assert!(stored.chunks(8).all(|atom| atom == [0; 8] || atom == [1; 8]), "{state}");
            assert!(page.chunks(512).all(|atom| atom == [0; 512] || atom == [2; 512]), "{state}");
            torn.0 += usize::from(![0, 64].contains(&found.0));
            torn.1 += usize::from(![0, 4096 * 2].contains(&found.1));
        }
        assert!(torn.0 > 5 && torn.1 > 5, "{torn:?}");
    }
}
