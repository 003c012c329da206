//! A real browser, driven by its own protocol over a pair of pipes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// One page in a browser of its own, which ends with it.
pub struct Browser {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    session: Value,
    next: u64,
    /// What the page logged, threw, or requested from the network or the user.
    pub events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Loads a page and waits until it is there.
    pub fn open(page: &Path, hash: &str) -> Self {
        let profile = super::temporary();
        let pipes = ["commands", "answers"].map(|name| profile.path().join(name));
        let made = Command::new("mkfifo").args(&pipes).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        // The protocol is spoken on descriptors 3 and 4.
        let child = Command::new("sh")
            .arg("-c")
            .arg("exec chromium --headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking \
                  --remote-debugging-pipe --user-data-dir=\"$1/profile\" about:blank 3<\"$1/commands\" 4>\"$1/answers\"")
            .args(["sh".as_ref(), profile.path().as_os_str()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(profile.path().join("stderr")).expect("a log"))
            .process_group(0)
            .spawn()
            .expect("chromium is needed for this test");
        let commands = fs::OpenOptions::new().write(true).open(&pipes[0]);
        let answers = File::open(&pipes[1]);
        let mut browser = Self {
            child,
            commands: commands.expect("a pipe"),
            answers: BufReader::new(answers.expect("a pipe")),
            session: Value::Null,
            next: 1,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        browser.session = browser.ask("Target.attachToTarget", attach)["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        let url = format!("file://{}{hash}", page.display());
        browser.ask("Page.navigate", json!({ "url": url }));
        while !browser
            .events
            .iter()
            .any(|event| event["method"] == "Page.loadEventFired")
        {
            let event = browser.receive();
            browser.events.push(event);
        }
        browser
    }

    /// The value of an expression in the page.
    pub fn value(&mut self, expression: &str) -> Value {
        let asked = json!({
            "expression": expression,
            "returnByValue": true,
            "allowUnsafeEvalBlockedByCSP": false,
        });
        let answer = self.ask("Runtime.evaluate", asked);
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {answer:#}"
        );
        answer["result"]["value"].clone()
    }

    /// Shows the page in a window of this width, dark or light.
    pub fn show(&mut self, width: u32, scheme: &str) {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        self.ask("Emulation.setDeviceMetricsOverride", size);
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.ask(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// As if on paper.
    pub fn print(&mut self) {
        self.ask("Page.printToPDF", json!({}));
    }

    /// A key of the keyboard, down and up.
    pub fn press(&mut self, key: &str) {
        for kind in ["rawKeyDown", "keyUp"] {
            let code = match key {
                "Enter" => 13,
                "Escape" => 27,
                "End" => 35,
                "Home" => 36,
                "ArrowLeft" => 37,
                "ArrowRight" => 39,
                _ => 0,
            };
            let event = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            self.ask("Input.dispatchKeyEvent", event);
        }
    }

    /// The mouse pressed at one point, released at the other.
    pub fn drag(&mut self, from: (f64, f64), to: (f64, f64)) {
        let steps = [
            ("mouseMoved", from),
            ("mousePressed", from),
            ("mouseMoved", to),
            ("mouseReleased", to),
        ];
        for (kind, (x, y)) in steps {
            let event = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.ask("Input.dispatchMouseEvent", event);
        }
    }

    /// What should never come from a page of ours: messages, errors, dialogs, requests.
    pub fn complaints(&self) -> Vec<&Value> {
        let reported = [
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        ];
        let events = self.events.iter();
        events
            .filter(|event| {
                let method = event["method"].as_str().unwrap_or_default();
                let url = event["params"]["request"]["url"]
                    .as_str()
                    .unwrap_or_default();
                let fetched = method == "Network.requestWillBeSent" && !url.contains(".html");
                reported.contains(&method) || fetched
            })
            .collect()
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.next;
        self.next += 1;
        let mut command = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_null() {
            command["sessionId"] = self.session.clone();
        }
        let mut text = command.to_string().into_bytes();
        text.push(0);
        self.commands.write_all(&text).expect("the browser listens");
        loop {
            let answer = self.receive();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {answer:#}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn receive(&mut self) -> Value {
        let mut text = Vec::new();
        self.answers
            .read_until(0, &mut text)
            .expect("the browser answers");
        assert_eq!(text.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&text).expect("JSON")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its helpers end with the group.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}
