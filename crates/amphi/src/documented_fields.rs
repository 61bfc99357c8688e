//! Holds the JSON that the command prints and the pages that describe it to each other.

use std::collections::BTreeSet;

use serde_json::Value;

/// Compares the fields of a printed object with those that the tables of a page list.
///
/// # Panics
/// If one has a field that the other lacks.
#[track_caller]
pub fn compare(printed: &Value, page: &str) {
    let mut found = BTreeSet::new();
    paths(printed, "", &mut found);
    let documented = documented(page);
    let undocumented: Vec<_> = found.difference(&documented).collect();
    assert!(undocumented.is_empty(), "the page lacks {undocumented:?}");
    let gone: Vec<_> = documented.difference(&found).collect();
    assert!(gone.is_empty(), "the page lists what is not there: {gone:?}");
}

/// Every field's path, with `[]` for the elements of a list of objects.
fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let at = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                paths(value, &at, found);
            }
        }
        Value::Array(values) if values.first().is_some_and(Value::is_object) => {
            for value in values {
                paths(value, &format!("{at}[]"), found);
            }
        }
        _ => {
            found.insert(at.to_owned());
        }
    }
}

/// The fields that a page lists: code spans in the first column of its tables, with `*` for the latency
/// fields.
fn documented(page: &str) -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    for line in page.lines().filter(|line| line.starts_with("| `")) {
        let column = line.split('|').nth(1).expect("a first column");
        fields.extend(column.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    let (latency, mut fields): (BTreeSet<_>, BTreeSet<_>) =
        fields.into_iter().partition(|field| field.starts_with("*."));
    let latencies: Vec<_> = fields.iter().filter(|field| field.ends_with(".*")).cloned().collect();
    for prefix in latencies {
        fields.remove(&prefix);
        let prefix = prefix.trim_end_matches(".*");
        fields.extend(latency.iter().map(|field| format!("{prefix}{}", &field[1..])));
    }
    fields
}
