//! The screen: follows keys and what `looker` brings, and gives the terminal back however it ends.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyEventKind};
use larder_analysis::reading::sites::SiteId;
use larder_base::failure::{Failure, Result};
use ratatui::DefaultTerminal;
use ratatui::backend::Backend;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;

use super::args::TopPlan;
use super::draw::{Extra, draw};
use super::looker::{Answer, Ask, Looker};
use super::model::Model;
use super::view::{Page, View, Wish};
use crate::process::Obstacle;

/// How long a signal waits at most.
const TICK: Duration = Duration::from_millis(100);
/// And what a look has brought.
const LOOK_TICK: Duration = Duration::from_millis(10);

/// How it ended.
enum End {
    Quit,
    Signal(i32),
    /// Of the process, or that it may not be read any more.
    Process(Obstacle),
}

/// The terminal in its raw state, and as it was when this goes. ratatui does the same on a panic,
/// before its message is printed.
///
/// ratatui's own drop tells stderr when it fails, which panics where that is the terminal, and it is
/// gone; so a few pages of cells are left to the end of the process.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Screen {
    fn enter() -> io::Result<Self> {
        ratatui::try_init().map(ManuallyDrop::new).map(Self)
    }

    /// The next drawing is of all. Terminal::clear would wait for the terminal to say where the
    /// cursor is.
    fn forget(&mut self) -> io::Result<()> {
        self.0.backend_mut().clear()?;
        self.0.swap_buffers();
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = self.0.show_cursor();
        // Once more would put the cursor into what the panic printed.
        if !std::thread::panicking() {
            let _ = ratatui::try_restore();
        }
    }
}

/// Returns what ended it, if that was the process.
pub fn run(plan: &TopPlan, looker: Looker, model: Model) -> Result<Option<Obstacle>> {
    let signal = Arc::new(AtomicUsize::new(0));
    handle_signals(&signal).map_err(|error| cannot("its signals cannot be handled", &error))?;
    let mut state = State {
        view: View::new(plan.sort, &plan.filter, plan.threads),
        interval: plan.interval,
        due: Instant::now() + plan.interval,
        trouble: None,
        looker,
        to_mark: false,
        stacks: None,
        model,
    };
    read_without_blocking();
    let screen =
        Screen::enter().map_err(|error| cannot("the terminal cannot be set up", &error))?;
    let end = state.until_end(screen, &signal);
    let end = match end {
        Err(_) if is_gone() => End::Signal(SIGHUP),
        end => end.map_err(|error| cannot("the terminal cannot be used", &error))?,
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

/// The first one ends it in order, a second one, if it hangs, at once.
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

/// Keys are then read from the terminal by a description of our own, which does not wait: a key of
/// several bytes may come in part, and the shell's stays as it is.
fn read_without_blocking() {
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if let Ok(terminal) = rustix::fs::open("/dev/tty", flags, Mode::empty()) {
        // Else it waits.
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

fn cannot(what: &str, error: &io::Error) -> Failure {
    let reason = larder_base::target::reason(error);
    Failure::failed(format!("{what}: {reason}: print tables with -n COUNT"))
}

struct State {
    looker: Looker,
    /// Growth is to be counted from the next look on.
    to_mark: bool,
    /// Of the site that was shown last.
    stacks: Option<(SiteId, Vec<String>)>,
    model: Model,
    view: View,
    interval: Duration,
    /// The next look.
    due: Instant,
    /// Why the last look brought nothing.
    trouble: Option<Obstacle>,
}

impl State {
    /// The terminal is as it was when this returns.
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
            let answer = self.looker.answer()?;
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

    /// Until there is something to do: for signals, never long.
    fn wait(&self) -> Duration {
        if self.looker.is_busy {
            return LOOK_TICK;
        }
        if self.view.is_paused {
            return TICK;
        }
        self.due.saturating_duration_since(Instant::now()).min(TICK)
    }

    fn ask(&mut self) {
        if self.looker.is_busy {
            return;
        }
        let is_due = !self.view.is_paused && Instant::now() >= self.due;
        let look = is_due || self.to_mark;
        let shown = match self.view.page {
            Page::Stacks(id) => Some(id),
            _ => None,
        };
        let known = self.stacks.as_ref().map(|(id, _)| *id);
        let stacks = shown.filter(|_| look || shown != known);
        if look || stacks.is_some() {
            let mark = std::mem::take(&mut self.to_mark);
            self.looker.ask(Ask { look, mark, stacks });
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

    /// A look that makes no sense is told, and the next one tried.
    fn take_in(&mut self, answer: Answer) -> Option<End> {
        self.stacks = answer.stacks.or(self.stacks.take());
        match answer.model? {
            Ok(model) => (self.model, self.trouble) = (model, None),
            Err(obstacle @ Obstacle::Unsound(_)) => self.trouble = Some(obstacle),
            Err(obstacle) => return Some(End::Process(obstacle)),
        }
        // Half of the time at most goes into looking.
        self.due = Instant::now() + self.interval.saturating_sub(answer.took).max(answer.took);
        None
    }

    fn draw(&mut self, screen: &mut Screen) -> io::Result<()> {
        let stacks = match (&self.stacks, self.view.page) {
            (Some((of, stacks)), Page::Stacks(id)) if *of == id => stacks.as_slice(),
            // They come.
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
