//! What a page must hold, whatever is in the results.

use super::*;
use crate::figure::{Bar, Detail, Explanation, Group, Latency, SCHEMA};

fn bar(series: &str, ours: f64, published: Option<f64>) -> Bar {
    Bar { series: series.into(), ours, unit: None, published, note: None, details: Vec::new() }
}

fn sample() -> Figure {
    let mut noted = bar("ByteFS", 4.321, Some(6.0));
    noted.note = Some("read off the figure".into());
    noted.details = vec![Detail { name: "operations".into(), value: 123_456.7, unit: "1/s".into() }];
    Figure {
        schema: SCHEMA,
        name: "sample".into(),
        title: "A sample of figures".into(),
        question: "Is all of it there?".into(),
        claim: "It is".into(),
        claim_row: "BY-0".into(),
        command: "amphi bench run sample --seed 7".into(),
        seed: 7,
        scale: 0.0125,
        unit: String::new(),
        logarithmic: true,
        method: "By looking.".into(),
        groups: vec![
            Group { label: "create".into(), bars: vec![bar("Ext4-like", 1.0, None), noted] },
            Group {
                label: "delete".into(),
                bars: vec![bar("Ext4-like", 1.0, None), bar("ByteFS", 0.987, Some(1.0))],
            },
        ],
        refused: Vec::new(),
        differences: vec![Explanation {
            place: "create / ByteFS".into(),
            ratio: Some(0.72),
            why: "a smaller device".into(),
            ablations: Vec::new(),
        }],
        latencies: vec![Latency {
            label: "create".into(),
            series: "ByteFS".into(),
            operation: "fsync".into(),
            count: 4242,
            mean_ns: 7654.0,
            p50_ns: 5120,
            p95_ns: 9_900,
            p99_ns: 77_000,
            p999_ns: 1_230_000,
        }],
    }
}

#[test]
fn everything_that_a_result_says_is_on_the_page() {
    let page = page("Results", &[sample()]);
    for text in [
        "A sample of figures",
        "Is all of it there?",
        "It is",
        "row BY-0",
        "amphi bench run sample --seed 7",
        "Seed 7, scale 0.0125",
        "By looking.",
        "create",
        "delete",
        "Ext4-like",
        "ByteFS",
        "4.321",
        "0.987",
        "0.72\u{a0}×",
        "read off the figure",
        "123,457\u{a0}1/s",
        "a smaller device",
        "1 of 2 within 20 %",
        "fsync",
        "5.12\u{a0}µs",
        "9.9\u{a0}µs",
        "77\u{a0}µs",
        "1.23\u{a0}ms",
        "7.65\u{a0}µs",
        "4,242",
    ] {
        assert!(page.contains(text), "{text} is missing");
    }
    // Once beside its bar, once behind it, once in its description, once in the table.
    assert!(page.matches("4.321").count() >= 4);
}

#[test]
fn chapters_stand_in_the_contents_and_above_their_figures() {
    let chapter = |title: &str, name: &str| Chapter {
        title: title.into(),
        figures: vec![Figure { name: name.into(), ..sample() }],
    };
    let page = page_in_chapters("Results", &[chapter("All of them", "one"), chapter("A <paper>", "two")]);
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is missing"));
    assert!(at("href=\"#chapter-All-of-them\"") < at("href=\"#one\""));
    assert!(
        at("href=\"#one\"") < at(">A &lt;paper&gt;</a>") && at("</nav>") < at("id=\"chapter-All-of-them\"")
    );
    assert!(at("id=\"chapter-All-of-them\"") < at("article id=\"one\""));
    assert!(at("article id=\"one\"") < at("</h2>\n<article id=\"two\""));
}

#[test]
fn many_file_systems_without_a_published_value_are_one_table_with_the_fastest_marked() {
    let group = |label: &str, ours: &[f64]| Group {
        label: label.into(),
        bars: ours.iter().zip(["A", "B", "C", "D"]).map(|(ours, name)| bar(name, *ours, None)).collect(),
    };
    let mut figure = sample();
    figure.differences.clear();
    figure.groups = vec![group("create", &[1.0, 2.5, 0.25, 2.0]), group("delete", &[1.0, 0.5, 1234.5])];
    let drawn = page("Results", &[figure.clone()]);
    let best = |value: &str| format!("<td class=\"n best\">{value}</td>");
    assert!(drawn.contains(&best("2.50")) && drawn.contains(&best("1,235")), "{drawn}");
    assert_eq!(drawn.matches("<td class=\"n best\">").count(), 2);
    assert!(drawn.contains("<td class=\"n\">–</td>"), "what is not there is not shown as such");
    figure.groups[0].bars[1].published = Some(2.0);
    assert!(
        !page("Results", &[figure]).contains("class=\"scroll matrix\""),
        "the chart compares with papers"
    );
}

#[test]
fn what_is_not_explained_is_said() {
    let mut figure = sample();
    figure.differences.clear();
    assert!(page("Results", &[figure]).contains("<b>create / ByteFS</b> not explained yet"));
}

/// On one axis with a quotient of 28, shares below 1 would be invisible.
#[test]
fn groups_of_another_order_have_their_own_axis() {
    let mut figure = sample();
    figure.logarithmic = false;
    let group = |label: &str, ours| Group { label: label.into(), bars: vec![bar("ByteFS", ours, None)] };
    figure.groups =
        vec![group("a", 0.9), group("none", 0.0), group("b", 0.3), group("quotient", 28.0), group("c", 30.0)];
    let axes =
        |figure: &Figure| page("Results", std::slice::from_ref(figure)).matches("class=\"scale\"").count();
    assert_eq!(axes(&figure), 2);
    figure.logarithmic = true;
    assert_eq!(axes(&figure), 1);
}

/// The SSD's latencies and bandwidths stand in one figure.
#[test]
fn values_of_another_unit_are_shown_with_it_on_an_axis_of_their_own() {
    let mut figure = sample();
    (figure.logarithmic, figure.unit) = (false, "us, GB/s".into());
    let group = |unit: &str, ours| {
        let value = Bar { unit: Some(unit.into()), ..bar("line-read", ours, Some(ours)) };
        Group { label: unit.into(), bars: vec![value] }
    };
    figure.groups = vec![group("us", 4.8), group("GB/s", 3.5)];
    figure.differences.clear();
    let page = page("Results", &[figure]);
    assert_eq!(page.matches("class=\"scale\"").count(), 2);
    assert!(page.contains("<em>us</em>") && page.contains("<em>GB/s</em>"));
    assert!(page.contains("<b>4.8\u{a0}us</b>") && page.contains("published 3.5\u{a0}GB/s"));
    assert!(!page.contains("us, GB/s"));
}

#[test]
fn hostile_text_is_shown_and_not_obeyed() {
    let hostile = "<script>alert(1)</script>\"' onfocus='x' &lt; </style>";
    let mut figure = sample();
    for text in
        [&mut figure.name, &mut figure.title, &mut figure.question, &mut figure.claim, &mut figure.claim_row]
    {
        *text = hostile.into();
    }
    for text in [&mut figure.command, &mut figure.unit, &mut figure.method] {
        *text = hostile.into();
    }
    figure.groups[0].label = hostile.into();
    let bar = &mut figure.groups[0].bars[1];
    bar.series = hostile.into();
    bar.note = Some(hostile.into());
    bar.details[0].name = hostile.into();
    bar.details[0].unit = hostile.into();
    bar.unit = Some(hostile.into());
    figure.differences[0].place = hostile.into();
    figure.differences[0].why = hostile.into();
    let latency = &mut figure.latencies[0];
    (latency.label, latency.series, latency.operation) = (hostile.into(), hostile.into(), hostile.into());
    let page = page(hostile, &[figure.clone(), figure]);
    assert!(!page.contains("<script>alert") && !page.contains("onfocus='x'"), "a label got through");
    // The page's own, and no other.
    assert_eq!(page.matches("<script").count(), 1);
    assert_eq!(page.matches("</style").count(), 1);
}

#[test]
fn nothing_is_fetched() {
    let page = page("Results", &[sample(), sample()]);
    for reference in ["http:", "https:", "src=", "url(", "@import", "<link", "//cdn"] {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn values_that_are_none_do_not_spoil_the_page() {
    let mut figure = sample();
    figure.groups[0].bars[0].ours = f64::NAN;
    figure.groups[0].bars[1].ours = f64::INFINITY;
    figure.groups[1].bars[1].published = Some(0.0);
    for logarithmic in [false, true] {
        figure.logarithmic = logarithmic;
        let page = page("Results", &[figure.clone()]);
        assert!(!page.contains("NaN") && !page.contains("inf"), "{page}");
    }
    figure.groups.clear();
    assert!(page("Results", &[figure]).contains("nothing published to compare"));
}

#[test]
fn numbers_are_read_by_people() {
    for (value, text) in [
        (0.0, "0"),
        (1.0, "1"),
        (5.9312, "5.931"),
        (12.5, "12.5"),
        (0.00123, "0.00123"),
        (123.456, "123.5"),
        (1234.4, "1,234"),
        (52_340.0, "52,340"),
        (1_234_567.0, "1,234,567"),
        (-2.5, "−2.5"),
        (9999.9, "10,000"),
        (f64::NAN, "–"),
    ] {
        assert_eq!(number(value), text);
    }
}

/// WCAG's contrast between two colours of the style sheet.
fn contrast(one: &str, other: &str) -> f64 {
    let luminance = |colour: &str| {
        let part = |at: usize| {
            let share = f64::from(u8::from_str_radix(&colour[at..at + 2], 16).unwrap()) / 255.0;
            if share <= 0.04045 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

#[test]
fn text_and_bars_stand_out_in_light_and_in_dark() {
    let themes: Vec<&str> = STYLE.split(":root {").skip(1).collect();
    assert_eq!(themes.len(), 2);
    for theme in themes {
        let colour = |name: &str| {
            let at = theme.find(&format!("--{name}: #")).unwrap_or_else(|| panic!("no colour {name}"));
            &theme[at + name.len() + 4..][..7]
        };
        for background in ["paper", "panel"] {
            for text in ["ink", "quiet", "link"] {
                assert!(contrast(colour(text), colour(background)) >= 4.5, "{text} on {background}");
            }
            for bar in 0..chart::COLOURS {
                assert!(
                    contrast(colour(&format!("c{bar}")), colour(background)) >= 3.0,
                    "c{bar} on {background}"
                );
            }
        }
        for text in ["ink", "warn"] {
            assert!(contrast(colour(text), colour("warn-back")) >= 4.5, "{text} on warn-back");
        }
    }
}
