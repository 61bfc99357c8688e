//! A headless Chromium and as much of its DevTools protocol as a test of a page needs. Messages are JSON,
//! each ended by a NUL, through two pipes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A browser with one page.
pub struct Chromium {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: String,
    next: u64,
    /// What was written to the console or thrown, and what could not be loaded.
    complaints: Vec<String>,
    loaded: bool,
}

/// Resolves when what has been done so far can be seen.
const FRAMES: &str =
    "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";

const FLAGS: [&str; 10] = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
];

impl Chromium {
    /// Starts one whose profile is below `directory`.
    pub fn start(directory: &Path) -> Self {
        let mut command = Command::new("sh");
        // The protocol's pipes are the descriptors 3 and 4.
        command.args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"]).args(FLAGS);
        if rustix::process::geteuid().is_root() {
            command.arg("--no-sandbox");
        }
        command.arg(format!("--user-data-dir={}", directory.join("profile").display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser =
            Self { child, to, from, session: String::new(), next: 1, complaints: Vec::new(), loaded: false };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached =
            browser.call("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Opens a file and waits until it is loaded and painted: of a page that nobody can see yet the browser
    /// drops what the pointer does.
    pub fn open(&mut self, file: &Path) {
        self.loaded = false;
        self.call("Page.navigate", json!({ "url": format!("file://{}", file.display()) }));
        while !self.loaded {
            let message = self.receive();
            self.note(&message);
        }
        self.run("new Promise(done => new PerformanceObserver(done).observe({ type: 'paint', buffered: true })).then(() => true)");
        self.run(FRAMES);
        self.run("globalThis.inside = box => box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight");
    }

    /// Gives the window another size, in CSS pixels.
    pub fn size(&mut self, width: u32, height: u32) {
        let mobile = width < 600;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Whether the user prefers dark pages.
    pub fn dark(&mut self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": value });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
    }

    /// Moves the pointer.
    pub fn point_at(&mut self, x: f64, y: f64) {
        self.call("Input.dispatchMouseEvent", json!({ "type": "mouseMoved", "x": x, "y": y }));
        self.run(FRAMES);
    }

    /// Presses a key and lets it go.
    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({ "type": kind, "key": key }));
        }
    }

    /// Runs a script.
    pub fn run(&mut self, script: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": script, "returnByValue": true, "awaitPromise": true }),
        );
        assert!(answer.get("exceptionDetails").is_none(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// A script's value, a text.
    pub fn text(&mut self, script: &str) -> String {
        self.run(script).as_str().unwrap_or_else(|| panic!("{script} is no text")).to_owned()
    }

    /// A script's value, a number.
    pub fn number(&mut self, script: &str) -> f64 {
        self.run(script).as_f64().unwrap_or_else(|| panic!("{script} is no number"))
    }

    /// A script's value, true or false.
    pub fn truth(&mut self, script: &str) -> bool {
        self.run(script).as_bool().unwrap_or_else(|| panic!("{script} is neither true nor false"))
    }

    /// The middle of the first element that a selector finds, after scrolling to it.
    pub fn middle_of(&mut self, selector: &str) -> (f64, f64) {
        self.run(&format!(
            "document.querySelector('{selector}').scrollIntoView({{ block: 'center', behavior: 'instant' }})"
        ));
        // The page hears of the scrolling with the next frame, and takes away what is beside the pointer.
        self.run(FRAMES);
        let mut side = |from: &str, length: &str| {
            self.number(&format!("(b => b.{from} + b.{length} / 2)(document.querySelector('{selector}').getBoundingClientRect())"))
        };
        (side("left", "width"), side("top", "height"))
    }

    /// Writes the whole page to a PNG file, seen and unseen.
    pub fn picture(&mut self, file: &Path) {
        let width = self.number("innerWidth");
        let height = self.number("document.documentElement.scrollHeight");
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
        let whole = json!({ "format": "png", "clip": clip, "captureBeyondViewport": true });
        let answer = self.call("Page.captureScreenshot", whole);
        std::fs::write(file, decoded(answer["data"].as_str().unwrap())).unwrap();
    }

    /// What the page complained of until now.
    pub fn complaints(&mut self) -> Vec<String> {
        // All that came before this answer has been read with it.
        self.run("0");
        std::mem::take(&mut self.complaints)
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = json!(self.session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).expect("Chromium is gone");
        loop {
            let mut answer = self.receive();
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.note(&answer);
        }
    }

    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert!(
            message.pop() == Some(0),
            "Chromium did not answer: is it installed (Debian package chromium, which `cargo xtask test` installs)?"
        );
        serde_json::from_slice(&message).unwrap()
    }

    fn note(&mut self, event: &Value) {
        match event["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some(
                "Runtime.consoleAPICalled"
                | "Runtime.exceptionThrown"
                | "Log.entryAdded"
                | "Network.loadingFailed",
            ) => {
                self.complaints.push(event.to_string());
            }
            Some("Network.requestWillBeSent")
                if !event["params"]["request"]["url"]
                    .as_str()
                    .is_some_and(|url| url.starts_with("file:")) =>
            {
                self.complaints.push(event.to_string());
            }
            _ => {}
        }
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // Its helpers end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Base64, as far as the protocol uses it.
fn decoded(text: &str) -> Vec<u8> {
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for symbol in text.bytes().filter(|symbol| *symbol != b'=') {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}
