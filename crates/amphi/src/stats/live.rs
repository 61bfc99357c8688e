//! `--watch` on a terminal: sparklines of what goes on, a table of latencies, redrawn at each look.

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::{Context, Result};
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table};
use serde_json::Value;

use super::sample::{Interval, Sample, count, duration};
use super::{Options, look};
use amphi_volume::size::shown;

/// Intervals that are kept: as many as a wide terminal has columns.
const HISTORY: usize = 512;

/// Shows the view until the count is reached or somebody ends it.
pub fn run(options: &Options) -> Result<()> {
    let (target, first) = look(options)?;
    let title = match &target.mounted_at {
        Some(directory) => format!("{} at {}", target.image.display(), directory.display()),
        None => format!("{}, not mounted", target.image.display()),
    };
    let mut view = View::new(title);
    view.add(first);
    let mut terminal = ratatui::try_init().context("the terminal cannot be drawn on; use --watch --json")?;
    let outcome = watch(options, &mut terminal, &mut view);
    ratatui::restore();
    outcome
}

fn watch(options: &Options, terminal: &mut ratatui::DefaultTerminal, view: &mut View) -> Result<()> {
    let mut left = options.count.map(|count| count.saturating_sub(1));
    terminal.draw(|frame| view.draw(frame))?;
    while left != Some(0) {
        if !is_time_passed(options.interval, terminal, view)? {
            return Ok(());
        }
        view.add(look(options)?.1);
        terminal.draw(|frame| view.draw(frame))?;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Waits for the next look. False if somebody ended the view instead.
fn is_time_passed(seconds: f64, terminal: &mut ratatui::DefaultTerminal, view: &View) -> Result<bool> {
    let until = amphi_rt::time::now_ns() + (seconds * 1e9) as u64;
    loop {
        let left = until.saturating_sub(amphi_rt::time::now_ns());
        if left == 0 {
            return Ok(true);
        }
        if !event::poll(Duration::from_nanos(left))? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(false),
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(false),
                _ => {}
            },
            Event::Resize(..) => {
                terminal.draw(|frame| view.draw(frame))?;
            }
            _ => {}
        }
    }
}

/// What is on the screen.
struct View {
    title: String,
    last: Option<Sample>,
    /// The newest last.
    history: VecDeque<Interval>,
}

impl View {
    fn new(title: String) -> Self {
        Self { title, last: None, history: VecDeque::new() }
    }

    /// Takes a look in.
    fn add(&mut self, sample: Sample) {
        if let Some(last) = &self.last {
            if self.history.len() == HISTORY {
                self.history.pop_front();
            }
            self.history.push_back(Interval::between(last, &sample));
        }
        self.last = Some(sample);
    }

    fn draw(&self, frame: &mut Frame<'_>) {
        let [head, upper, lower, firmware, table, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(4),
            Constraint::Length(4),
            Constraint::Length(3),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let device = self.last.as_ref().map_or(&Value::Null, |sample| &sample.device);
        let uptime = count(&device["uptime_ns"]) / 1_000_000_000;
        let head_line =
            format!(" {}   up {}:{:02}:{:02}", self.title, uptime / 3600, uptime / 60 % 60, uptime % 60);
        frame.render_widget(Line::from(head_line).bold().reversed(), head);
        self.draw_lines(frame, upper, lower);
        self.draw_firmware(frame, firmware, device);
        self.draw_latencies(frame, table, device);
        frame.render_widget(Line::from(" q ends").dim(), foot);
    }

    fn draw_lines(&self, frame: &mut Frame<'_>, upper: Rect, lower: Rect) {
        let halves = |area| Layout::horizontal([Constraint::Fill(1); 2]).spacing(2).areas(area);
        let [host, flash] = halves(upper);
        let thirds = Layout::horizontal([Constraint::Fill(1); 3]).spacing(2);
        let [amplification, log, queue] = thirds.areas(lower);
        let now = self.history.back();
        let rate = |of: fn(&Interval) -> f64| shown(now.map_or(0.0, of) as u64);
        let by = |path: usize| shown(now.map_or(0.0, |interval| interval.rates[path]) as u64);
        let title =
            format!("host writes {}/s (bytes {}, blocks {})", rate(Interval::host_writes), by(0), by(1));
        self.spark(frame, host, title, Color::Cyan, None, Interval::host_writes);
        let title = format!(
            "flash writes {}/s (host reads {}/s)",
            rate(|i| i.flash_rate),
            rate(|i| i.rates[2] + i.rates[3])
        );
        self.spark(frame, flash, title, Color::Magenta, None, |interval| interval.flash_rate);
        let shown = now.and_then(|interval| interval.amplification);
        let title = shown.map_or_else(|| "WAF -".to_owned(), |waf| format!("WAF {waf:.2}"));
        self.spark(frame, amplification, title, Color::Yellow, None, |i| {
            i.amplification.unwrap_or(0.0) * 100.0
        });
        let title = format!("log {:.0} % full", now.map_or(0.0, |interval| interval.log_fill) * 100.0);
        self.spark(frame, log, title, Color::Green, Some(1000), |interval| interval.log_fill * 1000.0);
        let title = format!("queue depth {:.1}", now.map_or(0.0, |interval| interval.depth));
        self.spark(frame, queue, title, Color::Blue, None, |interval| interval.depth * 100.0);
    }

    /// A title, and under it the history, the newest at the right.
    fn spark(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        title: String,
        color: Color,
        most: Option<u64>,
        of: fn(&Interval) -> f64,
    ) {
        let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        frame.render_widget(Line::from(title).style(Style::new().fg(color)), head);
        let width = usize::from(body.width);
        let missing = width.saturating_sub(self.history.len());
        let newest = self.history.iter().skip(self.history.len().saturating_sub(width));
        let data: Vec<u64> = std::iter::repeat_n(0, missing).chain(newest.map(|i| of(i) as u64)).collect();
        let line = Sparkline::default().data(&data).style(Style::new().fg(color));
        frame.render_widget(most.map_or_else(|| line.clone(), |most| line.clone().max(most)), body);
    }

    fn draw_firmware(&self, frame: &mut Frame<'_>, area: Rect, device: &Value) {
        let now = self.history.back();
        let per_second = |of: fn(&Interval) -> f64| now.map_or(0.0, of);
        let running = |name: &str| {
            let activities = device["activities"].as_array().into_iter().flatten();
            activities
                .filter(|activity| activity["activity"] == name)
                .any(|activity| count(&activity["running"]) > 0)
        };
        let state = |name: &str| if running(name) { "now" } else { "idle" };
        let lines = vec![
            Line::from(format!(
                "log    {} of {}, {:.0} commits/s, cleaning {} ({:.1}/s)",
                shown(count(&device["log_used"])),
                shown(count(&device["log_capacity"])),
                per_second(|interval| interval.commits),
                state("log-cleaning"),
                per_second(|interval| interval.cleanings),
            )),
            Line::from(format!(
                "flash  garbage collection {} ({:.1} blocks/s), blocks erased {} to {} times, {:.1} on average",
                state("garbage-collection"),
                per_second(|interval| interval.collections),
                count(&device["erase_count_min"]),
                count(&device["erase_count_max"]),
                device["erase_count_mean"].as_f64().unwrap_or(0.0),
            )),
        ];
        frame.render_widget(Paragraph::new(lines), area);
    }

    fn draw_latencies(&self, frame: &mut Frame<'_>, area: Rect, device: &Value) {
        let Some(now) = self.history.back() else { return };
        if device["latencies"].as_array().is_none_or(Vec::is_empty) {
            frame.render_widget(
                Line::from("no latencies: the device is free of delays, or had no commands").dim(),
                area,
            );
            return;
        }
        let row = |row: &super::sample::Row| {
            let rate = format!("{:.0}", row.device.count as f64 / now.seconds);
            let times = if row.device.count == 0 {
                ["-"; 4].map(str::to_owned)
            } else {
                let (device, wait) = (&row.device, &row.wait);
                [device.p50_ns, device.p99_ns, wait.p50_ns, wait.p99_ns].map(duration)
            };
            let cells = [row.title.clone(), rate].into_iter().chain(times);
            Row::new(cells.map(Cell::from))
        };
        let head = ["command", "per second", "device p50", "p99", "host held p50", "p99"];
        let widths = [24, 11, 11, 11, 14, 11].map(Constraint::Length);
        let table = Table::new(now.latencies.iter().map(row), widths).header(Row::new(head).bold());
        frame.render_widget(table, area);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn sample(second: u64, device: Value) -> Sample {
        Sample { at_ns: second * 1_000_000_000, device, filesystem: Value::Null }
    }

    fn device(step: u64) -> Value {
        let path =
            |bytes: u64| json!({ "structures": [{ "structure": "data", "commands": 1, "bytes": bytes }] });
        json!({
            "byte_write": path(step << 20), "block_write": path((3 * step) << 20), "byte_read": path(0), "block_read": path(0),
            "flash_bytes_written": (6 * step) << 20, "log_used": step << 19, "log_capacity": 4 << 20, "commits": 700 * step,
            "queue": { "submitted": 10 * step, "depth_sum": 35 * step }, "gc_runs": 2 * step, "log_cleanings": 0,
            "erase_count_min": 1, "erase_count_max": 9, "erase_count_mean": 4.25, "uptime_ns": 3_723_000_000_000_u64,
            "activities": [{ "activity": "garbage-collection", "running": 1 }],
            "latencies": [{ "path": "block", "command": "write", "structure": "journal",
                "device": { "count": step, "sum_ns": step * 45_000, "buckets": [[45_055, step]] },
                "wait": { "count": step, "sum_ns": step, "buckets": [[1, step]] } }],
        })
    }

    fn screen(view: &View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a screen");
        terminal.draw(|frame| view.draw(frame)).expect("drawn");
        let buffer = terminal.backend().buffer().clone();
        let cells: Vec<_> = buffer.content().iter().map(|cell| cell.symbol()).collect();
        cells.chunks(usize::from(width)).map(|line| line.concat() + "\n").collect()
    }

    #[test]
    fn the_screen_says_what_happened_since_the_last_look() {
        let mut view = View::new("/ssd.img at /mnt".to_owned());
        view.add(sample(1, device(1)));
        view.add(sample(2, device(3)));
        let screen = screen(&view, 100, 24);
        for words in [
            "/ssd.img at /mnt   up 1:02:03",
            "host writes 8 MiB/s (bytes 2 MiB, blocks 6 MiB)",
            "flash writes 12 MiB/s",
            "WAF 1.50",
            "log 38 % full",
            "queue depth 3.5",
            "1.5 MiB of 4 MiB, 1400 commits/s, cleaning idle",
            "garbage collection now (4.0 blocks/s), blocks erased 1 to 9 times, 4.2 on average",
            "q ends",
        ] {
            assert!(screen.contains(words), "{words:?} is not in\n{screen}");
        }
        let row = screen.lines().find(|line| line.contains("block write journal")).expect("a row");
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(
            words,
            ["block", "write", "journal", "2", "45.1", "µs", "45.1", "µs", "1", "ns", "1", "ns"]
        );
    }

    #[test]
    fn the_newest_interval_is_at_the_right_and_the_highest_fills_its_column() {
        let mut view = View::new("ssd".to_owned());
        for (second, step) in [(1, 0), (2, 1), (3, 5)] {
            view.add(sample(second, device(step)));
        }
        let screen = screen(&view, 100, 24);
        // The host's writes are in the left half, under their title: 4 MiB/s, then 16.
        let columns: Vec<Vec<char>> =
            screen.lines().skip(2).take(3).map(|line| line.chars().take(49).collect()).collect();
        let column = |at: usize| columns.iter().map(|line| line[at]).collect::<String>();
        assert_eq!(column(48), "███");
        assert_eq!(column(47).trim(), "▆", "a quarter of three rows");
        assert_eq!(column(46).trim(), "");
    }

    #[test]
    fn before_the_first_interval_and_on_a_tiny_screen_it_draws_too() {
        let mut view = View::new("ssd".to_owned());
        screen(&view, 80, 24);
        view.add(sample(1, Value::Null));
        assert!(screen(&view, 80, 24).contains("WAF -"));
        view.add(sample(2, Value::Null));
        assert!(screen(&view, 80, 24).contains("no latencies"));
        screen(&view, 3, 2);
    }
}
