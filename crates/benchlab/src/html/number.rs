//! Numbers as people read them.

/// Four significant digits, more before the point where there are more, with thousands apart.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (3 - magnitude).clamp(0, 12) as usize;
    let text = format!("{:.decimals$}", value.abs());
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let mut shown = String::new();
    if value < 0.0 {
        shown.push('−');
    }
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    let part = part.trim_end_matches('0');
    if !part.is_empty() {
        shown.push('.');
        shown.push_str(part);
    }
    shown
}

/// A number with its unit.
pub(super) fn with_unit(value: f64, unit: &str) -> String {
    if unit.is_empty() { number(value) } else { format!("{}\u{a0}{unit}", number(value)) }
}

/// A quotient, as `0.65 ×`.
pub(super) fn times(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}\u{a0}×") } else { "–".to_owned() }
}

/// A time of so many ns, in the unit that suits it.
pub(super) fn duration(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    with_unit((value * 100.0).round() / 100.0, unit)
}
