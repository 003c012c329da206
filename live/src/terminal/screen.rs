//! The terminal as a screen: keys, the mouse and signals go to what is shown, and the terminal is restored however the
//! command ends.
//!
//! Invariant: while a `Screen` lives, the terminal is raw, shows its alternate screen and reports the mouse.

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossterm::event::{
    self, DisableMouseCapture, EnableMouseCapture, Event, KeyCode, KeyEvent, KeyEventKind,
    KeyModifiers, MouseButton, MouseEventKind,
};
use crossterm::execute;
use larder_base::error::system;
use larder_base::failure::Result;
use ratatui::backend::Backend;
use ratatui::{DefaultTerminal, Frame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

/// The longest that a signal waits.
pub const TICK: Duration = Duration::from_millis(100);

/// Rows that one step of the wheel moves.
const WHEEL_ROWS: isize = 3;

/// What happened without the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    Nothing,
    /// Draw it.
    Changed,
    /// The command is done.
    Ended,
}

/// What is on a screen. No method waits.
pub trait Shown {
    fn draw(&mut self, frame: &mut Frame<'_>);
    /// A key. Those with Ctrl are the screen's own, except for a line feed, which is Enter.
    fn press(&mut self, code: KeyCode) -> ControlFlow<()>;
    fn click(&mut self, x: u16, y: u16);
    /// The wheel, turned by so many rows: downwards, or upwards if below zero.
    fn wheel(&mut self, rows: isize);
    fn news(&mut self) -> io::Result<News>;
    /// How long to wait for the user before news are asked for again, up to `TICK`.
    fn wait(&self) -> Duration;
}

/// Whether there is a terminal that can draw.
pub fn is_there() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name == "dumb" || name.is_empty());
    io::stdout().is_terminal() && !is_dumb
}

/// Shows it until it or the user ends. `instead`: what to do if the terminal cannot be used.
pub fn run(shown: &mut dyn Shown, instead: &'static str) -> Result<()> {
    let cannot = |what: &'static str| system(what, instead);
    let signal = Arc::new(AtomicUsize::new(0));
    handle_signals(&signal).map_err(cannot("its signals cannot be handled"))?;
    release_mouse_on_panic();
    read_without_blocking();
    let screen = Screen::enter().map_err(cannot("the terminal cannot be set up"))?;
    let ended_by = match until_end(shown, screen, &signal) {
        Err(_) if is_gone() => Some(SIGHUP),
        end => end.map_err(cannot("the terminal cannot be used"))?,
    };
    if let Some(number) = ended_by {
        let _ = signal_hook::low_level::emulate_default_handler(number);
    }
    Ok(())
}

/// Returns the signal that ended it. The terminal is restored when this returns.
fn until_end(
    shown: &mut dyn Shown,
    mut screen: Screen,
    signal: &AtomicUsize,
) -> io::Result<Option<i32>> {
    // From here on a new size of the terminal is an event: before, it would be lost.
    event::poll(Duration::ZERO)?;
    screen.draw(shown)?;
    loop {
        let number = signal.load(Ordering::Relaxed);
        if number != 0 {
            return Ok(Some(number as i32));
        }
        if is_gone() {
            return Ok(Some(SIGHUP));
        }
        let news = shown.news()?;
        let wait = match news {
            News::Ended => return Ok(None),
            News::Changed => Duration::ZERO,
            News::Nothing => shown.wait(),
        };
        let event = event::poll(wait)?.then(event::read).transpose()?;
        match event.map_or(Step::Nothing, |event| step(shown, &event)) {
            Step::Nothing if news == News::Nothing => continue,
            Step::Nothing | Step::Draw => {}
            Step::Quit => return Ok(None),
            Step::Suspend => {
                drop(screen);
                kill_current_process_group(Signal::TSTP)?;
                screen = Screen::enter()?;
            }
            Step::DrawAll => screen.forget()?,
        }
        screen.draw(shown)?;
    }
}

/// What the loop does after an event.
enum Step {
    Nothing,
    Draw,
    DrawAll,
    /// Like a job of the shell.
    Suspend,
    Quit,
}

fn step(shown: &mut dyn Shown, event: &Event) -> Step {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => return press(shown, *key),
        Event::Mouse(mouse) => match mouse.kind {
            MouseEventKind::Down(MouseButton::Left) => shown.click(mouse.column, mouse.row),
            MouseEventKind::ScrollDown => shown.wheel(WHEEL_ROWS),
            MouseEventKind::ScrollUp => shown.wheel(-WHEEL_ROWS),
            _ => return Step::Nothing,
        },
        // A terminal that became smaller for a moment has lost what was there.
        Event::Resize(..) => return Step::DrawAll,
        _ => return Step::Nothing,
    }
    Step::Draw
}

fn press(shown: &mut dyn Shown, key: KeyEvent) -> Step {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    let code = match key.code {
        KeyCode::Char('c') if control => return Step::Quit,
        KeyCode::Char('z') if control => return Step::Suspend,
        KeyCode::Char('l') if control => return Step::DrawAll,
        // A line feed: what is typed ahead of the screen ends so.
        KeyCode::Char('j') if control => KeyCode::Enter,
        KeyCode::Char(_) if control => return Step::Nothing,
        code => code,
    };
    match shown.press(code) {
        ControlFlow::Continue(()) => Step::Draw,
        ControlFlow::Break(()) => Step::Quit,
    }
}

/// The terminal in its raw state; dropping this restores it. On a panic ratatui restores all but the mouse before the
/// message is printed.
///
/// ratatui's own drop reports a failure on stderr, which panics if that is the terminal that is gone.
/// So its few pages of cells are not dropped.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    fn enter() -> io::Result<Self> {
        let screen = Self(ManuallyDrop::new(ratatui::try_init()?));
        execute!(io::stdout(), EnableMouseCapture)?;
        Ok(screen)
    }

    fn draw(&mut self, shown: &mut dyn Shown) -> io::Result<()> {
        self.0.draw(|frame| shown.draw(frame)).map(drop)
    }

    /// The next drawing is a full one. Terminal::clear would wait for the terminal to report where the
    /// cursor is.
    fn forget(&mut self) -> io::Result<()> {
        self.0.backend_mut().clear()?;
        self.0.swap_buffers();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A failure means that the terminal is gone.
        let _ = execute!(io::stdout(), DisableMouseCapture);
        let _ = self.0.show_cursor();
        // A second time would put the cursor into the panic's message.
        if !std::thread::panicking() {
            let _ = ratatui::try_restore();
        }
    }
}

fn release_mouse_on_panic() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let _ = execute!(io::stdout(), DisableMouseCapture);
        print(panic);
    }));
}

/// The first signal ends it in order, a second one at once, in case it hangs.
fn handle_signals(signal: &Arc<AtomicUsize>) -> io::Result<()> {
    let had_one = Arc::new(AtomicBool::new(false));
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        flag::register_conditional_default(number, Arc::clone(&had_one))?;
        flag::register(number, Arc::clone(&had_one))?;
        let value = number.unsigned_abs() as usize;
        flag::register_usize(number, Arc::clone(signal), value)?;
    }
    Ok(())
}

/// Keys are then read through an open file description of our own, which does not block: a key of
/// several bytes may arrive in part. The shell's description stays as it is.
fn read_without_blocking() {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if let Ok(terminal) = rustix::fs::open("/dev/tty", flags, Mode::empty()) {
        // Without this it blocks.
        let _ = rustix::stdio::dup2_stdin(terminal);
    }
}

/// Whether the terminal was closed.
fn is_gone() -> bool {
    let stdin = rustix::stdio::stdin();
    let mut found = [PollFd::new(&stdin, PollFlags::IN)];
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    poll(&mut found, Some(&Timespec::default())).is_ok() && found[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use rustix::termios::{LocalModes, tcgetattr};

    use super::*;

    struct Broken;

    impl Shown for Broken {
        fn draw(&mut self, _: &mut Frame<'_>) {
            panic!("the screen is broken");
        }
        fn press(&mut self, _: KeyCode) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
        fn click(&mut self, _: u16, _: u16) {}
        fn wheel(&mut self, _: isize) {}
        fn news(&mut self) -> io::Result<News> {
            Ok(News::Nothing)
        }
        fn wait(&self) -> Duration {
            TICK
        }
    }

    /// Set for the process that panics.
    const PANICS: &str = "LARDER_TEST_PANICS";

    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        if std::env::var_os(PANICS).is_some() {
            let _ = run(&mut Broken, "");
            return;
        }
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = File::options().read(true).write(true).open(name).unwrap();
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut panicking = Command::new("setsid");
        panicking
            .arg("--ctty")
            .arg(std::env::current_exe().unwrap())
            .args(["--nocapture", "a_panic_restores_the_terminal"])
            .env(PANICS, "1")
            .env("RUST_BACKTRACE", "0");
        let status = panicking.stdin(end()).stdout(end()).stderr(end()).status();
        assert!(!status.unwrap().success());
        let modes = tcgetattr(&slave).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO));
        drop((panicking, slave));
        // Comes in pieces, then fails: nobody has the other end.
        let mut written = Vec::new();
        let _ = File::from(master).read_to_end(&mut written);
        let written = String::from_utf8_lossy(&written);
        let at = |what: &str| {
            let at = written.find(what);
            at.unwrap_or_else(|| panic!("no {what:?} in {written:?}"))
        };
        assert!(at("\x1b[?1000h") < at("\x1b[?1000l"));
        assert!(at("\x1b[?1000l") < at("the screen is broken"));
        assert!(at("\x1b[?1049l") < at("the screen is broken"));
    }
}
