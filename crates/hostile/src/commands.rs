//! The command decoder: bytes as a sequence of commands on the ports, well-formed or not, with crashes in
//! between. What the device answers is compared with a copy of what it should hold.

use amphi_device::{
    BlockPort, BytePort, Completion, Error, Lpa, MemoryArea, PAGE_BYTES, Result, Structure, TxId, WriteLog,
};
use amphi_rt::Sim;
use amphi_ssd::{Firmware, OpenOptions, Ssd};

use crate::input::Input;

const CAPACITY: usize = 256 << 10;
/// Bytes of the page cache or memory area, where there is one.
const MEMORY: usize = 64 << 10;

/// Obeys the input's commands, on a device with or without delays, in virtual time.
pub fn commands(input: &[u8]) {
    Sim::new(1).run(|| {
        let mut input = Input::new(input);
        let options = OpenOptions { free: input.one_in(2), ..OpenOptions::default() };
        let mut profile = crate::tiny();
        profile.link.dma_read_ns = u64::from(input.u8()) * 4;
        profile.firmware.kind =
            [Firmware::Log, Firmware::PageCache, Firmware::Memory][usize::from(input.u8() % 3)];
        profile.firmware.memory_bytes = MEMORY as u64;
        let has_log = profile.firmware.kind == Firmware::Log;
        let memory = if profile.firmware.kind == Firmware::Memory { vec![0; MEMORY] } else { Vec::new() };
        let ssd = Ssd::try_in_memory(&profile, CAPACITY as u64, &options).expect("a valid profile");
        let mut run = Run { ssd: Some(ssd), has_log, expected: vec![0; CAPACITY], memory, transactions: 1 };
        for _ in 0..300 {
            if input.is_empty() {
                break;
            }
            run.obey(&mut input);
        }
        run.compare();
    });
}

struct Run {
    /// Taken only while it is powered up again.
    ssd: Option<Ssd>,
    /// Whether the firmware keeps a write log; another one refuses what belongs to it.
    has_log: bool,
    /// What block reads must find, and loads, unless there is a memory area.
    expected: Vec<u8>,
    /// What loads must find in the memory area; empty if there is none.
    memory: Vec<u8>,
    /// The next transaction number that was never used.
    transactions: u32,
}

impl Run {
    fn ssd(&self) -> &Ssd {
        self.ssd.as_ref().expect("there is always a device")
    }

    /// What loads must find.
    fn window(&mut self) -> &mut Vec<u8> {
        if self.memory.is_empty() { &mut self.expected } else { &mut self.memory }
    }

    fn obey(&mut self, input: &mut Input<'_>) {
        let tag = Structure::ALL[usize::from(input.u8() % 8)];
        match input.u8() % 14 {
            0 | 1 => self.store(input, tag),
            2 => self.load(input, tag),
            3 => self.ssd().flush_lines(address(input), usize::from(input.u16())),
            4 => {
                self.ssd().fence();
                let outcome = self.ssd().verify_read();
                self.may_have_lost(&outcome);
            }
            5 => self.read(input, tag),
            6 | 7 => self.write(input, tag),
            8 => {
                self.ssd().flush().expect("a device with power flushes");
            }
            9 => self.trim(input),
            10 => self.commit(input),
            11 => {
                self.post();
                self.recover();
                // What open transactions stored is gone; numbers may start again.
                self.transactions = 1;
                self.look();
            }
            12 => {
                let outcome = self.ssd().clean_log();
                self.may_have_lost(&outcome);
            }
            _ => self.crash(input),
        }
    }

    fn store(&mut self, input: &mut Input<'_>, tag: Structure) {
        let at = address(input);
        let data: Vec<u8> = match input.u8() {
            length @ 0..=127 => input.take(usize::from(length)).to_vec(),
            length => vec![input.u8(); usize::from(length) * 20],
        };
        let tx = match input.u8() {
            0..=99 => None,
            100..=199 => TxId::new(self.transactions),
            number => TxId::new(u32::from(number)),
        };
        let inside = self.is_inside(at, data.len());
        let in_page = at as usize % PAGE_BYTES + data.len() <= PAGE_BYTES;
        let outcome = self.ssd().store(at, &data, tx, tag);
        match &outcome {
            Ok(()) => {
                assert!(
                    inside && (in_page || data.is_empty()),
                    "a store of {} at {at} was taken",
                    data.len()
                );
                self.window()[at as usize..at as usize + data.len()].copy_from_slice(&data);
            }
            Err(Error::OutOfRange { what: "store", .. }) => assert!(!inside),
            Err(Error::Misaligned { what: "store", .. }) => assert!(inside && !in_page),
            Err(Error::Unsupported(_)) => assert!(!self.has_log && tx.is_some()),
            // Lines left the cache early, and the log could not take them.
            Err(_) => self.may_have_lost(&outcome),
        }
    }

    fn is_inside(&mut self, at: u64, len: usize) -> bool {
        let window = self.window().len() as u64;
        at.checked_add(len as u64).is_some_and(|end| end <= window)
    }

    fn load(&mut self, input: &mut Input<'_>, tag: Structure) {
        let at = address(input);
        let mut into = vec![0xa5; usize::from(input.u16() % 9000)];
        let by_dma = input.one_in(4);
        if by_dma {
            // The engine copies what the device holds, not what is on its way.
            self.post();
        }
        let outcome = match by_dma {
            true => self.ssd().load_dma(at, &mut into, tag),
            false => self.ssd().load(at, &mut into, tag),
        };
        match outcome {
            Ok(()) => {
                assert!(into == self.window()[at as usize..at as usize + into.len()], "a load at {at}");
            }
            Err(Error::OutOfRange { .. }) => assert!(!self.is_inside(at, into.len())),
            Err(Error::Unsupported(_)) => assert!(by_dma),
            Err(other) => panic!("a load at {at}: {other}"),
        }
    }

    fn read(&mut self, input: &mut Input<'_>, tag: Structure) {
        self.post();
        let at = Lpa(page(input));
        let mut into = vec![0xa5; length(input)];
        let outcome = self.ssd().read(at, &mut into, tag);
        if is_well_formed(at, into.len(), &outcome) {
            let from = at.0 as usize * PAGE_BYTES;
            assert!(into == self.expected[from..from + into.len()], "a block read at {at:?}");
        }
    }

    fn write(&mut self, input: &mut Input<'_>, tag: Structure) {
        // What is on its way to the same page would land after this write, or before: the host orders them.
        self.post();
        let at = Lpa(page(input));
        let (first, second) = (vec![input.u8(); length(input)], vec![input.u8(); length(input)]);
        let both = [&first[..], &second[..]];
        let bufs = if input.one_in(2) { &both[..1] } else { &both[..] };
        let whole = bufs.concat();
        let outcome = match self.ssd().submit_write(at, bufs, tag) {
            Err(refused) => Err(refused),
            // Whoever drops a ticket does not want to know; the command completes all the same.
            Ok(ticket) if input.one_in(8) => {
                drop(ticket);
                Ok(())
            }
            Ok(ticket) => ticket.wait(),
        };
        let odd = bufs.iter().any(|buf| buf.is_empty() || buf.len() % PAGE_BYTES != 0);
        if odd {
            assert!(outcome.is_err(), "a write of odd length was taken");
        } else if is_well_formed(at, whole.len(), &outcome) {
            let from = at.0 as usize * PAGE_BYTES;
            self.expected[from..from + whole.len()].copy_from_slice(&whole);
        }
    }

    fn trim(&mut self, input: &mut Input<'_>) {
        self.post();
        let (at, pages) = (Lpa(page(input)), input.telling(64));
        let outcome = self.ssd().trim(at, pages);
        let inside = at.0.checked_add(pages).is_some_and(|end| end <= (CAPACITY / PAGE_BYTES) as u64);
        assert_eq!(outcome.is_ok(), inside, "a trim of {pages} at {at:?}: {outcome:?}");
        if inside {
            let from = at.0 as usize * PAGE_BYTES;
            self.expected[from..from + pages as usize * PAGE_BYTES].fill(0);
        }
    }

    fn commit(&mut self, input: &mut Input<'_>) {
        self.post();
        let number = if input.one_in(2) { self.transactions } else { u32::from(input.u8()) };
        let Some(tx) = TxId::new(number) else { return };
        match self.ssd().commit(tx) {
            Ok(()) => self.transactions = self.transactions.max(number + 1),
            Err(Error::AlreadyCommitted(_) | Error::NoSpace(_)) => {}
            Err(Error::Unsupported(_)) => assert!(!self.has_log),
            Err(other) => panic!("a commit of {tx:?}: {other}"),
        }
        // A commit gives its stores effect once more, over newer ones of others.
        self.look();
    }

    fn crash(&mut self, input: &mut Input<'_>) {
        let seed = u64::from(input.u32());
        match input.u8() % 3 {
            0 => self.ssd().power_cut(seed),
            1 => self.ssd().host_crash(seed),
            _ => self.ssd().cut_after_steps(u64::from(input.u8()), seed),
        }
        // Whatever is asked meanwhile is answered, if only with "no power".
        let mut page = [0; PAGE_BYTES];
        let _ = self.ssd().write(Lpa(1), &page, Structure::Data);
        let _ = self.ssd().read(Lpa(1), &mut page, Structure::Data);
        let _ = self.ssd().clean_log();
        let ssd =
            self.ssd.take().expect("there is always a device").restart().expect("a sound image powers up");
        self.ssd = Some(ssd);
        self.recover();
        self.transactions = 1;
        self.look();
    }

    fn recover(&self) {
        match self.ssd().recover() {
            Ok(_) => assert!(self.has_log),
            Err(error) => assert!(!self.has_log && matches!(error, Error::Unsupported(_)), "{error}"),
        }
    }

    /// Lets everything stored so far arrive.
    fn post(&mut self) {
        self.ssd().flush_lines(0, CAPACITY);
        self.ssd().fence();
        let outcome = self.ssd().verify_read();
        self.may_have_lost(&outcome);
    }

    /// A store that the log did not take is lost; what is there now counts.
    fn may_have_lost(&mut self, outcome: &Result<()>) {
        match outcome {
            Ok(()) => {}
            Err(Error::AlreadyCommitted(_) | Error::NoSpace(_)) => self.look(),
            Err(Error::Unsupported(_)) => assert!(!self.has_log),
            Err(other) => panic!("{other}"),
        }
    }

    /// Takes what is there for what should be there.
    fn look(&mut self) {
        let mut expected = std::mem::take(self.window());
        self.ssd().load(0, &mut expected, Structure::Other).expect("a sound device loads");
        let has_area = self.ssd().memory().is_ok();
        if !has_area {
            self.expected = expected;
            return;
        }
        self.memory = expected;
        let mut expected = std::mem::take(&mut self.expected);
        self.ssd().read(Lpa(0), &mut expected, Structure::Other).expect("a sound device reads");
        self.expected = expected;
    }

    fn compare(&mut self) {
        self.post();
        let mut found = vec![0; self.window().len()];
        self.ssd().load(0, &mut found, Structure::Other).expect("a sound device loads");
        assert!(found == *self.window(), "loads find something else than was stored");
        found.resize(CAPACITY, 0);
        self.ssd().read(Lpa(0), &mut found, Structure::Other).expect("a sound device reads");
        assert!(found == self.expected, "block reads find something else than was stored");
    }
}

fn address(input: &mut Input<'_>) -> u64 {
    if input.one_in(4) { input.telling(CAPACITY as u64) } else { input.below(CAPACITY as u64) }
}

fn page(input: &mut Input<'_>) -> u64 {
    let pages = (CAPACITY / PAGE_BYTES) as u64;
    if input.one_in(4) { input.telling(pages) } else { input.below(pages) }
}

/// Bytes of a block command: mostly whole pages, few of them.
fn length(input: &mut Input<'_>) -> usize {
    match input.u8() {
        odd @ 0..=15 => usize::from(odd) * 300,
        pages => usize::from(pages % 5) * PAGE_BYTES,
    }
}

/// Checks that a block command was refused exactly if it is malformed.
fn is_well_formed(at: Lpa, bytes: usize, outcome: &Result<()>) -> bool {
    let whole = bytes > 0 && bytes.is_multiple_of(PAGE_BYTES);
    let pages = (bytes / PAGE_BYTES) as u64;
    let inside = at.0.checked_add(pages).is_some_and(|end| end <= (CAPACITY / PAGE_BYTES) as u64);
    match outcome {
        Ok(()) => assert!(whole && inside, "{bytes} bytes at {at:?} were taken"),
        Err(Error::Misaligned { .. }) => assert!(!whole),
        Err(Error::OutOfRange { .. }) => assert!(whole && !inside),
        Err(other) => panic!("{bytes} bytes at {at:?}: {other}"),
    }
    outcome.is_ok()
}
