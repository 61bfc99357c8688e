//! What happened in a Sim, as a trace file for people (Chrome's JSON format). Holds no address and no real time, so that one seed
//! gives one file.

use crate::sim::core::Wait;
use std::fmt::Write;
use std::path::Path;

/// Process number under which the tasks appear.
const TASKS: u32 = 1;
/// Process number under which the processors appear.
const PROCESSORS: u32 = 2;

pub(crate) struct Trace {
    text: String,
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
        let mut text =
            format!("{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"seed\":\"{seed}\"}},\"traceEvents\":[\n");
        for (pid, name) in [(TASKS, "tasks"), (PROCESSORS, "processors")] {
            let _ = writeln!(
                text,
                "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{pid},\"args\":{{\"name\":\"{name}\"}}}},"
            );
        }
        Self { text }
    }

    pub(crate) fn task_started(&mut self, now: u64, id: u64, name: &str) {
        let name = escaped(name);
        let _ = writeln!(
            self.text,
            "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{TASKS},\"tid\":{id},\"args\":{{\"name\":\"{name}\"}}}},"
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

    pub(crate) fn processor(&mut self, core: usize, start: u64, end: u64, id: u64, name: &str) {
        let name = format!("{} {id}", escaped(name));
        self.interval(PROCESSORS, core as u64, start, end, &name);
    }

    pub(crate) fn write(mut self, path: &Path) -> std::io::Result<()> {
        // The last event has no comma after it.
        self.text.truncate(self.text.trim_end().trim_end_matches(',').len());
        self.text.push_str("\n]}\n");
        std::fs::write(path, self.text)
    }
}
