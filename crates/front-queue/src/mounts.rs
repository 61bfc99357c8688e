//! Which mounts of ours there are, as `/proc/self/mountinfo` lists them.

/// The file-system type under which the kernel lists our mounts.
const FS_TYPE: &[u8] = b"fuse.amphi";

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedMount {
    /// Where it is, without a slash at the end.
    pub directory: Vec<u8>,
    /// Its device number.
    pub device: u64,
    /// The user who mounted it.
    pub owner: u32,
}

/// Our mounts of the table that are not hidden by a later mount on the same directory and have no other mount
/// below them: a path below such a one leads where the table says, and the mount's daemon knows it all.
#[must_use]
pub fn listed_mounts(mountinfo: &[u8]) -> Vec<ListedMount> {
    let lines: Vec<Line> = mountinfo.split(|&byte| byte == b'\n').filter_map(Line::parse).collect();
    let is_below = |inner: &[u8], outer: &[u8]| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    };
    let is_free = |number: usize, line: &Line| {
        !lines.iter().skip(number + 1).any(|later| is_below(&later.directory, &line.directory))
    };
    let ours = lines.iter().enumerate().filter(|(number, line)| line.is_ours && is_free(*number, line));
    ours.map(|(_, line)| ListedMount {
        directory: line.directory.clone(),
        device: line.device,
        owner: line.owner,
    })
    .collect()
}

/// What counts of a line of `/proc/self/mountinfo`.
struct Line {
    device: u64,
    directory: Vec<u8>,
    is_ours: bool,
    owner: u32,
}

impl Line {
    fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let (before, after) = text.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let (major, minor) = before.next()?.split_once(':')?;
        let device = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
        // A mount of a part of a file system has another root.
        let is_whole = before.next()? == "/";
        let directory = unescape(before.next()?.as_bytes());
        let mut after = after.split(' ');
        let is_ours = after.next()?.as_bytes() == FS_TYPE && is_whole;
        let options = after.nth(1).unwrap_or("");
        let owner = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
        Some(Self { device, directory, is_ours: is_ours && owner.is_some(), owner: owner.unwrap_or(0) })
    }
}

/// Undoes the kernel's octal escapes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let escaped = (byte == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match escaped {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_are_found_and_those_that_others_cover_are_not() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
            2 1 0:40 / /mnt/a\\040b rw,nosuid - fuse.amphi /i rw,user_id=7,group_id=0\n\
            3 1 0:41 / /mnt/c rw - fuse.amphi /j rw,user_id=0,group_id=0\n\
            4 3 0:42 / /mnt/c/d rw - tmpfs t rw\n\
            5 1 0:43 /part /mnt/e rw - fuse.amphi /k rw,user_id=0\n\
            6 1 0:44 / /mnt/cc rw - fuse.other /l rw,user_id=0\n";
        let found = listed_mounts(table);
        let wanted =
            ListedMount { directory: b"/mnt/a b".to_vec(), device: rustix::fs::makedev(0, 40), owner: 7 };
        assert_eq!(found, [wanted]);
    }
}
