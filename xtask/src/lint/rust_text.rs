//! Rust source with its comments and literals blanked out, so that a rule about code is not fooled by prose.

/// What to keep of a source file. Line breaks always stay, so line numbers do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Code only: comments and the insides of literals become blanks.
    Code,
    /// Comments only.
    Comments,
}

/// `source` with everything that `keep` does not name replaced by spaces.
pub fn masked(source: &str, keep: Keep) -> String {
    let bytes = source.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (kind, len) = token(&bytes[at..], at > 0 && is_word(bytes[at - 1]));
        let kept = matches!((kind, keep), (Kind::Code, Keep::Code) | (Kind::Comment, Keep::Comments));
        let blank = |&byte: &u8| if kept || byte == b'\n' { byte } else { b' ' };
        out.extend(bytes[at..at + len].iter().map(blank));
        at += len;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The lines of `text`, numbered from 1, that hold `word` not as part of a longer identifier.
pub fn lines_with_word<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.lines().enumerate().filter(move |(_, line)| has_word(line, word)).map(|(index, _)| index + 1)
}

fn has_word(line: &str, word: &str) -> bool {
    let bytes = line.as_bytes();
    line.match_indices(word).any(|(at, _)| {
        let end = at + word.len();
        (at == 0 || !is_word(bytes[at - 1])) && (end == bytes.len() || !is_word(bytes[end]))
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

enum Kind {
    Code,
    Comment,
    Literal,
}

/// The kind and length of what `rest` starts with. `in_word`: the byte before belongs to an identifier.
fn token(rest: &[u8], in_word: bool) -> (Kind, usize) {
    if rest.starts_with(b"//") {
        let len = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        return (Kind::Comment, len);
    }
    if rest.starts_with(b"/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if !in_word && let Some(len) = raw_string(rest) {
        return (Kind::Literal, len);
    }
    match rest[0] {
        b'"' => (Kind::Literal, quoted(rest, b'"')),
        // A lifetime has no closing quote two or more bytes on; a character literal does.
        b'\'' if rest.get(1) == Some(&b'\\') || rest.get(2) == Some(&b'\'') => {
            (Kind::Literal, quoted(rest, b'\''))
        }
        _ => (Kind::Code, 1),
    }
}

fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn raw_string(rest: &[u8]) -> Option<usize> {
    let start = if rest.starts_with(b"br") { 2 } else { usize::from(rest[0] == b'r') };
    if start == 0 {
        return None;
    }
    let hashes = rest[start..].iter().take_while(|&&b| b == b'#').count();
    if rest.get(start + hashes) != Some(&b'"') {
        return None;
    }
    let mut closing = vec![b'"'];
    closing.resize(hashes + 1, b'#');
    let body = start + hashes + 1;
    let end = rest[body..].windows(closing.len()).position(|window| window == closing);
    Some(end.map_or(rest.len(), |end| body + end + closing.len()))
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_comments_are_told_apart() {
        let source = "let a = \"x // y\"; // note: b\nlet c: &'a str = r#\"d\"#; /* e */ 'f'\n";
        let code = masked(source, Keep::Code);
        let comments = masked(source, Keep::Comments);
        assert_eq!(code.lines().count(), 2);
        for word in ["x", "y", "note", "d", "e", "f"] {
            assert_eq!(lines_with_word(&code, word).next(), None, "{word} is not code");
        }
        assert_eq!(lines_with_word(&code, "let").collect::<Vec<_>>(), [1, 2]);
        assert_eq!(lines_with_word(&code, "a").collect::<Vec<_>>(), [1, 2]);
        assert_eq!(lines_with_word(&comments, "note").collect::<Vec<_>>(), [1]);
        assert_eq!(lines_with_word(&comments, "let").next(), None);
    }

    #[test]
    fn an_unfinished_literal_ends_with_the_file() {
        assert_eq!(masked("\"abc\\", Keep::Code).len(), 5);
        assert_eq!(masked("/* abc", Keep::Code).len(), 6);
        assert_eq!(masked("r#\"abc", Keep::Code).len(), 6);
    }
}
