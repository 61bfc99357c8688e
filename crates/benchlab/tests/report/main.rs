//! The report's page in a real browser: headless Chromium, driven through its DevTools protocol.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "drives a browser, which lives in real time"
)]

mod chromium;
mod sample;

use amphi_benchlab::html;
use chromium::Chromium;

/// One browser does everything: starting it takes longer than all the rest.
#[test]
fn the_page_works_in_a_browser() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("index.html");
    std::fs::write(&file, html::page("Results of a sample", &sample::figures())).unwrap();
    let mut browser = Chromium::start(directory.path());
    browser.size(1280, 900);
    browser.open(&file);
    // A picture of each state, for those who want to look: AMPHI_PICTURES=DIR.
    let pictures = std::env::var_os("AMPHI_PICTURES").map(std::path::PathBuf::from);
    let picture = |browser: &mut Chromium, name: &str| {
        if let Some(into) = &pictures {
            browser.picture(&into.join(name));
        }
    };

    let rows = browser.number("document.querySelectorAll('.row').length");
    assert_eq!(
        rows as usize,
        sample::figures().iter().flat_map(|f| &f.groups).map(|g| g.bars.len()).sum::<usize>()
    );
    // The text of what is hidden can be read too: what counts is that it takes room.
    let seen = "document.getElementById('more').getBoundingClientRect().height > 40";
    assert!(!browser.truth(seen));

    // A pointer on a bar shows what is behind it, and nothing when it has left.
    let (x, y) = browser.middle_of(".row:has(.paper)");
    browser.point_at(x, y);
    assert!(browser.truth(seen), "nothing appears under the pointer");
    let shown = browser.text("document.getElementById('more').innerText");
    for part in ["create / ByteFS", "5.931", "6", "0.99", "98,765", "section 5.2"] {
        assert!(shown.contains(part), "{part} is not in {shown:?}");
    }
    picture(&mut browser, "light.png");
    browser.point_at(2.0, 2.0);
    assert!(browser.truth("document.getElementById('more').hidden"));

    // So does the keyboard's focus, and Escape ends it.
    browser.run("document.querySelector('.row:has(.paper)').focus()");
    assert!(browser.text("document.getElementById('more').innerText").contains("create / ByteFS"));
    assert!(
        browser.truth("inside(document.getElementById('more').getBoundingClientRect())"),
        "it is cut off"
    );
    browser.key("Escape");
    browser.run("scrollBy({ top: 5, behavior: 'instant' })");
    browser.run("new Promise(requestAnimationFrame)");
    assert!(browser.truth("document.getElementById('more').hidden"), "it is back");

    // Longer bars for larger values, ours and published.
    let width = |browser: &mut Chromium, class: &str| {
        browser.number(&format!(
            "document.querySelector('.row:has(.paper) rect.{class}').getBoundingClientRect().width"
        ))
    };
    let (ours, published) = (width(&mut browser, "ours"), width(&mut browser, "published"));
    assert!(ours > 50.0 && published > ours, "{ours} and {published} px");

    let light = browser.text("getComputedStyle(document.body).backgroundColor");
    browser.dark(true);
    assert_ne!(browser.text("getComputedStyle(document.body).backgroundColor"), light);
    picture(&mut browser, "dark.png");
    browser.dark(false);

    // On a phone the page does not scroll sideways, whatever is open.
    browser.size(360, 740);
    browser.run("document.querySelectorAll('details').forEach(each => each.open = true)");
    let wide = browser.number("document.documentElement.scrollWidth");
    assert!(wide <= 360.0, "{wide} px wide");
    let small = browser.number("Math.min(...[...document.querySelectorAll('.row span')].map(e => parseFloat(getComputedStyle(e).fontSize)))");
    assert!(small >= 12.0, "text of {small} px");
    picture(&mut browser, "phone.png");

    assert_eq!(browser.complaints(), Vec::<String>::new());
}
