//! The same for programs: calls and answers as lines of text, by whichever doors programs reach a mount.
//!
//! What the kernel answers from its caches is true of some moment after the last change that had returned. It
//! says nothing of what others have seen of a change that is still being made: the kernel is told of that
//! before its caller is. And it may look twice, at a name and then at what the name names, or for two names;
//! of such an answer one part is judged, or none. A write that begins within a page it may hand over in two
//! parts, that page's and the rest; it appends so, too, where the first part ends at a place that nobody else
//! can tell, so programs append by direct I/O there.

use std::fmt;
use std::ops::Range;

use amphi_model::Model;

use super::calls::{Answer, BYTES, Call, DIR_NAMES, DIRS, FILES, NAMES, Place, World, draw};
use super::order::Order;
use super::{CALLS, FULL, Numbers, PAGE};

/// How a program reaches the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// By one that answers from the file system, at one moment.
    Own,
    /// By the kernel, which may answer from its caches.
    Kernel,
}

/// What is judged of an answer.
#[derive(Clone, Copy)]
enum Judged {
    Whole,
    /// The words with these indices.
    Words(&'static [usize]),
    Nothing,
}

/// A call that has returned.
struct Event {
    program: usize,
    door: Door,
    call: Call,
    began: u64,
    returned: u64,
    answer: String,
    judged: Judged,
    /// The bytes of a write that it is.
    part: Range<usize>,
    /// Its place among all of its program's.
    number: usize,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { program, door, call, began, returned, answer, judged, part, .. } = self;
        write!(f, "program {program} ({door:?}), ns {began} to {returned}: {}: {answer}", line(*call))?;
        if !part.is_empty() {
            write!(f, " (its bytes {part:?})")?;
        }
        match judged {
            Judged::Whole => Ok(()),
            Judged::Words(words) => write!(f, " (of which words {words:?} count)"),
            Judged::Nothing => f.write_str(" (which does not count)"),
        }
    }
}

/// Programs that call one file system at the same time, and the model that explains their answers.
pub struct Programs {
    doors: Vec<Door>,
    model: Model,
    world: World,
    dice: Numbers,
    round: Vec<Vec<Call>>,
}

impl Programs {
    /// Of one program for each door. The file system has directories `x` and `y`, and in each an empty file
    /// `0` with mode 644, which all programs hold open: what calls name by 0 and 1.
    ///
    /// # Panics
    /// Never: a model takes what it is furnished with.
    #[must_use]
    pub fn new(seed: u64, doors: &[Door]) -> Self {
        let model = Model::new();
        let world = World::furnish(&model).expect("a model takes them");
        Self { doors: doors.to_vec(), model, world, dice: Numbers::new(seed), round: Vec::new() }
    }

    /// What each program is to call next, a line a call.
    pub fn draw(&mut self) -> Vec<Vec<String>> {
        let dice = &mut self.dice;
        let mut of = |door: &Door| match draw(dice) {
            Call::Write { file, offset, data, append: true, .. } if *door == Door::Kernel => {
                Call::Write { file, offset, data, append: true, direct: true }
            }
            call => call,
        };
        self.round = self.doors.iter().map(|door| (0..CALLS).map(|_| of(door)).collect()).collect();
        let lines = |calls: &Vec<Call>| calls.iter().map(|call| line(*call)).collect();
        self.round.iter().map(lines).collect()
    }

    /// What each program is to be asked when all have returned.
    #[must_use]
    pub fn questions() -> Vec<String> {
        at_rest().into_iter().map(line).collect()
    }

    /// Finds an order of the calls that were drawn last that explains what each program was answered, and
    /// what each finds at rest. A line is the nanosecond at which a call began, the one at which it returned,
    /// and what came of it.
    ///
    /// # Errors
    /// The calls that no order explains, or a line that is none.
    pub fn judge(&mut self, answers: &[Vec<String>], found: &[Vec<String>]) -> Result<(), String> {
        let mut history = Vec::new();
        for (program, (calls, lines)) in self.round.iter().zip(answers).enumerate() {
            for (&call, line) in calls.iter().zip(lines) {
                let (began, returned, answer) = told(line)?;
                let door = self.doors[program];
                for part in parts(door, call) {
                    let (answer, number) = (answer.clone(), history.len());
                    let judged = Judged::Whole;
                    history.push(Event {
                        program,
                        door,
                        call,
                        began,
                        returned,
                        answer,
                        judged,
                        part,
                        number,
                    });
                }
            }
        }
        let judged: Vec<_> = (0..history.len()).map(|at| judged(&history, at)).collect();
        history.iter_mut().zip(judged).for_each(|(event, judged)| event.judged = judged);
        let found = found.iter().map(|lines| lines.iter().map(|line| told(line)).collect());
        let found: Vec<Vec<_>> = found.collect::<Result<_, String>>()?;
        let answer = |model: &Model, call| text(call, &self.world.answer(model, call));
        let model = Order {
            events: &history,
            is_before: &is_before,
            is_explained: &|model, event| {
                // What is not offered, or has no room, has no effect.
                if ["unsupported", FULL].contains(&&*event.answer) {
                    return true;
                }
                if let (Call::Write { file, offset, data, .. }, false) = (event.call, event.part.is_empty()) {
                    let (at, bytes) = (offset + event.part.start as u64, data.bytes());
                    return self.world.write(model, file, at, &bytes[event.part.clone()]).is_ok();
                }
                match event.judged {
                    Judged::Nothing => true,
                    Judged::Whole => answer(model, event.call) == event.answer,
                    Judged::Words(words) => {
                        let of = |text: &str| -> Vec<String> {
                            let all: Vec<_> = text.split(' ').collect();
                            words.iter().map(|word| all.get(*word).unwrap_or(&text).to_string()).collect()
                        };
                        of(&answer(model, event.call)) == of(&event.answer)
                    }
                }
            },
            is_left: &|model| {
                for (call, number) in at_rest().into_iter().zip(0..) {
                    let due = answer(model, call);
                    for (program, lines) in found.iter().enumerate() {
                        let (_, _, found) = &lines[number];
                        if *found != due {
                            let what = line(call);
                            return Err(format!(
                                "program {program}, {what}: found {found}, and due is {due}"
                            ));
                        }
                    }
                }
                Ok(())
            },
        }
        .explain(&self.model)?;
        self.model = model;
        Ok(())
    }
}

/// What is asked when nothing is being changed.
fn at_rest() -> Vec<Call> {
    let places = (0..DIRS).flat_map(|dir| (0..NAMES).map(move |name| Place { dir, name }));
    let files = (0..FILES).flat_map(|file| {
        let read = |direct| Call::Read { file, offset: 0, length: 4 * BYTES, direct };
        [Call::GetAttr(file), read(false), read(true), Call::GetXattr(file)]
    });
    files.chain(places.map(Call::Lookup)).chain((0..DIRS).map(Call::List)).collect()
}

/// Whether the first has taken effect before the second.
fn is_before(first: &Event, second: &Event) -> bool {
    if first.program == second.program {
        return first.number < second.number;
    }
    first.returned < second.began && (first.changes() || !second.is_from_caches())
}

/// The parts in which a write may be handed over; one that is empty for everything that is not.
fn parts(door: Door, call: Call) -> Vec<Range<usize>> {
    match call {
        Call::Write { offset, data, append: false, direct: false, .. } if door == Door::Kernel => {
            let (first, length) = (PAGE - offset as usize % PAGE, data.length as usize);
            if first == PAGE || first >= length { vec![0..0] } else { vec![0..first, first..length] }
        }
        _ => vec![0..0],
    }
}

impl Event {
    /// Whether it has changed anything.
    fn changes(&self) -> bool {
        use Call::{Fsync, GetAttr, GetXattr, List, Lookup, Read};
        let is_query =
            matches!(self.call, Fsync(_) | GetAttr(_) | GetXattr(_) | List(_) | Lookup(_) | Read { .. });
        !is_query && self.has_succeeded()
    }

    fn has_succeeded(&self) -> bool {
        ["done", "wrote"].iter().any(|said| self.answer.starts_with(said))
    }

    /// Whether the kernel may have answered it without asking.
    fn is_from_caches(&self) -> bool {
        self.door == Door::Kernel && !self.changes()
    }

    /// The file whose bytes it may change.
    const fn writes(&self) -> Option<usize> {
        match self.call {
            Call::Write { file, .. } | Call::Resize(file, _) | Call::Punch { file, .. } => Some(file),
            _ => None,
        }
    }
}

/// What of the answer to one of these calls is of one moment.
fn judged(history: &[Event], at: usize) -> Judged {
    let event = &history[at];
    let has_failed = !event.has_succeeded();
    match (event.door, event.call) {
        // By a descriptor the library does not link either.
        (_, Call::Link(..)) if has_failed => Judged::Nothing,
        (Door::Own, _) => Judged::Whole,
        (Door::Kernel, Call::Rename(..)) if has_failed => Judged::Nothing,
        (Door::Kernel, Call::Lookup(_)) => Judged::Words(&[0, 1, 5]),
        (Door::Kernel, Call::GetAttr(_)) => Judged::Words([&[1], &[2], &[3]][at % 3]),
        // The kernel copies pages while they are being written.
        (Door::Kernel, Call::Read { file, .. }) => {
            let meets = |other: &Event| other.returned >= event.began && event.returned >= other.began;
            let is_written = history.iter().any(|other| other.writes() == Some(file) && meets(other));
            if is_written { Judged::Nothing } else { Judged::Whole }
        }
        (Door::Kernel, _) => Judged::Whole,
    }
}

/// The parts of what a program says of a call.
fn told(line: &str) -> Result<(u64, u64, String), String> {
    let parts = line.splitn(3, ' ').collect::<Vec<_>>();
    let moment = |text: &str| text.parse().map_err(|_| format!("a program says: {line}"));
    match parts[..] {
        [began, returned, answer] => Ok((moment(began)?, moment(returned)?, answer.to_owned())),
        _ => Err(format!("a program says: {line}")),
    }
}

/// A call as a program is told it.
fn line(call: Call) -> String {
    let path = |place: Place| format!("{}/{}", DIR_NAMES[place.dir], place.name);
    match call {
        Call::Create(place) => format!("create {}", path(place)),
        Call::Mkdir(place) => format!("mkdir {}", path(place)),
        Call::Lookup(place) => format!("stat {}", path(place)),
        Call::Unlink(place) => format!("unlink {}", path(place)),
        Call::Rmdir(place) => format!("rmdir {}", path(place)),
        Call::Rename(from, to, mode) => format!("rename {} {} {mode:?}", path(from), path(to)),
        Call::Link(file, place) => format!("link {file} {}", path(place)),
        Call::Write { file, offset, data, append, direct } => format!(
            "write {file} {offset} {} {} {} {}",
            data.length,
            data.seed,
            u8::from(append),
            u8::from(direct)
        ),
        Call::Read { file, offset, length, direct } => {
            format!("read {file} {offset} {length} {}", u8::from(direct))
        }
        Call::Resize(file, size) => format!("resize {file} {size}"),
        Call::Punch { file, offset, length } => format!("punch {file} {offset} {length}"),
        Call::SetMode(file, mode) => format!("chmod {file} {mode}"),
        Call::GetAttr(file) => format!("fstat {file}"),
        Call::SetXattr(file, value, mode) => format!("setxattr {file} {value} {mode:?}"),
        Call::GetXattr(file) => format!("getxattr {file}"),
        Call::RemoveXattr(file) => format!("removexattr {file}"),
        Call::Fsync(file) => format!("fsync {file}"),
        Call::List(dir) => format!("list {}", DIR_NAMES[dir]),
    }
}

/// What a program has to say of an answer.
fn text(call: Call, answer: &Answer) -> String {
    match (answer, call) {
        (Answer::Attr(attr), Call::GetAttr(_)) => {
            let (_, mode, nlink, size) = attr.shown();
            format!("attr {mode} {nlink} {size}")
        }
        (Answer::Done | Answer::Attr(_) | Answer::Removed(_), _) => "done".to_owned(),
        (Answer::Found(attr, file), _) => {
            let (file_type, mode, nlink, size) = attr.shown();
            let file = file.map_or("-".to_owned(), |file| file.to_string());
            format!("found {file_type:?} {mode} {nlink} {size} {file}")
        }
        (Answer::Written(bytes), _) => format!("wrote {bytes}"),
        (Answer::Bytes(bytes), _) => {
            // A sum that tells orders apart.
            let add = |sum: u64, byte: &u8| sum.wrapping_mul(31).wrapping_add(u64::from(*byte));
            format!("bytes {} {}", bytes.len(), bytes.iter().fold(0, add))
        }
        (Answer::Names(names), _) => format!("names {}", names.join(" ")),
        (Answer::Failed(class), _) => (*class).to_owned(),
    }
}
