//! Sizes as people write them (`8G`, `512M`, `4096`) and as people read them.

/// Reads a size in bytes: a number with an optional binary suffix K, M, G or T, which may be followed by `iB` or `B`.
///
/// # Errors
/// A sentence that says what is wrong, for clap to show.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("`{text}` does not start with a whole number; write a size like 8G"))?;
    let unit = suffix.trim_end_matches("iB").trim_end_matches('B');
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return Err(format!("`{suffix}` is not a unit; use K, M, G or T")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is more than 16 exabytes"))
}

/// `bytes` with three significant digits and a binary unit.
pub fn shown(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if unit == 0 || value >= 100.0 { 0 } else { usize::from(value < 10.0) + 1 };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_binary_units() {
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("8G"), Ok(8 << 30));
        assert_eq!(parse("8GiB"), Ok(8 << 30));
        assert_eq!(parse("64k"), Ok(65536));
        assert_eq!(parse("1T"), Ok(1 << 40));
        for bad in ["", "G", "8X", "-1", "8.5G", "99999999999999999999", "20000000T"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_shown_short() {
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(8 << 30), "8 GiB");
        assert_eq!(shown(1536), "1.5 KiB");
        assert_eq!(shown(123_456_789), "118 MiB");
    }
}
