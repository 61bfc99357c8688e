//! What the documents say came out is what is stored in docs/results: a number that they quote is the stored
//! one, rounded to the digits that are quoted.

use amphi_benchlab::figure::Figure;

const METADATA: &str = "metadata traffic, Ext4-like ÷ ByteFS";
const ALL: &str = "all traffic, Ext4-like ÷ ByteFS";
const FLASH: &str = "flash traffic, Ext4-like ÷ ByteFS";
const SLOW_FLASH: [&str; 3] = ["varmail, 80/800 us", "oltp-sync, 80/800 us", "fileserver, 80/800 us"];

/// A result: experiment, group, series.
type Place = (&'static str, &'static str, &'static str);

/// The same series of several groups.
fn of(experiment: &'static str, groups: &[&'static str], series: &'static str) -> Vec<Place> {
    groups.iter().map(|group| (experiment, *group, series)).collect()
}

/// The two variants of figure 12, group by group.
fn of_both(groups: &[&'static str]) -> Vec<Place> {
    groups.iter().flat_map(|group| [("fig12", *group, "ByteFS-Log"), ("fig12", *group, "ByteFS")]).collect()
}

fn stored((experiment, group, series): Place) -> f64 {
    let path = format!("{}/../../docs/results/{experiment}.json", env!("CARGO_MANIFEST_DIR"));
    let figure: Figure = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let group = figure.groups.iter().find(|found| found.label == group).unwrap();
    group.bars.iter().find(|bar| bar.series == series).unwrap().ours
}

/// The numbers of a text but for those in brackets and those behind a `·`, as they are written. Neither holds
/// what was measured.
fn quoted(text: &str) -> Vec<String> {
    let mut open = 0;
    let outside = text.chars().filter(|letter| {
        open += i32::from(*letter == '(') - i32::from(*letter == ')');
        open == 0 && *letter != ')'
    });
    let outside: String = outside.collect();
    let mut parts = outside.split('·');
    let first = parts.next().unwrap().to_owned();
    let after = |part: &str| {
        let rest = part.trim_start();
        rest[rest.find(|letter: char| letter != '.' && !letter.is_ascii_digit()).unwrap_or(rest.len())..]
            .to_owned()
    };
    let ours = parts.fold(first, |ours, part| ours + &after(part));
    let words = ours.split(|letter: char| letter != '.' && letter != '-' && !letter.is_ascii_alphanumeric());
    let number =
        |word: &&str| word.starts_with(|letter: char| letter.is_ascii_digit()) && word.parse::<f64>().is_ok();
    words.map(|word| word.trim_end_matches('.')).filter(number).map(str::to_owned).collect()
}

/// Holds the last cell of the row that begins so against what is stored.
fn check(document: &str, row: &str, places: &[Place]) {
    let path = format!("{}/../../docs/{document}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("| {row} |")));
    let line = line.unwrap_or_else(|| panic!("docs/{document} has no row of {row}"));
    let said = quoted(line.trim_end_matches([' ', '|']).rsplit('|').next().unwrap());
    assert_eq!(said.len(), places.len(), "docs/{document}, {row}: {said:?} are to be {places:?}");
    for (word, place) in said.iter().zip(places) {
        let decimals = word.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let (value, half) = (stored(*place), 0.5 * 0.1_f64.powi(decimals as i32));
        let off = (word.parse::<f64>().unwrap() - value).abs();
        assert!(off <= half + 1e-9, "docs/{document}, {row}: {word} is said of {place:?}, {value} is stored");
    }
}

#[test]
fn results_are_quoted_as_they_are_stored() {
    let micro = of("fig6", &["create", "create-sync", "delete", "mkdir", "rmdir"], "ByteFS");
    let macro_ =
        of("fig6", &["varmail", "fileserver", "webproxy", "webserver", "oltp", "oltp-sync"], "ByteFS");
    let ycsb = of("fig7", &["ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"], "ByteFS");
    let flash = [("fig10", FLASH, "average"), ("fig11", FLASH, "average")];
    let largest_log = of("fig14", &["varmail", "fileserver", "oltp-sync"], "1024 MB");
    let baseline =
        of("table2", &["varmail", "webproxy", "webserver", "oltp", "fileserver"], "Ext4-like, write");
    for (row, places) in [
        ("figure 6, micro", &micro[..]),
        ("figure 6, macro", &macro_),
        ("figure 7, YCSB A to F", &ycsb),
        ("figure 8", &[("fig8", METADATA, "average"), ("fig8", METADATA, "largest")]),
        ("figure 9", &[("fig9", ALL, "largest"), ("fig9", ALL, "fileserver")]),
        ("figures 10, 11", &flash),
        ("figure 12, of ByteFS-Dual", &of_both(&["varmail", "fileserver", "webproxy", "oltp-sync"])),
        ("figure 13, flash of 80/800 us", &of("fig13", &SLOW_FLASH, "ByteFS")),
        ("figure 14, 64 MB to 1 GB of log", &largest_log),
        ("table 2, write amplification of the baseline", &baseline),
        ("recovery of a full log", &[("recovery", "after a power cut", "together")]),
    ] {
        check("measurements/figures.md", row, places);
    }
    let published =
        of("fig6", &["create", "create-sync", "delete", "fileserver", "webproxy", "oltp"], "ByteFS");
    check("papers.md", "figure 6", &published);
    let published =
        of("fig6-artifact", &["create", "delete", "fileserver", "webproxy", "webserver", "oltp"], "ByteFS");
    check("papers.md", "figure 6 as the authors' artifact has it", &published);
    check("papers.md", "figures 8, 9", &[("fig8", METADATA, "average"), ("fig9", ALL, "largest")]);
    check("papers.md", "figures 10, 11", &flash);
    let published = of("table2", &["varmail", "webproxy", "oltp", "fileserver"], "Ext4-like, write");
    check("papers.md", "table 2", &published);
}

#[test]
fn what_is_published_is_not_taken_for_what_was_measured() {
    assert_eq!(quoted("create 0.90 (6.0), oltp-2 · 3.1, 4 KB · 1 in 24."), ["0.90", "4", "24"]);
}
