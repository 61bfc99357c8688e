//! One crash, explained: for the terminal, and as a page of HTML that needs nothing else.
//!
//! The page draws the recording as a timeline: what each event was, which stores were on their way, where
//! commits made them count, and where the plug was pulled, with what arrived of what was on its way.

use std::fmt::Write as _;

use crate::candidate::Candidate;
use crate::id::CrashId;
use crate::lab::Shown;
use crate::rig::{Event, RECURS, Way};
use crate::session::Outcome;
use crate::tree::Tree;

/// A tree in lines of text, without contents.
fn listing(tree: &Tree) -> String {
    let mut text = String::new();
    for path in tree.names.keys() {
        if let Some(node) = tree.get(path) {
            let _infallible = writeln!(
                text,
                "  {path:24} {:?} {:o}, {} links, {} bytes, {} attributes",
                node.file_type,
                node.mode,
                node.nlink,
                node.data.len(),
                node.xattrs.len()
            );
        }
    }
    text
}

fn candidate(candidate: &Candidate) -> String {
    let mut text = listing(&candidate.tree);
    for (path, ino) in &candidate.tree.names {
        if let Some(range) = candidate.ranges.get(ino).filter(|range| range.versions.len() > 1) {
            let sizes: Vec<usize> = range.versions.iter().map(|version| version.len()).collect();
            let _infallible =
                writeln!(text, "  {path:24} not synced: sizes {sizes:?}, bytes of any of these states");
        }
    }
    text
}

/// A replayed crash in words.
#[must_use]
pub fn text(id: &CrashId, outcome: &Outcome) -> String {
    let mut text = format!("{id}\n\noperations:\n");
    for (place, operation) in outcome.script.iter().enumerate() {
        let _infallible = writeln!(text, "  {place:3} {operation}");
    }
    if let (Some(fault), Some(failed)) = (id.workload.fault, outcome.failed) {
        let how = match fault.way {
            Way::Refused => "refused".to_owned(),
            Way::Done => "carried out, and reported as failed".to_owned(),
            Way::Lasting => "refused, as all others from then on".to_owned(),
            Way::Recurring => format!("refused, as one in {RECURS} from then on"),
        };
        let _infallible = writeln!(text, "\nthe device has failed {failed}: {how}");
    }
    let Some(shown) = &outcome.shown else {
        text += "\nthe crash did not happen: there is no such crash point or state\n";
        return text;
    };
    let _infallible = write!(
        text,
        "\ncrash during or after {}\n  the device's next step: {}\n  on its way: {} units\n",
        shown.operation,
        shown.next,
        shown.units.len()
    );
    for (number, (unit, arrived)) in shown.units.iter().enumerate() {
        let fate = match arrived {
            Some(true) => "arrived",
            Some(false) => "lost",
            None => "torn",
        };
        let _infallible = writeln!(
            text,
            "  {number:3} {fate:8} {} B at page {} + {} ({})",
            unit.data.len(),
            unit.at / 4096,
            unit.at % 4096,
            unit.tag.name()
        );
    }
    if let Some(step) = id.again {
        let _infallible = writeln!(text, "  and the power failed again at step {step} of recovery");
    }
    for (number, legal) in shown.legal.candidates.iter().enumerate() {
        let _infallible = write!(
            text,
            "\nlegal, {} of {}:\n{}",
            number + 1,
            shown.legal.candidates.len(),
            candidate(legal)
        );
    }
    if let Some(found) = &shown.found {
        let _infallible = write!(text, "\nfound:\n{}", listing(found));
    }
    match &shown.wrong {
        Some(wrong) => text += &format!("\nwrong: {wrong}\n"),
        None => text += "\nnothing is wrong after this crash\n",
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "body{font:14px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#222;background:#fff}\
pre{background:#f5f5f2;padding:.7em;overflow-x:auto}svg{width:100%;height:auto;background:#fcfcfa}\
h1{font-size:1.3em}h2{font-size:1.1em}.wrong{border-left:4px solid #b00020;padding-left:.8em}text{font:11px monospace}";

/// Height of one event in the drawing.
const ROW: usize = 18;

fn color(event: &Event) -> &'static str {
    match event {
        Event::Store { tx: Some(_), .. } => "#2b6cb0",
        Event::Store { .. } => "#63b3ed",
        Event::FlushLines { .. } => "#a0aec0",
        Event::Fence => "#718096",
        Event::VerifyRead | Event::SyncEntry(_) => "#2f855a",
        Event::SubmitWrite { .. } => "#d69e2e",
        Event::CompleteWrite { .. } => "#b7791f",
        Event::Commit(_) | Event::Pin(_) | Event::FlushEntry(_) => "#276749",
        Event::Recover | Event::CleanLog | Event::Flush | Event::Trim { .. } => "#6b46c1",
        Event::Begin(_) | Event::End(_) => "#1a202c",
    }
}

/// For how long each event's effect was on its way: the index of the event by which it had arrived, if that
/// came.
fn arrivals(events: &[Event]) -> Vec<Option<usize>> {
    let mut until = vec![None; events.len()];
    let mut stores: Vec<usize> = Vec::new();
    let mut blocks: Vec<usize> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        match event {
            Event::Store { .. } => stores.push(number),
            Event::SubmitWrite { .. } => blocks.push(number),
            Event::VerifyRead | Event::SyncEntry(_) => {
                stores.drain(..).for_each(|store| until[store] = Some(number))
            }
            Event::CompleteWrite { .. } if !blocks.is_empty() => until[blocks.remove(0)] = Some(number),
            _ => {}
        }
    }
    until
}

fn drawing(events: &[Event], cut: usize) -> String {
    let until = arrivals(events);
    let width = 900;
    let height = (events.len() + 2) * ROW;
    let mut svg = format!("<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"timeline\">");
    for (number, event) in events.iter().enumerate() {
        let y = (number + 1) * ROW;
        let faded = if number >= cut { " opacity=\"0.35\"" } else { "" };
        let _infallible = write!(
            svg,
            "<g{faded}><text x=\"4\" y=\"{}\">{number}</text><circle cx=\"52\" cy=\"{}\" r=\"5\" fill=\"{}\"/>\
             <text x=\"130\" y=\"{}\">{}</text>",
            y + 4,
            y,
            color(event),
            y + 4,
            escaped(&event.to_string())
        );
        if matches!(event, Event::Store { .. } | Event::SubmitWrite { .. }) {
            let to = until[number].unwrap_or(events.len());
            let x = 70 + number % 6 * 9;
            let _infallible = write!(
                svg,
                "<line x1=\"{x}\" y1=\"{y}\" x2=\"{x}\" y2=\"{}\" stroke=\"{}\" stroke-width=\"4\"/>",
                (to + 1) * ROW,
                color(event)
            );
        }
        svg += "</g>";
    }
    let y = cut * ROW + ROW / 2;
    let _infallible = write!(
        svg,
        "<line x1=\"0\" y1=\"{y}\" x2=\"{width}\" y2=\"{y}\" stroke=\"#b00020\" stroke-width=\"2\" stroke-dasharray=\"6 3\"/>\
         <text x=\"{}\" y=\"{}\" fill=\"#b00020\">power lost</text></svg>",
        width - 80,
        y - 3
    );
    svg
}

/// A replayed crash as one self-contained page.
#[must_use]
pub fn html(id: &CrashId, outcome: &Outcome) -> String {
    let nothing = Shown::default();
    let shown = outcome.shown.as_ref().unwrap_or(&nothing);
    let cut = shown.events.min(outcome.events.len());
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style>\
         <h1>{title}</h1><p class=\"wrong\">{wrong}</p><p>{operation}</p>\
         <h2>What the device was asked, and where the power went</h2>\
         <p>A bar beside a store or block write lasts as long as it was on its way: a crash meanwhile may keep, drop or tear it. \
         Green: write-verify reads and commits. Yellow: block writes. Pale: after the crash.</p>{drawing}\
         <h2>In words</h2><pre>{text}</pre></html>\n",
        title = escaped(&id.to_string()),
        wrong = escaped(shown.wrong.as_deref().unwrap_or("nothing is wrong after this crash")),
        operation = escaped(&shown.operation),
        drawing = drawing(&outcome.events, cut),
        text = escaped(&text(id, outcome)),
    )
}
