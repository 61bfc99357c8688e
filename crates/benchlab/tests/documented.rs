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
fn figures_of_the_other_papers_are_quoted_as_they_are_stored() {
    let largest = |experiment, series| (experiment, "largest", series);
    let journal = "Ext4-like DJ";
    let (ordered, f2fs, nova) = ("Ext4-like", "F2FS-like", "NOVA-like");
    let table4 = |group| ("romefs-table4", group, "bytes, memory path");
    for (row, places) in [
        ("RomeFS figure 6", &[largest("romefs-fig6", journal), largest("romefs-fig6", f2fs)][..]),
        ("RomeFS figure 7", &[("romefs-fig7", "1 MB", "bytes, block path")]),
        (
            "RomeFS table 4",
            &[
                "4 KB, threshold 4 KB",
                "16 KB, threshold 4 KB",
                "1 MB, threshold 64 KB",
                "0 to 1 MB, threshold 256 KB",
            ]
            .map(table4),
        ),
        ("RomeFS figure 8", &[largest("romefs-fig8", ordered), largest("romefs-fig8", f2fs)]),
        ("RomeFS figure 9", &[largest("romefs-fig9", journal), largest("romefs-fig9", f2fs)]),
        ("RomeFS figure 10", &[largest("romefs-fig10", ordered), largest("romefs-fig10", f2fs)]),
        ("RomeFS figure 11", &of("romefs-fig11", &["fileserver", "webproxy", "varmail"], ordered)),
        (
            "RomeFS figure 12",
            &[
                ("romefs-fig12", "LiveJournal", ordered),
                largest("romefs-fig12", ordered),
                largest("romefs-fig12", f2fs),
            ],
        ),
        (
            "RomeFS on device B, beside NOVA's kind",
            &[
                largest("romefs-fig6-nova", nova),
                largest("romefs-fig8-nova", nova),
                largest("romefs-fig9-nova", nova),
                largest("romefs-fig10-nova", nova),
                largest("romefs-fig12-nova", nova),
            ],
        ),
    ] {
        check("papers.md", row, places);
    }
    let commits = |group, series| ("2b-ssd-fig9", group, series);
    let (inode, direct) = ("DevFS +cap +demand +dentry +inode", "DevFS +cap +demand +dentry +inode +direct");
    let slower = "4 KB, DevFS +cap +demand +dentry +inode +direct";
    for (row, places) in [
        (
            "2B-SSD figures 9, 10",
            &[
                commits("2B-SSD ÷ DC-SSD", "least"),
                commits("2B-SSD ÷ DC-SSD", "most"),
                commits("2B-SSD ÷ ULL-SSD", "least"),
                commits("2B-SSD ÷ ULL-SSD", "most"),
                commits("2B-SSD ÷ ASYNC", "least"),
                commits("2B-SSD ÷ ASYNC", "most"),
            ][..],
        ),
        ("DevFS figure 6", &[("devfs-fig6", "write 1 KB", "DevFS +cap"), ("devfs-fig6", "write 1 KB", nova)]),
        (
            "DevFS figure 7",
            &["4 threads", "12 threads"].map(|threads| ("devfs-fig7", "append 4 KB, DevFS", threads)),
        ),
        (
            "DevFS figure 8",
            &["DevFS +cap +demand", "DevFS +cap +demand +dentry", inode]
                .map(|series| ("devfs-fig8", "files of 16 KB", series)),
        ),
        ("DevFS figure 9", &of("devfs-fig9", &["create", "reopen"], inode)),
        ("DevFS figure 10", &[("devfs-fig10", "4 KB", direct), ("devfs-fig10-b", slower, "1.4 GHz")]),
    ] {
        check("papers.md", row, places);
    }
}

#[test]
fn figures_of_augefs_are_quoted_as_they_are_stored() {
    let auge = "AugeFS";
    let delayed = |more| ("augefs-fig15-a", "names-mkdir, AugeFS", more);
    for (row, places) in [
        ("AugeFS figure 9", &[("augefs-fig9", "average", auge)][..]),
        (
            "AugeFS figure 10",
            &[
                ("augefs-fig10", "4 KB, 1 thread", auge),
                ("augefs-fig10", "4 KB, 24 threads", auge),
                ("augefs-fig10-b", "average", auge),
            ],
        ),
        ("AugeFS figure 11", &of("augefs-fig11", &["fileserver", "varmail", "webserver", "webproxy"], auge)),
        ("AugeFS figure 12", &[("augefs-fig12", "rw, 1 thread", auge)]),
        ("AugeFS figure 14", &[("augefs-fig14", "24 threads", auge)]),
        ("AugeFS figure 15 (a)", &["1 us more", "5 us more", "10 us more"].map(delayed)),
        (
            "AugeFS figure 15 (b), (c)",
            &[
                ("augefs-fig15-b", "names-mkdir", "128 MB"),
                ("augefs-fig15-b", "names-mkdir", "512 KB"),
                ("augefs-fig15-c", "names-mkdir", "20 M"),
            ],
        ),
        ("AugeFS figure 15 (d)", &[("augefs-fig15-d", "24 threads", "AugeFS-span")]),
        (
            "AugeFS figure 16 (b)",
            &[
                ("augefs-fig16-b", "90 %", auge),
                ("augefs-fig16-b", "97 %", auge),
                ("augefs-fig16-b", "90 %", "F2FS-like"),
                ("augefs-fig16-b", "97 %", "F2FS-like"),
            ],
        ),
        (
            "AugeFS recovery",
            &[auge, "F2FS-like"].map(|series| ("augefs-recovery", "mount after a power cut", series)),
        ),
    ] {
        check("papers.md", row, places);
    }
}

#[test]
fn every_stored_value_that_is_off_says_why() {
    let results = format!("{}/../../docs/results", env!("CARGO_MANIFEST_DIR"));
    let mut figures = 0;
    for entry in std::fs::read_dir(results).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") || path.ends_with("guard.json") {
            continue;
        }
        let figure: Figure = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(figure.unexplained(), Vec::<String>::new(), "{}", path.display());
        figures += 1;
    }
    assert!(figures > 50);
}

#[test]
fn what_is_published_is_not_taken_for_what_was_measured() {
    assert_eq!(quoted("create 0.90 (6.0), oltp-2 · 3.1, 4 KB · 1 in 24."), ["0.90", "4", "24"]);
}
