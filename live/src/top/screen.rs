//! The screen: handles keys and the snapshots of `reader`, and restores the terminal however it ends.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyEventKind};
use larder_analysis::reading::sites::SiteId;
use larder_base::error::{BaseError, system};
use larder_base::failure::Result;
use ratatui::DefaultTerminal;
use ratatui::backend::Backend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use super::args::TopPlan;
use super::draw::{Extra, draw};
use super::model::Model;
use super::reader::{Answer, Ask, Reader};
use super::view::{Page, View, Wish};
use crate::process::Obstacle;

/// The longest that a signal waits.
const TICK: Duration = Duration::from_millis(100);
/// And a snapshot.
const LOOK_TICK: Duration = Duration::from_millis(10);

/// How it ended.
enum End {
    Quit,
    Signal(i32),
    /// The process has ended, or may not be read any more.
    Process(Obstacle),
}

/// The terminal in its raw state; dropping this restores it. On a panic ratatui does the same, before
/// the message is printed.
///
/// ratatui's own drop reports a failure on stderr, which panics if that is the terminal that is gone.
/// So its few pages of cells are not dropped.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    fn enter() -> io::Result<Self> {
        ratatui::try_init().map(ManuallyDrop::new).map(Self)
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
        let _ = self.0.show_cursor();
        // A second time would put the cursor into the panic's message.
        if !std::thread::panicking() {
            let _ = ratatui::try_restore();
        }
    }
}

/// Returns the obstacle if the process ended it.
pub fn run(plan: &TopPlan, reader: Reader, model: Model) -> Result<Option<Obstacle>> {
    let signal = Arc::new(AtomicUsize::new(0));
    handle_signals(&signal).map_err(cannot("its signals cannot be handled"))?;
    let mut state = State {
        view: View::new(plan.sort, &plan.filter, plan.threads),
        interval: plan.interval,
        due: Instant::now() + plan.interval,
        trouble: None,
        reader,
        to_mark: false,
        stacks: None,
        model,
    };
    read_without_blocking();
    let screen = Screen::enter().map_err(cannot("the terminal cannot be set up"))?;
    let end = state.until_end(screen, &signal);
    let end = match end {
        Err(_) if is_gone() => End::Signal(SIGHUP),
        end => end.map_err(cannot("the terminal cannot be used"))?,
    };
    match end {
        End::Quit => Ok(None),
        End::Process(obstacle) => Ok(Some(obstacle)),
        End::Signal(number) => {
            let _ = signal_hook::low_level::emulate_default_handler(number);
            Ok(None)
        }
    }
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

fn cannot(what: &str) -> impl Fn(io::Error) -> BaseError {
    system(what, "print tables with -n COUNT")
}

struct State {
    reader: Reader,
    /// Growth is to be counted from the next snapshot on.
    to_mark: bool,
    /// Stacks of the site that was shown last.
    stacks: Option<(SiteId, Vec<String>)>,
    model: Model,
    view: View,
    interval: Duration,
    /// When the next snapshot is due.
    due: Instant,
    /// Why the last snapshot failed.
    trouble: Option<Obstacle>,
}

impl State {
    /// The terminal is restored when this returns.
    fn until_end(&mut self, mut screen: Screen, signal: &AtomicUsize) -> io::Result<End> {
        self.draw(&mut screen)?;
        loop {
            let number = signal.load(Ordering::Relaxed);
            if number != 0 {
                return Ok(End::Signal(number as i32));
            }
            if is_gone() {
                return Ok(End::Signal(SIGHUP));
            }
            let answer = self.reader.answer()?;
            let is_new = answer.is_some();
            if let Some(end) = answer.and_then(|answer| self.take_in(answer)) {
                return Ok(end);
            }
            self.ask();
            let wait = if is_new { Duration::ZERO } else { self.wait() };
            if event::poll(wait)? {
                match self.take(&event::read()?) {
                    Wish::Nothing => {}
                    Wish::Quit => return Ok(End::Quit),
                    Wish::Mark => self.to_mark = true,
                    Wish::Suspend => {
                        drop(screen);
                        kill_current_process_group(Signal::TSTP)?;
                        screen = Screen::enter()?;
                    }
                    Wish::Redraw => screen.forget()?,
                }
            } else if !is_new {
                continue;
            }
            self.draw(&mut screen)?;
        }
    }

    /// Waits until there is something to do; only briefly, because of signals.
    fn wait(&self) -> Duration {
        if self.reader.is_busy {
            return LOOK_TICK;
        }
        if self.view.is_paused {
            return TICK;
        }
        self.due.saturating_duration_since(Instant::now()).min(TICK)
    }

    fn ask(&mut self) {
        if self.reader.is_busy {
            return;
        }
        let is_due = !self.view.is_paused && Instant::now() >= self.due;
        let snapshot = is_due || self.to_mark;
        let shown = match self.view.page {
            Page::Stacks(id) => Some(id),
            _ => None,
        };
        let known = self.stacks.as_ref().map(|(id, _)| *id);
        let stacks = shown.filter(|_| snapshot || shown != known);
        if snapshot || stacks.is_some() {
            let mark = std::mem::take(&mut self.to_mark);
            self.reader.ask(Ask {
                snapshot,
                mark,
                stacks,
            });
        }
    }

    fn take(&mut self, event: &Event) -> Wish {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                self.view.press(*key, &self.model)
            }
            _ => Wish::Nothing,
        }
    }

    /// A snapshot that fails is reported, and the next one is tried.
    fn take_in(&mut self, answer: Answer) -> Option<End> {
        self.stacks = answer.stacks.or(self.stacks.take());
        match answer.model? {
            Ok(model) => (self.model, self.trouble) = (model, None),
            Err(obstacle @ Obstacle::Unsound(_)) => self.trouble = Some(obstacle),
            Err(obstacle) => return Some(End::Process(obstacle)),
        }
        // Snapshots take up to half of the time.
        self.due = Instant::now() + self.interval.saturating_sub(answer.took).max(answer.took);
        None
    }

    fn draw(&mut self, screen: &mut Screen) -> io::Result<()> {
        let stacks = match (&self.stacks, self.view.page) {
            (Some((of, stacks)), Page::Stacks(id)) if *of == id => stacks.as_slice(),
            // The stacks follow.
            _ => &[],
        };
        let trouble = self.trouble.as_ref().map(Obstacle::to_string);
        let extra = Extra {
            stacks,
            trouble: trouble.as_deref(),
        };
        let (model, view) = (&self.model, &self.view);
        let mut height = view.height;
        screen
            .0
            .draw(|frame| height = draw(frame, model, view, &extra))?;
        self.view.height = height;
        Ok(())
    }
}
