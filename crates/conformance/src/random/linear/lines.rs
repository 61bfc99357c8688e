//! Calls and answers as lines of text, as programs are told them and say them.

use super::calls::{Answer, Call, DIR_NAMES, Place};

/// The parts of what a program says of a call.
pub(super) fn told(line: &str) -> Result<(u64, u64, String), String> {
    let parts = line.splitn(3, ' ').collect::<Vec<_>>();
    let moment = |text: &str| text.parse().map_err(|_| format!("a program says: {line}"));
    match parts[..] {
        [began, returned, answer] => Ok((moment(began)?, moment(returned)?, answer.to_owned())),
        _ => Err(format!("a program says: {line}")),
    }
}

/// A call as a program is told it.
pub(super) fn line(call: Call) -> String {
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
pub(super) fn text(call: Call, answer: &Answer) -> String {
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
        (Answer::Names(names), _) => names.iter().fold("names".to_owned(), |text, name| text + " " + name),
        (Answer::Failed(class), _) => (*class).to_owned(),
    }
}
