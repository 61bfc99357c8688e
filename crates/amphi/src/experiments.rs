//! `amphi bench run` for what runs in virtual time: the paper's figures and single workloads.

mod shown;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use amphi_benchlab::experiment::lab;
use amphi_benchlab::experiment::state::State;
use amphi_benchlab::experiment::{
    Definition, EXPERIMENTS, LoadedDevices, System, Variation, Wishes, cell, experiment, guard, replay, run,
};
use amphi_benchlab::figure::Figure;
use amphi_benchlab::gridgraph::GRAPHS;
use amphi_benchlab::html::{self, Chapter};
use amphi_benchlab::workload::{PRESETS, preset};
use amphi_benchlab::ycsb;
use amphi_rt::time;
use amphi_trace::Trace;
use anyhow::{Context, Result, bail};
use indicatif::ProgressDrawTarget;
use shown::{CellBar, print_figure, print_result};
use signal_hook::consts::TERM_SIGNALS;

/// The workload that is a recorded trace.
const TRACE: &str = "trace";

/// The scale of single workloads.
const DEFAULT_SCALE: f64 = 0.01;

/// Options of experiments and workloads.
#[derive(clap::Args)]
pub struct Options {
    /// Share of the published number of files, with capacity, device memory, page cache, background intervals
    /// and run length to match; above 0, at most 1.
    #[arg(long, value_name = "S", value_parser = scale)]
    scale: Option<f64>,
    /// Seed: decides everything that is left to chance.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The file system of a single workload.
    #[arg(long, value_name = "NAME", value_parser = system, default_value = "bytefs")]
    fs: System,
    /// The SSD of a single workload; see amphi ssd profiles.
    #[arg(long, value_name = "NAME", default_value = "mssd-pcie3")]
    profile: String,
    /// A parameter of a single workload; can be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parameter)]
    set: Vec<(String, u64)>,
    /// What `trace` replays: a file of operations, as `amphi mount -o trace=FILE` records them;
    /// docs/crashlab.md lists them.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Replay a trace in real time: the device takes the time that its profile says, and software the time
    /// that it takes.
    #[arg(long, requires = "trace")]
    real: bool,
    /// Something of machine or device to change in all cells, as in --change memory_bytes=8589934592 or
    /// --change computing=free; can be given several times. docs/experiments.md names them.
    #[arg(long, value_name = "NAME=VALUE", value_parser = change)]
    change: Vec<String>,
    /// Cells of an experiment to run at once
    /// [default: one for each processor, if there is memory for so many]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Write an experiment's figure to FILE as a page that opens in a browser, without a network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where finished cells of experiments are kept, so that an interrupted one goes on and figures share
    /// cells; `none` for nowhere.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

/// Runs every experiment.
#[derive(clap::Args)]
pub struct Figures {
    /// Where the results go.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// As for `run`.
    #[arg(long, value_name = "S", value_parser = scale)]
    scale: Option<f64>,
    /// As for `run`.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// As for `run`.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
}

/// Draws results that are there.
#[derive(clap::Args)]
#[command(after_help = "Example: amphi bench page docs/results")]
pub struct Page {
    /// Where results of `amphi bench figures` or of `amphi bench run NAME --json DIR/NAME.json` are.
    #[arg(value_name = "DIR", default_value = "docs/results")]
    directory: PathBuf,
}

/// Compares results with stored ones.
#[derive(clap::Args)]
pub struct Guard {
    /// The stored results.
    #[arg(long, value_name = "FILE", default_value = "docs/results/guard.json")]
    file: PathBuf,
    /// Store what is found now, after showing how it differs.
    #[arg(long)]
    accept: bool,
}

/// Runs every experiment and writes the results.
///
/// # Errors
/// One failed or was interrupted.
pub fn figures(options: &Figures) -> Result<()> {
    let mut state = open_state(options.state.as_deref())?;
    std::fs::create_dir_all(&options.directory)
        .with_context(|| format!("{} cannot be made", options.directory.display()))?;
    for listed in EXPERIMENTS {
        let definition = experiment(listed.name)?;
        // What the paper gives for its full size is measured at its full size.
        let scale = options.scale.filter(|_| definition.scale < 1.0);
        let wishes = Wishes { scale, jobs: options.jobs, ..Wishes::default() };
        let begun = time::now_ns();
        let figure = figure(&definition, &wishes, &mut state)?;
        let file = options.directory.join(format!("{}.json", listed.name));
        write_json(Some(&file), &serde_json::to_value(&figure)?)?;
        println!("{:<9} {:>6.1} s  {}", listed.name, seconds_since(begun), file.display());
    }
    page(&Page { directory: options.directory.clone() })
}

/// Draws `index.html` from the results in a directory, without measuring.
///
/// # Errors
/// A result cannot be read, there is none, or the page cannot be written.
pub fn page(options: &Page) -> Result<()> {
    let mut chapters: Vec<Chapter> = Vec::new();
    for listed in EXPERIMENTS {
        let file = options.directory.join(format!("{}.json", listed.name));
        let Some(figure) = stored(&file)? else {
            println!("{} is not there and not on the page", file.display());
            continue;
        };
        match chapters.last_mut().filter(|chapter| chapter.title == listed.chapter) {
            Some(chapter) => chapter.figures.push(figure),
            None => chapters.push(Chapter { title: listed.chapter.to_owned(), figures: vec![figure] }),
        }
    }
    if chapters.is_empty() {
        bail!("{} has no results; amphi bench figures DIR makes them", options.directory.display());
    }
    let page = html::page_in_chapters("Amphi: the papers' figures, measured in virtual time", &chapters);
    write_text(&options.directory.join("index.html"), &page)
}

/// A stored figure; none if there is no such file.
fn stored(file: &Path) -> Result<Option<Figure>> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        read => read.with_context(|| format!("{} cannot be read", file.display()))?,
    };
    serde_json::from_str(&text).map(Some).with_context(|| format!("{} is no figure", file.display()))
}

/// Runs the guard.
///
/// # Errors
/// Results differ, unless that is accepted.
pub fn guard(options: &Guard) -> Result<()> {
    let now = guard::run()?;
    let before = std::fs::read_to_string(&options.file).ok();
    let stored = before.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let stored = stored.unwrap_or(guard::Stored { results: Vec::new() });
    let differences = guard::differences(&stored, &now)?;
    for line in &differences {
        println!("{line}");
    }
    if differences.is_empty() {
        println!("{} results are as stored in {}", now.results.len(), options.file.display());
    } else if options.accept {
        write_json(Some(&options.file), &serde_json::to_value(&now)?)?;
        println!("accepted: {} is written", options.file.display());
    } else {
        bail!("virtual-time results have changed; if that is meant: amphi bench guard --accept");
    }
    Ok(())
}

/// Lists experiments and workloads.
pub fn list() -> Result<()> {
    println!("\nExperiments in virtual time, ours beside the published values:");
    for listed in EXPERIMENTS {
        println!("{:<18} {}: {}", listed.name, listed.chapter, experiment(listed.name)?.title);
    }
    println!("\nWorkloads in virtual time:");
    println!("{TRACE:<18} what was recorded on a mount, done again: --trace FILE");
    for listed in PRESETS {
        let personality = preset(listed.name, &[])?;
        let parameters: Vec<String> =
            personality.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
        println!("{:<18} {} {}", listed.name, personality.description, parameters.join(" "));
    }
    for graph in GRAPHS {
        println!("{:<18} {}", graph.name, graph.description);
    }
    for (name, _) in ycsb::PRESETS {
        println!("{name:<18} {}", ycsb::preset(name)?.description);
    }
    Ok(())
}

/// Runs the experiment or workload of a name.
pub fn run(name: &str, threads: Option<usize>, json: Option<&Path>, options: &Options) -> Result<()> {
    match (&options.trace, name == TRACE) {
        (Some(file), true) => return replay(file, json, options),
        (None, true) => bail!("{TRACE} needs --trace FILE"),
        (Some(_), false) => bail!("--trace is for {TRACE}"),
        (None, false) => {}
    }
    if EXPERIMENTS.iter().any(|known| known.name == name) {
        let definition = experiment(name)?;
        let change = changes(&options.change)?;
        let wishes = Wishes { scale: options.scale, seed: options.seed, threads, change, jobs: options.jobs };
        let mut state = open_state(options.state.as_deref())?;
        let figure = figure(&definition, &wishes, &mut state)?;
        let to_stdout = json.is_some_and(|file| file.as_os_str() == "-");
        if !to_stdout {
            print_figure(&figure);
        }
        if let Some(file) = &options.html {
            write_text(file, &html::page(&figure.title, std::slice::from_ref(&figure)))?;
        }
        return write_json(json, &serde_json::to_value(&figure)?);
    }
    let is_known = PRESETS.iter().any(|known| known.name == name)
        || ycsb::PRESETS.iter().any(|known| known.0 == name)
        || GRAPHS.iter().any(|known| known.name == name);
    if is_known {
        return workload(name, threads, json, options);
    }
    bail!("`{name}` is not a measurement; see amphi bench list")
}

/// Runs an experiment with a progress bar.
///
/// # Errors
/// A cell failed, or the run was interrupted.
pub fn figure(definition: &Definition, wishes: &Wishes, state: &mut State) -> Result<Figure> {
    let ended = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        // The second one ends the program at once: a cell may take long.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&ended))?;
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("signals cannot be caught")?;
    }
    let bar = CellBar::on(ProgressDrawTarget::stderr(), &definition.name)?;
    let proceed = || !ended.load(Ordering::Relaxed);
    let figure = lab::run(definition, wishes, state, &proceed, &|progress| bar.show(progress))?;
    bar.finish();
    figure.context("interrupted; the same command goes on where this one stopped")
}

/// All of `--change` together.
fn changes(words: &[String]) -> Result<Variation> {
    let mut all = Variation::default();
    for word in words {
        all.set(word).map_err(anyhow::Error::msg)?;
    }
    Ok(all)
}

fn workload(name: &str, threads: Option<usize>, json: Option<&Path>, options: &Options) -> Result<()> {
    let mut variation = changes(&options.change)?;
    let cell = cell::Cell {
        workload: name.to_owned(),
        parameters: options.set.iter().cloned().collect(),
        threads: variation.threads.take().or(threads),
        system: options.fs,
        profile: options.profile.clone(),
        scale: variation.scale.take().or(options.scale).unwrap_or(DEFAULT_SCALE),
        variation,
        seed: options.seed.unwrap_or(1),
    };
    let begun = time::now_ns();
    let (result, speed) = run::cell_timed(&cell, &LoadedDevices::default())?;
    let real = seconds_since(begun);
    if json.is_none_or(|file| file.as_os_str() != "-") {
        let threads = format!("{} threads, scale {}", result.threads, cell.scale);
        print_result(&format!("{name} on {}, {threads}", cell.system.title()), "virtual s", &result);
        println!(
            "simulated in {:.2} s; the run took {:.2} s of one core, that is {:.0} operations a second",
            real,
            speed.seconds,
            speed.operations as f64 / speed.seconds.max(1e-9),
        );
    }
    write_json(json, &serde_json::to_value(&result)?)
}

/// Replays a trace.
fn replay(file: &Path, json: Option<&Path>, options: &Options) -> Result<()> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let trace: Trace = text.parse().with_context(|| file.display().to_string())?;
    let settings = replay::Settings {
        system: options.fs,
        profile: options.profile.clone(),
        scale: options.scale.unwrap_or(DEFAULT_SCALE),
        seed: options.seed.unwrap_or(1),
        real_time: options.real,
    };
    let (result, not_offered) = replay::run(&trace, &settings)?;
    if json.is_none_or(|file| file.as_os_str() != "-") {
        let what = format!("{} on {}, scale {}", file.display(), settings.system.title(), settings.scale);
        print_result(&what, if options.real { "s" } else { "virtual s" }, &result);
        if not_offered > 0 {
            println!(
                "{not_offered} operations are left out: {} does not offer them",
                settings.system.title()
            );
        }
    }
    write_json(json, &serde_json::to_value(&result)?)
}

fn write_json(json: Option<&Path>, value: &serde_json::Value) -> Result<()> {
    let Some(file) = json else { return Ok(()) };
    let text = serde_json::to_string_pretty(value)? + "\n";
    if file.as_os_str() == "-" {
        print!("{text}");
        return Ok(());
    }
    write_text(file, &text)
}

fn write_text(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}

/// Finished cells of this very program.
fn open_state(wished: Option<&Path>) -> Result<State> {
    let path = match wished {
        Some(path) if path.as_os_str() == "none" => return Ok(State::in_memory()),
        Some(path) => path.to_owned(),
        None => {
            let home =
                |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
            let cache = home("XDG_CACHE_HOME").or_else(|| home("HOME").map(|home| home.join(".cache")));
            let Some(cache) = cache else { return Ok(State::in_memory()) };
            cache.join("amphi").join("experiments.jsonl")
        }
    };
    let program = std::env::current_exe().and_then(std::fs::read).context("this program cannot be read")?;
    State::in_file(&path, &format!("{:08x}-{}", crc32c::crc32c(&program), program.len()))
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(scale) if scale > 0.0 && scale <= 1.0 => Ok(scale),
        _ => Err("a number above 0 and at most 1 is needed".to_owned()),
    }
}

fn system(text: &str) -> Result<System, String> {
    System::named(text).ok_or_else(|| format!("write one of {}", System::NAMES.join(", ")))
}

fn change(text: &str) -> Result<String, String> {
    Variation::default().set(text)?;
    Ok(text.to_owned())
}

fn parameter(text: &str) -> Result<(String, u64), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE")?;
    Ok((name.to_owned(), value.parse().map_err(|_| format!("{value} is not a whole number"))?))
}

/// Real seconds since a moment of [`time::now_ns`].
fn seconds_since(begun_ns: u64) -> f64 {
    (time::now_ns() - begun_ns) as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use amphi_benchlab::figure::{Ablated, Bar, Detail, Explanation, Group, Latency, Refused, SCHEMA};

    use super::*;
    use crate::documented_fields;

    #[test]
    fn every_field_of_a_figure_is_documented_and_the_other_way_round() {
        let text = String::new;
        let bar = Bar {
            series: text(),
            ours: 1.0,
            unit: Some(text()),
            published: Some(2.0),
            note: Some(text()),
            details: vec![Detail { name: text(), value: 1.0, unit: text() }],
        };
        let figure = Figure {
            schema: SCHEMA,
            name: text(),
            title: text(),
            question: text(),
            claim: text(),
            claim_row: text(),
            command: text(),
            seed: 1,
            scale: 1.0,
            unit: text(),
            logarithmic: false,
            method: text(),
            groups: vec![Group { label: text(), bars: vec![bar] }],
            refused: vec![Refused { place: text(), why: text() }],
            differences: vec![Explanation {
                place: text(),
                ratio: Some(0.5),
                why: text(),
                ablations: vec![Ablated { name: text(), ours: 1.0, ratio: Some(0.5) }],
            }],
            latencies: vec![Latency {
                label: text(),
                series: text(),
                operation: text(),
                count: 1,
                mean_ns: 1.0,
                p50_ns: 1,
                p95_ns: 1,
                p99_ns: 1,
                p999_ns: 1,
            }],
        };
        let printed = serde_json::to_value(figure).expect("JSON");
        documented_fields::compare(&printed, include_str!("../../../docs/experiments.md"));
    }

    #[test]
    fn a_page_holds_the_results_that_are_there_chapter_by_chapter() {
        let directory = tempfile::tempdir().unwrap();
        let draw = || page(&Page { directory: directory.path().to_owned() });
        assert!(draw().unwrap_err().to_string().contains("has no results"));
        let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results");
        for name in ["table2", "fig7", "romefs-fig7"] {
            let name = format!("{name}.json");
            std::fs::copy(results.join(&name), directory.path().join(&name)).unwrap();
        }
        draw().unwrap();
        let drawn = std::fs::read_to_string(directory.path().join("index.html")).unwrap();
        assert_eq!(drawn.matches("<article ").count(), 3);
        assert_eq!(drawn.matches("<h2 class=\"chapter\"").count(), 2);
        std::fs::write(directory.path().join("fig6.json"), "{}").unwrap();
        assert!(draw().unwrap_err().to_string().contains("fig6.json is no figure"));
    }

    #[test]
    fn a_scale_is_a_share() {
        assert_eq!(scale("0.01"), Ok(0.01));
        for bad in ["0", "-1", "1.5", "NaN", "much"] {
            assert!(scale(bad).is_err(), "{bad}");
        }
        assert!(system("ext5").unwrap_err().contains("ext4"));
    }
}
