//! The device's processors (§4.1, DV-9). A task that has one runs on it, and gives it back when its command
//! is done. Commands beyond their number wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use amphi_rt::sync::{Condvar, Mutex, Padded};

/// The processors.
#[derive(Debug)]
pub struct Processors {
    busy: Box<[Padded<AtomicBool>]>,
    /// Tasks that found all of them busy.
    waiting: AtomicU64,
    lock: Mutex<()>,
    free: Condvar,
    /// Commands that had to wait for one.
    waited: AtomicU64,
}

/// A processor in use.
#[derive(Debug)]
pub struct Processor<'a> {
    all: &'a Processors,
    number: usize,
}

impl Processors {
    /// So many, at least one.
    pub fn new(count: usize) -> Self {
        Self {
            busy: (0..count.max(1)).map(|_| Padded(AtomicBool::new(false))).collect(),
            waiting: AtomicU64::new(0),
            lock: Mutex::new(()),
            free: Condvar::new(),
            waited: AtomicU64::new(0),
        }
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.busy.len()
    }

    /// How many commands found all of them busy.
    pub fn waited(&self) -> u64 {
        self.waited.load(Ordering::Relaxed)
    }

    /// One that is free, after waiting for it.
    pub fn take(&self) -> Processor<'_> {
        if let Some(processor) = self.find() {
            return processor;
        }
        self.waited.fetch_add(1, Ordering::Relaxed);
        let mut lock = self.lock.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Pairs with the one in `drop`: either we find what was given back, or it finds us waiting.
        fence(Ordering::SeqCst);
        let processor = loop {
            if let Some(processor) = self.find() {
                break processor;
            }
            self.free.wait(&mut lock);
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        processor
    }

    fn find(&self) -> Option<Processor<'_>> {
        // Tasks begin at different ones, so that they seldom meet at a line.
        let first = amphi_rt::task::id() as usize % self.busy.len();
        let mut all = (first..self.busy.len()).chain(0..first);
        let number = all.find(|number| {
            let busy = &self.busy[*number];
            !busy.load(Ordering::Relaxed) && !busy.swap(true, Ordering::Acquire)
        })?;
        Some(Processor { all: self, number })
    }
}

impl Drop for Processor<'_> {
    fn drop(&mut self) {
        self.all.busy[self.number].store(false, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.all.waiting.load(Ordering::Relaxed) > 0 {
            drop(self.all.lock.lock());
            self.all.free.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use amphi_rt::{Sim, task, time};

    use super::*;

    /// Virtual time that `tasks` commands of 1000 ns take on `count` processors.
    fn time_of(tasks: u64, count: usize) -> u64 {
        Sim::new(1).run(move || {
            let processors = Arc::new(Processors::new(count));
            let began = time::now_ns();
            let commands: Vec<_> = (0..tasks)
                .map(|_| {
                    let processors = Arc::clone(&processors);
                    task::spawn("command", move || {
                        let _processor = processors.take();
                        time::sleep_until_ns(time::now_ns() + 1000);
                    })
                })
                .collect();
            commands.into_iter().for_each(|command| command.join());
            assert_eq!(processors.waited(), tasks.saturating_sub(count as u64));
            time::now_ns() - began
        })
    }

    #[test]
    fn as_many_commands_run_at_once_as_there_are_processors() {
        assert_eq!([1, 2, 4, 8].map(|count| time_of(8, count)), [8000, 4000, 2000, 1000]);
        assert_eq!(time_of(3, 2), 2000);
    }

    #[test]
    fn a_processor_that_is_given_back_wakes_who_waits_in_real_time() {
        let processors = Arc::new(Processors::new(2));
        let commands: Vec<_> = (0..8)
            .map(|_| {
                let processors = Arc::clone(&processors);
                task::spawn("command", move || (0..2000).for_each(|_| drop(processors.take())))
            })
            .collect();
        commands.into_iter().for_each(|command| command.join());
    }
}
