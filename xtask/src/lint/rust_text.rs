//! Rust source with its comments and literals blanked out, so that a rule about code is not fooled by prose.

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

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
    let mut out = Vec::with_capacity(source.len());
    let mut rest = source.as_bytes();
    for token in tokenize(source, FrontmatterAllowed::No) {
        let (text, after) = rest.split_at(token.len as usize);
        let kept = is_kept(token.kind, keep);
        out.extend(text.iter().map(|&byte| if kept || byte == b'\n' { byte } else { b' ' }));
        rest = after;
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

/// Whether a token is what `keep` names.
const fn is_kept(kind: TokenKind, keep: Keep) -> bool {
    use LiteralKind::{Float, Int};
    match kind {
        TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => matches!(keep, Keep::Comments),
        TokenKind::Literal { kind: Int { .. } | Float { .. }, .. } => matches!(keep, Keep::Code),
        TokenKind::Literal { .. } => false,
        _ => matches!(keep, Keep::Code),
    }
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
