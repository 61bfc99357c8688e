//! Sizes as people write them (`8G`, `512M`, `4096`) and as people read them.

/// Reads a size in bytes: a number, with a fraction if need be, and an optional binary suffix K, M, G or T in
/// either case, which may be followed by `iB` or `B`.
///
/// # Errors
/// A sentence that says what is wrong.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, suffix) = text.split_at(digits);
    let unit = suffix.trim_end_matches("iB").trim_end_matches('B');
    let shift = match unit {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return Err(format!("`{suffix}` is not a unit; use K, M, G or T")),
    };
    let refused = || format!("`{text}` does not start with a number; write a size like 8G or 1.5G");
    let (whole, fraction) = number.split_once('.').map_or((number, None), |(a, b)| (a, Some(b)));
    let too_large = || format!("`{text}` is more than 16 exabytes");
    let bytes: u64 =
        whole.parse::<u64>().map_err(|_| refused())?.checked_mul(1 << shift).ok_or_else(too_large)?;
    let Some(fraction) = fraction else { return Ok(bytes) };
    // Twelve digits tell a byte of a terabyte; whoever writes more means no other size.
    if fraction.is_empty() || fraction.len() > 12 || fraction.contains('.') {
        return Err(refused());
    }
    let parts: u128 = fraction.parse().map_err(|_| refused())?;
    let part = (parts << shift) / 10_u128.pow(fraction.len() as u32);
    bytes.checked_add(part as u64).ok_or_else(too_large)
}

/// `bytes` with three significant digits and a binary unit.
#[must_use]
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
        assert_eq!((parse("8g"), parse("2m"), parse("1t")), (Ok(8 << 30), Ok(2 << 20), Ok(1 << 40)));
        assert_eq!((parse("1.5G"), parse("0.25k")), (Ok(3 << 29), Ok(256)));
        for bad in ["", "G", "8X", "-1", "8.G", ".5G", "1.2.3G", "99999999999999999999", "20000000T"] {
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
