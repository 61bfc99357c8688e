//! What happened in a Sim, as a trace file for people (Chrome's JSON format). Holds no address and no real
//! time, so that one seed gives one file.

use super::task::Wait;
use std::fmt::Write;
use std::path::Path;

/// Process number under which the tasks appear.
const TASKS: u32 = 1;
/// Process number of the first device; the others follow.
const FIRST_DEVICE: u32 = 2;

pub(crate) struct Trace {
    text: String,
    devices: Vec<String>,
}

/// A JSON string's inside.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                let _ = write!(text, "\\u{:04x}", c as u32);
            }
            c => text.push(c),
        }
    }
    text
}

/// The format counts in µs.
fn micros(ns: u64) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

impl Trace {
    pub(crate) fn new(seed: u64) -> Self {
        let text =
            format!("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"seed\":\"{seed}\"}},\"traceEvents\":[\n");
        let mut trace = Self { text, devices: Vec::new() };
        trace.name_process(TASKS, "tasks");
        trace
    }

    pub(crate) fn task_started(&mut self, now: u64, id: u64, name: &str) {
        let name = escaped(name);
        let _ = writeln!(
            self.text,
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{TASKS},\"tid\":{id},\
             \"args\":{{\"name\":\"{name}\"}}}},"
        );
        self.instant(now, id, "start");
    }

    pub(crate) fn task_ended(&mut self, now: u64, id: u64) {
        self.instant(now, id, "end");
    }

    pub(crate) fn instant(&mut self, now: u64, id: u64, what: &str) {
        let (ts, what) = (micros(now), escaped(what));
        let _ = writeln!(
            self.text,
            "{{\"ph\":\"i\",\"s\":\"t\",\"name\":\"{what}\",\"pid\":{TASKS},\"tid\":{id},\"ts\":{ts}}},"
        );
    }

    fn interval(&mut self, pid: u32, tid: u64, start: u64, end: u64, name: &str) {
        let (ts, dur) = (micros(start), micros(end - start));
        let _ = writeln!(
            self.text,
            "{{\"ph\":\"X\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"dur\":{dur}}},"
        );
    }

    pub(crate) fn waited(&mut self, start: u64, end: u64, id: u64, wait: &Wait) {
        let name = match wait {
            Wait::Nothing => return,
            Wait::Lock { .. } => "lock",
            Wait::Condvar { label, .. } => label,
            Wait::Join { .. } => "join",
            Wait::Sleep => "sleep",
            Wait::Cpu => "cpu",
        };
        self.interval(TASKS, id, start, end, name);
    }

    /// Processor `index` of `device` works for a task.
    pub(crate) fn device(
        &mut self,
        device: &str,
        index: usize,
        start: u64,
        end: u64,
        (id, name): (u64, &str),
    ) {
        let known = self.devices.iter().position(|other| other == device);
        let number = known.unwrap_or_else(|| {
            self.devices.push(device.to_owned());
            self.name_process(FIRST_DEVICE + self.devices.len() as u32 - 1, device);
            self.devices.len() - 1
        });
        let name = format!("{} {id}", escaped(name));
        self.interval(FIRST_DEVICE + number as u32, index as u64, start, end, &name);
    }

    fn name_process(&mut self, pid: u32, name: &str) {
        let name = escaped(name);
        let _ = writeln!(
            self.text,
            "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"args\":{{\"name\":\"{name}\"}}}},"
        );
    }

    /// Something that a task did from `start` to `end`.
    pub(crate) fn span(&mut self, start: u64, end: u64, id: u64, what: &str) {
        self.interval(TASKS, id, start, end, &escaped(what));
    }

    pub(crate) fn write(mut self, path: &Path) -> std::io::Result<()> {
        // The last event has no comma after it.
        self.text.truncate(self.text.trim_end().trim_end_matches(',').len());
        self.text.push_str("\n]}\n");
        std::fs::write(path, self.text)
    }
}
