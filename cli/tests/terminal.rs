//! Commands on pseudoterminals: keys and the mouse are sent, and vt100 draws the output.

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::common::running::{Running, failure_at};

/// A command on a terminal of its own.
pub struct OnTerminal {
    pub child: Running,
    master: File,
    /// Kept open, so that what the terminal is set to can be asked when the tool has ended.
    slave: File,
    shown: vt100::Parser,
}

/// (rows, columns)
pub const USUAL: (u16, u16) = (30, 120);

impl OnTerminal {
    #[track_caller]
    pub fn start(command: &Command, size: (u16, u16)) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .expect("a terminal");
        grantpt(&master).expect("a terminal");
        unlockpt(&master).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let name = name.into_string().expect("its name");
        let slave = File::options().read(true).write(true).open(name);
        let slave = slave.expect("its other end");
        let end = || Stdio::from(slave.try_clone().expect("its other end"));
        let mut started = Command::new("setsid");
        started.arg("--ctty").arg(command.get_program());
        started
            .args(command.get_args())
            .env("TERM", "xterm-256color");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => started.env(name, value),
                None => started.env_remove(name),
            };
        }
        started.stdin(end()).stdout(end()).stderr(end());
        let mut terminal = Self {
            child: Running::start(&mut started),
            master: master.into(),
            slave,
            shown: vt100::Parser::default(),
        };
        terminal.resize(size);
        terminal
    }

    pub fn screen(&self) -> &vt100::Screen {
        self.shown.screen()
    }

    pub fn reports_the_mouse(&self) -> bool {
        self.screen().mouse_protocol_mode() != vt100::MouseProtocolMode::None
    }

    /// Closes the terminal under it.
    pub fn close(self) -> Running {
        self.child
    }

    /// The left button, on the first place that has this.
    #[track_caller]
    pub fn click(&mut self, on: &str) {
        let contents = self.screen().contents();
        let mut lines = (1..).zip(contents.lines());
        let place = lines.find_map(|(y, line)| Some((line[..line.find(on)?].chars().count(), y)));
        let (x, y): (usize, usize) = place.unwrap_or_else(|| panic!("no {on:?}:\n{contents}"));
        self.press(&format!("\x1b[<0;{};{y}M\x1b[<0;{};{y}m", x + 1, x + 1));
    }

    /// One step of the wheel.
    pub fn wheel(&mut self, down: bool) {
        self.press(&format!("\x1b[<{};1;1M", 64 + u8::from(down)));
    }

    pub fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("keys");
    }

    pub fn resize(&mut self, (rows, columns): (u16, u16)) {
        let length = |cells| NonZero::new(cells).unwrap_or(NonZero::<u16>::MIN);
        let screen = self.shown.screen_mut();
        screen.set_size(length(rows), length(columns));
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.master, size).expect("a size");
    }

    /// Reads on until the screen is so.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, is_so: impl Fn(&vt100::Screen) -> bool) {
        let deadline = failure_at();
        let mut bytes = [0; 4096];
        while !is_so(self.shown.screen()) {
            let now = self.shown.screen().contents();
            assert!(Instant::now() < deadline, "not {what}:\n{now}");
            let mut ready = [PollFd::new(&self.master, PollFlags::IN)];
            let second = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            if poll(&mut ready, Some(&second)).expect("poll") > 0 {
                let count = self.master.read(&mut bytes).expect("output");
                self.shown.process(&bytes[..count]);
            }
        }
    }

    #[track_caller]
    pub fn wait_for(&mut self, words: &str) {
        self.wait_until(words, |screen| screen.contents().contains(words));
    }

    /// Presses these, and waits until the screen has this.
    #[track_caller]
    pub fn turn(&mut self, keys: &str, words: &str) {
        self.press(keys);
        self.wait_for(words);
    }

    pub fn line(&self, with: &str) -> Option<String> {
        let contents = self.shown.screen().contents();
        contents
            .lines()
            .find(|line| line.contains(with))
            .map(str::to_owned)
    }

    /// The command has ended, the screen is left, the cursor is there, the mouse is not reported, and the terminal edits
    /// lines and echoes again.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let status = self.child.wait();
        self.wait_until("left", |screen| !screen.alternate_screen());
        assert!(!self.shown.screen().hide_cursor() && !self.reports_the_mouse());
        let modes = tcgetattr(&self.slave).expect("a terminal").local_modes;
        let edits = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
        assert!(modes.contains(edits), "{modes:?}");
        status
    }
}
