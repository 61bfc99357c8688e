//! What the documents say came out is what is stored in docs/results: a number that they quote is the stored
//! one, rounded to the digits that are quoted.

use amphi_benchlab::figure::Figure;

const METADATA: &str = "metadata traffic, Ext4-like ÷ ByteFS";
const ALL: &str = "all traffic, Ext4-like ÷ ByteFS";
const FLASH: &str = "flash traffic, Ext4-like ÷ ByteFS";
const SLOW_FLASH: [&str; 3] = ["varmail, 80/800 us", "oltp-sync, 80/800 us", "fileserver, 80/800 us"];

/// A result: experiment, group, series.
type Place<'a> = (&'a str, &'a str, &'a str);

/// The same series of several groups.
fn of(experiment: &'static str, groups: &[&'static str], series: &'static str) -> Vec<Place<'static>> {
    groups.iter().map(|group| (experiment, *group, series)).collect()
}

/// The two variants of figure 12, group by group.
fn of_both(groups: &[&'static str]) -> Vec<Place<'static>> {
    groups.iter().flat_map(|group| [("fig12", *group, "ByteFS-Log"), ("fig12", *group, "ByteFS")]).collect()
}

fn stored((experiment, group, series): Place<'_>) -> f64 {
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

fn text_of(document: &str) -> String {
    std::fs::read_to_string(format!("{}/../../docs/{document}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// The cells of a document's row behind its first one.
fn cells(document: &str, row: &str) -> Vec<String> {
    let text = text_of(document);
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("| {row} |")));
    let line = line.unwrap_or_else(|| panic!("docs/{document} has no row of {row}"));
    line.trim_end_matches([' ', '|']).split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// Holds numbers that a row of a document says against what is stored; says all that are off.
fn hold(document: &str, row: &str, said: &[String], places: &[Place<'_>]) {
    assert_eq!(said.len(), places.len(), "docs/{document}, {row}: {said:?} are to be {places:?}");
    let wrong = said.iter().zip(places).filter_map(|(word, place)| {
        let decimals = word.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let (value, half) = (stored(*place), 0.5 * 0.1_f64.powi(decimals as i32));
        let is_off = (word.parse::<f64>().unwrap() - value).abs() > half + 1e-9;
        is_off.then(|| format!("{word} is said of {place:?}, {value:.decimals$} is stored"))
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "docs/{document}, {row}: {}", wrong.join("; "));
}

/// Holds the last cell of the row that begins so against what is stored.
fn check(document: &str, row: &str, places: &[Place<'_>]) {
    hold(document, row, &quoted(cells(document, row).last().unwrap()), places);
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

/// Holds the table of a document whose head begins so: `place` says of a row and of a column, from 0, which
/// value that cell has.
fn check_table(document: &str, head: &str, place: impl Fn(&str, usize) -> Option<(String, String, String)>) {
    let text = text_of(document);
    let mut rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let mut held = 0;
    for line in rows.by_ref().take_while(|line| line.starts_with('|')) {
        let mut cells = line.trim_matches(['|', ' ']).split('|').map(str::trim);
        let row = cells.next().unwrap();
        for (column, cell) in cells.enumerate() {
            if let Some((experiment, group, series)) = place(row, column) {
                hold(
                    document,
                    &format!("{row}, column {column}"),
                    &quoted(cell),
                    &[(&experiment, &group, &series)],
                );
                held += 1;
            }
        }
    }
    assert!(held > 0, "docs/{document} has no table that begins with {head}");
}

/// A value's experiment, group and series.
fn at(experiment: &str, group: String, series: Option<&&str>) -> Option<(String, String, String)> {
    Some((experiment.to_owned(), group, (*series?).to_owned()))
}

#[test]
fn tables_of_bytefs_and_augefs_are_as_stored() {
    check_table("measurements/figures.md", "| | NOVA-like | PMFS-like | ByteFS |", |row, column| {
        let series = ["NOVA-like", "PMFS-like", "ByteFS"];
        at("fig6", row.to_owned(), series.get(column).filter(|_| !row.starts_with("YCSB")))
    });
    check_table("measurements/bytefs-figures.md", "| | durable on return | grouped |", |row, column| {
        at("fig6-grouped", row.to_owned(), ["ByteFS", "ByteFS grouped"].get(column))
    });
    check_table(
        "measurements/augefs-figures.md",
        "| | F2FS-like | ByteFS | AugeFS-roc | AugeFS |",
        |row, column| {
            let group = if row == "average over all" { "average".to_owned() } else { format!("names-{row}") };
            at("augefs-fig9", group, ["F2FS-like", "ByteFS", "AugeFS-roc", "AugeFS"].get(column))
        },
    );
    check_table("measurements/augefs-figures.md", "| | F2FS-like | AugeFS-syn | AugeFS |", |row, column| {
        let series = ["F2FS-like", "AugeFS-syn", "AugeFS"];
        at("augefs-fig10", row.to_owned(), series.get(column).filter(|_| !row.starts_with("reads")))
    });
    check_table(
        "measurements/augefs-figures.md",
        "| | F2FS-like | ByteFS | AugeFS | AugeFS as",
        |row, column| at("augefs-fig11", row.to_owned(), ["F2FS-like", "ByteFS", "AugeFS"].get(column)),
    );
}

#[test]
fn tables_of_romefs_and_devfs_are_as_stored() {
    let kinds = ["Ext4-like DJ", "Ext4-like", "F2FS-like"];
    check_table("measurements/romefs-figures.md", "| bytes | data=journal, 1:5", |row, column| {
        let memory = if column < kinds.len() { "1:5" } else { "1:10" };
        at("romefs-fig6", format!("{row}, {memory}"), kinds.get(column % kinds.len()))
    });
    check_table("measurements/romefs-figures.md", "| bytes | ext4-like, 1:5", |row, column| {
        let memory = if column % 2 == 0 { "1:5" } else { "1:10" };
        at("romefs-fig8", format!("{row}, {memory}"), kinds.get(1 + column / 2))
    });
    check_table("measurements/romefs-figures.md", "| threads | data=journal", |row, column| {
        let group = format!("0 to 1 MB, {row} thread{}", if row == "1" { "" } else { "s" });
        match column {
            3 => at("romefs-fig9-nova", group, Some(&"NOVA-like")),
            _ => at("romefs-fig9", group, kinds.get(column)),
        }
    });
    check_table(
        "measurements/romefs-figures.md",
        "| | data=journal | ordered | F2FS-like | the paper",
        |row, column| at("romefs-fig11", row.to_owned(), kinds.get(column)),
    );
    check_table(
        "measurements/devfs-figures.md",
        "| | NOVA-like | PMFS-like | +cap | +cap +direct |",
        |row, column| {
            let series = ["NOVA-like", "PMFS-like", "DevFS +cap", "DevFS"];
            at("devfs-fig6", row.to_owned(), series.get(column).filter(|_| row.starts_with("write")))
        },
    );
}

#[test]
fn the_table_of_designs_is_as_stored() {
    let series = ["ByteFS", "RomeFS", "AugeFS", "DevFS", "F2FS-like", "NOVA-like", "PMFS-like"];
    for (row, group) in [
        ("create, with fsync", "create-sync"),
        ("delete", "delete"),
        ("mkdir", "mkdir"),
        ("overwrite 64 B, with fsync", "overwrite 64 B"),
        ("overwrite 1 KB, with fsync", "overwrite 1 KB"),
        ("overwrite 4 KB, aligned, with fsync", "overwrite 4 KB, aligned"),
        ("overwrite 4 KB, with fsync", "overwrite 4 KB"),
        ("overwrite 64 KB, aligned, with fsync", "overwrite 64 KB, aligned"),
        ("overwrite 64 KB, with fsync", "overwrite 64 KB"),
        ("overwrite 1 MB, with fsync", "overwrite 1 MB"),
        ("varmail", "varmail"),
        ("webproxy", "webproxy"),
        ("fileserver", "fileserver"),
        ("oltp-sync", "oltp-sync"),
    ] {
        let cells = cells("designs.md", row);
        let said: Vec<String> = cells.iter().map(|cell| cell.trim_matches('*').to_owned()).collect();
        hold("designs.md", row, &said, &series.map(|series| ("designs", group, series)));
        let best = said.iter().map(|cell| cell.parse::<f64>().unwrap()).fold(0.0, f64::max);
        let bold = cells.iter().position(|cell| cell.starts_with("**"));
        let is_best = |place: usize| said[place].parse::<f64>().unwrap() >= best;
        assert_eq!(bold.is_some(), best > 1.0, "docs/designs.md, {row}: which one is bold");
        assert!(bold.is_none_or(is_best), "docs/designs.md, {row}: the bold one is not the fastest");
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
