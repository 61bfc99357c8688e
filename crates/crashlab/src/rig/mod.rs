//! The device as the laboratory hands it to a file system: an emulated SSD behind a recorder of everything
//! that the host asks of it.
//!
//! The recorder knows, from the durability contract alone, which stores and block writes are on their way at
//! every moment. Just before a command that takes effect on the device it stops the world and lets the
//! [`Watcher`] look at it: that is a crash point. A store, a line flush and a fence by themselves change
//! nothing that a crash could tell: what is on its way at the next crash point contains what was on its way
//! at each of them, and the laboratory takes any subset of it.

mod event;
mod fault;
mod recording;
mod window;

use amphi_device::{
    BaBuffer, BlockDurability, BlockPort, ByteDurability, BytePort, CommandPort, Completion, Device,
    DurabilityContract, LINE_BYTES, Lpa, MemoryArea, MemoryPromise, PAGE_BYTES, PageView, RecoverReport,
    Result, Structure, TxId, WriteLog, lines_covering,
};
use amphi_rt::random::Generator;
use amphi_rt::sync::Mutex;
use amphi_ssd::{Ssd, Ticket as SsdTicket};
use hashbrown::HashSet;

pub use event::{Event, Next};
use fault::{End, Faults};
pub use fault::{Fault, RECURS, Way};
use recording::{By, Pending, Recording};
pub use recording::{Port, Unit};

/// Looks at the device when it could crash.
pub trait Watcher: Send + Sync {
    /// The device is about to carry out `next` (nothing: an operation has just returned), `units` are on
    /// their way, oldest first; `events` were recorded so far.
    fn crash_point(&self, device: &Ssd, next: &Next<'_>, units: &[Unit], events: usize);
}

/// Longest wait before a command where operations overlap, in ns of virtual time: so long that two tasks
/// seldom wake at once.
const LONGEST_WAIT_NS: u64 = 1 << 24;

/// An emulated SSD, recorded or not.
pub struct Rig {
    ssd: Ssd,
    recorder: Option<(Mutex<Recording>, Box<dyn Watcher>)>,
    faults: Faults,
    /// The byte port's commands reach flash, where they may fail.
    bytes_reach_flash: bool,
}

impl Rig {
    /// A device that nobody watches.
    #[must_use]
    pub fn plain(ssd: Ssd) -> Self {
        Self::new(ssd, None)
    }

    /// A device whose every command is recorded and seen by `watcher`.
    #[must_use]
    pub fn watched(ssd: Ssd, watcher: Box<dyn Watcher>) -> Self {
        Self::new(ssd, Some((Mutex::new(Recording::default()), watcher)))
    }

    fn new(ssd: Ssd, recorder: Option<(Mutex<Recording>, Box<dyn Watcher>)>) -> Self {
        let bytes_reach_flash = ssd.memory().is_err() && ssd.ba_buffer().is_err();
        Self { ssd, recorder, faults: Faults::default(), bytes_reach_flash }
    }

    /// From now on lets the tasks' commands come in any order, by the seed; or no more.
    pub fn interleave(&self, seed: Option<u64>) {
        self.note(|recording| recording.interleave = seed.map(Generator::new));
    }

    /// Lets other tasks come in between two commands.
    fn give_way(&self) {
        let Some((recording, _)) = &self.recorder else { return };
        let wait = recording.lock().interleave.as_mut().map(|dice| dice.below(LONGEST_WAIT_NS));
        if let Some(wait) = wait {
            amphi_rt::time::sleep_ns(wait);
        }
    }

    /// The device.
    #[must_use]
    pub const fn ssd(&self) -> &Ssd {
        &self.ssd
    }

    /// The device, which nobody uses any more.
    #[must_use]
    pub fn into_ssd(self) -> Ssd {
        self.ssd
    }

    /// What was recorded so far.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.recorder.as_ref().map_or_else(Vec::new, |(recording, _)| recording.lock().events.clone())
    }

    /// Notes that an operation begins.
    pub fn begin(&self, operation: usize) {
        self.note(|recording| recording.events.push(Event::Begin(operation)));
    }

    /// Notes that an operation has returned: a crash point.
    pub fn end(&self, operation: usize) {
        self.note(|recording| recording.events.push(Event::End(operation)));
        self.point(&Next::Idle);
    }

    fn note(&self, what: impl FnOnce(&mut Recording)) {
        if let Some((recording, _)) = &self.recorder {
            what(&mut recording.lock());
        }
    }

    fn event(&self, event: impl FnOnce() -> Event) {
        self.note(|recording| recording.events.push(event()));
    }

    fn point(&self, next: &Next<'_>) {
        let Some((recording, watcher)) = &self.recorder else { return };
        let events = recording.lock().events.len();
        let units = self.units();
        watcher.crash_point(&self.ssd, next, &units, events);
    }

    /// What is on its way, oldest first.
    #[must_use]
    pub fn units(&self) -> Vec<Unit> {
        let Some((recording, _)) = &self.recorder else { return Vec::new() };
        recording.lock().pending.iter().map(|pending| pending.unit.clone()).collect()
    }

    /// From now on has a command fail; or none.
    pub fn fail(&self, fault: Option<Fault>) {
        self.faults.plan(fault);
    }

    /// The command that is going to fail, counted from the next one.
    #[must_use]
    pub fn planned_fault(&self) -> Option<Fault> {
        self.faults.planned()
    }

    /// Which kind of command has failed, if one has.
    #[must_use]
    pub fn failed(&self) -> Option<&'static str> {
        self.faults.happened()
    }

    fn arrived(&self, task: u64) {
        self.note(|recording| {
            recording.pending.retain(
                |pending| !matches!(pending.by, By::Bytes { task: by, posted: true, .. } if by == task),
            );
        });
    }
}

/// The page of the block side that a byte lies in, where the byte port shows them.
const fn page_of(at: u64) -> Lpa {
    Lpa(at / PAGE_BYTES as u64)
}

impl Device for Rig {
    fn capacity_pages(&self) -> u64 {
        self.ssd.capacity_pages()
    }

    fn contract(&self) -> DurabilityContract {
        self.ssd.contract()
    }
}

impl PageView for Rig {
    fn check_page_view(&self) -> Result<()> {
        self.ssd.check_page_view()
    }
}

impl MemoryArea for Rig {
    fn memory(&self) -> Result<MemoryPromise> {
        self.ssd.memory()
    }
}

impl CommandPort for Rig {
    fn processors(&self) -> Result<usize> {
        self.ssd.processors()
    }

    fn saved_bytes(&self) -> u64 {
        self.ssd.saved_bytes()
    }

    fn receive(&self, bytes: u64) -> Result<()> {
        self.ssd.receive(bytes)
    }

    fn compute(&self, bytes: u64) {
        self.ssd.compute(bytes);
    }

    fn exchange(&self, count: u64, bytes: u64) {
        self.ssd.exchange(count, bytes);
    }

    fn complete(&self, bytes: u64) -> Result<()> {
        self.ssd.complete(bytes)
    }
}

impl BytePort for Rig {
    fn bytes(&self) -> u64 {
        self.ssd.bytes()
    }

    fn load_dma(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        if self.bytes_reach_flash {
            self.faults.read("a load by DMA", page_of(at), into)?;
        }
        self.ssd.load_dma(at, into, tag)
    }

    fn load(&self, at: u64, into: &mut [u8], tag: Structure) -> Result<()> {
        if self.bytes_reach_flash {
            self.faults.read("a load", page_of(at), into)?;
        }
        self.ssd.load(at, into, tag)
    }

    fn store(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        self.give_way();
        self.ssd.store(at, data, tx, tag)?;
        let task = amphi_rt::task::id();
        let atom = self.contract().store_atomic_bytes as usize;
        self.note(|recording| {
            recording.events.push(Event::Store { at, len: data.len(), tx, tag });
            let mut from = 0;
            while from < data.len() {
                let start = at + from as u64;
                let len = (LINE_BYTES - start as usize % LINE_BYTES).min(data.len() - from);
                let data = data[from..from + len].to_vec();
                let unit = Unit { port: Port::Bytes, at: start, data, tx, tag, atom, buffered: false };
                recording
                    .pending
                    .push(Pending { unit, by: By::Bytes { task, flushed: false, posted: false } });
                from += len;
            }
        });
        Ok(())
    }

    fn store_flushed(&self, at: u64, data: &[u8], tx: Option<TxId>, tag: Structure) -> Result<()> {
        self.store(at, data, tx, tag)?;
        self.flush_lines(at, data.len());
        Ok(())
    }

    fn flush_lines(&self, at: u64, len: usize) {
        self.ssd.flush_lines(at, len);
        let me = amphi_rt::task::id();
        self.note(|recording| {
            recording.events.push(Event::FlushLines { at, len });
            let (first, lines) = lines_covering(at, len);
            let flushed_lines = first..first + (lines * LINE_BYTES) as u64;
            for pending in &mut recording.pending {
                if let By::Bytes { task, flushed, .. } = &mut pending.by
                    && *task == me
                    && flushed_lines.contains(&pending.unit.at)
                {
                    *flushed = true;
                }
            }
        });
    }

    fn fence(&self) {
        let durable = self.contract().byte_durability == ByteDurability::Fence;
        if durable && self.recorder.is_some() {
            self.point(&Next::Arrival);
        }
        self.ssd.fence();
        let me = amphi_rt::task::id();
        self.note(|recording| {
            recording.events.push(Event::Fence);
            for pending in &mut recording.pending {
                if let By::Bytes { task, flushed: true, posted } = &mut pending.by
                    && *task == me
                {
                    *posted = true;
                }
            }
        });
        if durable {
            self.arrived(me);
        }
    }

    fn verify_read(&self) -> Result<()> {
        if self.contract().byte_durability == ByteDurability::Fence {
            return self.ssd.verify_read();
        }
        self.give_way();
        self.event(|| Event::VerifyRead);
        self.point(&Next::Arrival);
        let end = self.bytes_reach_flash.then(|| self.faults.change("a write-verify read")).transpose()?;
        self.ssd.verify_read()?;
        self.arrived(amphi_rt::task::id());
        end.map_or(Ok(()), End::answer)
    }
}

/// A block command in flight.
pub struct Ticket<'a> {
    rig: &'a Rig,
    inner: Option<SsdTicket<'a>>,
    /// A write that is recorded: its number, place and data.
    write: Option<(u64, Lpa, &'a [&'a [u8]])>,
    /// What the host is told of a command that fails.
    fails: Result<()>,
}

impl Ticket<'_> {
    fn complete(&mut self) -> Result<()> {
        let answer = std::mem::replace(&mut self.fails, Ok(()));
        let Some(inner) = self.inner.take() else { return answer };
        if let Some((_, at, bufs)) = self.write {
            let pages = bufs.iter().map(|buf| buf.len()).sum::<usize>() / PAGE_BYTES;
            self.rig.give_way();
            self.rig.event(|| Event::CompleteWrite { at, pages });
            self.rig.point(&Next::Write(at, bufs));
        }
        inner.wait()?;
        if let Some((number, ..)) = self.write {
            let durable = self.rig.contract().block_durability == BlockDurability::Completion;
            self.rig.note(|recording| recording.complete(number, durable));
        }
        answer
    }
}

impl Completion for Ticket<'_> {
    fn done_at_ns(&self) -> u64 {
        self.inner.as_ref().map_or(0, Completion::done_at_ns)
    }

    fn wait(mut self) -> Result<()> {
        self.complete()
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        // Whoever drops a ticket does not want to know.
        let _ = self.complete();
    }
}

impl BlockPort for Rig {
    type Ticket<'a> = Ticket<'a>;

    fn submit_read<'a>(&'a self, at: Lpa, into: &'a mut [u8], tag: Structure) -> Result<Ticket<'a>> {
        if let Err(cause) = self.faults.read("a block read", at, into) {
            return Ok(Ticket { rig: self, inner: None, write: None, fails: Err(cause) });
        }
        Ok(Ticket {
            rig: self,
            inner: Some(self.ssd.submit_read(at, into, tag)?),
            write: None,
            fails: Ok(()),
        })
    }

    fn submit_write<'a>(&'a self, at: Lpa, bufs: &'a [&'a [u8]], tag: Structure) -> Result<Ticket<'a>> {
        let fails = match self.faults.change("a block write") {
            Ok(end) => end.answer(),
            Err(cause) => return Ok(Ticket { rig: self, inner: None, write: None, fails: Err(cause) }),
        };
        let inner = Some(self.ssd.submit_write(at, bufs, tag)?);
        let Some((recording, _)) = &self.recorder else {
            return Ok(Ticket { rig: self, inner, write: None, fails });
        };
        let atom = self.contract().block_atomic_bytes as usize;
        let mut recording = recording.lock();
        recording.commands += 1;
        let number = recording.commands;
        let pages = bufs.iter().flat_map(|buf| buf.chunks_exact(PAGE_BYTES));
        let mut count = 0;
        for (position, page) in pages.enumerate() {
            let at = at.plus(position as u64).byte(0);
            let (port, data) = (Port::Blocks, page.to_vec());
            let unit = Unit { port, at, data, tx: None, tag, atom, buffered: false };
            recording.pending.push(Pending { unit, by: By::Block { command: number } });
            count += 1;
        }
        recording.events.push(Event::SubmitWrite { at, pages: count, tag });
        drop(recording);
        Ok(Ticket { rig: self, inner, write: Some((number, at, bufs)), fails })
    }

    fn flush(&self) -> Result<()> {
        self.event(|| Event::Flush);
        let mut covered = HashSet::new();
        if self.contract().block_durability == BlockDurability::Flush {
            self.point(&Next::Flush);
            self.note(|recording| covered = recording.buffered());
        }
        let end = self.faults.change("a flush")?;
        self.ssd.flush()?;
        self.note(|recording| {
            recording
                .pending
                .retain(|pending| !matches!(pending.by, By::Block { command } if covered.contains(&command)));
        });
        end.answer()
    }

    fn trim(&self, at: Lpa, pages: u64) -> Result<()> {
        self.event(|| Event::Trim { at, pages });
        self.point(&Next::Trim(at, pages));
        let end = self.faults.change("a trim")?;
        self.ssd.trim(at, pages)?;
        end.answer()
    }
}

impl WriteLog for Rig {
    fn commit(&self, tx: TxId) -> Result<()> {
        self.give_way();
        self.event(|| Event::Commit(tx));
        self.point(&Next::Commit(tx));
        let end = self.faults.change("COMMIT")?;
        self.ssd.commit(tx)?;
        end.answer()
    }

    fn recover(&self) -> Result<RecoverReport> {
        self.event(|| Event::Recover);
        self.point(&Next::Recover);
        let end = self.faults.change("RECOVER")?;
        let report = self.ssd.recover()?;
        end.answer().map(|()| report)
    }

    fn clean_log(&self) -> Result<()> {
        self.event(|| Event::CleanLog);
        self.point(&Next::CleanLog);
        let end = self.faults.change("cleaning")?;
        self.ssd.clean_log()?;
        end.answer()
    }
}
