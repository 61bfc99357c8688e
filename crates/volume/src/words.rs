//! Mount options as people write them: `data=journal,cache=256M`.

use crate::size;

/// One option: a key and its value.
#[derive(Clone, Copy, Debug)]
pub struct Word<'a> {
    /// All of it.
    pub text: &'a str,
    /// In front of the first `=`; all of it, if there is none.
    pub key: &'a str,
    /// Behind it.
    pub value: &'a str,
}

/// Reads options separated by commas: `take` takes over each, or says that it is none of the file system
/// `title`, or what would do in its place. `known` is the list of options, for people.
///
/// # Errors
/// A sentence about the first one that is unknown or impossible.
pub fn read_words(
    text: &str,
    (title, known): (&str, &str),
    mut take: impl FnMut(Word<'_>) -> Result<bool, String>,
) -> Result<(), String> {
    for text in text.split(',').filter(|word| !word.is_empty()) {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        match take(Word { text, key, value }) {
            Ok(true) => {}
            Ok(false) => return Err(format!("`{text}` is no mount option of {title}; there are {known}")),
            Err(instead) => {
                return Err(format!("`{text}`: write {key}={instead}; the options of {title} are {known}"));
            }
        }
    }
    Ok(())
}

impl Word<'_> {
    /// One of some values, each with what it means.
    ///
    /// # Errors
    /// Which there are.
    pub fn one_of<T: Copy>(&self, values: &[(&str, T)]) -> Result<T, String> {
        let found = values.iter().find(|(value, _)| *value == self.value).map(|(_, meaning)| *meaning);
        let all = || {
            let values: Vec<_> = values.iter().map(|(value, _)| *value).collect();
            match &*values {
                [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
                _ => values.concat(),
            }
        };
        found.ok_or_else(all)
    }

    /// A number from `least` to `most`.
    ///
    /// # Errors
    /// What would do.
    pub fn number(&self, least: u64, most: u64) -> Result<u64, String> {
        let number = self.value.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| match most {
            u64::MAX => format!("N, at least {least}"),
            _ => format!("N, from {least} to {most}"),
        })
    }

    /// A size from `least` to `most` bytes.
    ///
    /// # Errors
    /// What would do.
    pub fn bytes(&self, least: u64, most: u64) -> Result<u64, String> {
        let bytes = size::parse(self.value).ok().filter(|bytes| (least..=most).contains(bytes));
        bytes.ok_or_else(|| format!("SIZE, as in 256M, from {} to {}", size::shown(least), size::shown(most)))
    }

    /// Memory for a cache: at least `least` bytes, in pages of 4096.
    ///
    /// # Errors
    /// What would do.
    pub fn pages(&self, least: u64) -> Result<usize, String> {
        Ok((self.bytes(least, 1 << 46)? / 4096) as usize)
    }

    /// Inodes, names and the like in memory.
    ///
    /// # Errors
    /// What would do.
    pub fn cached(&self) -> Result<usize, String> {
        Ok(self.number(16, u64::MAX)? as usize)
    }

    /// Seconds, a fraction too, in ns: from `least` to `most`, or 0, if that is as little as there may be.
    ///
    /// # Errors
    /// What would do.
    pub fn seconds(&self, least: f64, most: f64) -> Result<u64, String> {
        let seconds = self.value.parse::<f64>().ok().filter(|seconds| (least..=most).contains(seconds));
        let seconds = seconds.ok_or_else(|| format!("SECONDS, from {least} to {most}"))?;
        Ok((seconds * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<(u64, u64), String> {
        let mut read = (0, 0);
        read_words(text, ("the toy", "size=SIZE, kind=a|b"), |word| {
            match word.key {
                "size" => read.0 = word.bytes(16, 1 << 20)?,
                "kind" => read.1 = word.one_of(&[("a", 1), ("b", 2)])?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(read)
    }

    #[test]
    fn words_are_read_or_refused_with_what_would_do() {
        assert_eq!(read("size=4K,,kind=b"), Ok((4096, 2)));
        assert!(read("size=1").unwrap_err().contains("`size=1`: write size=SIZE"));
        assert!(read("kind=c").unwrap_err().contains("write kind=a or b"));
        assert!(read("fast").unwrap_err().contains("`fast` is no mount option of the toy"));
        let word = Word { text: "x=0.5", key: "x", value: "0.5" };
        assert_eq!((word.seconds(0.0, 1.0), word.number(1, 2).is_err()), (Ok(500_000_000), true));
    }
}
