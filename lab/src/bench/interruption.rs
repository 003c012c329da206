//! Ctrl-C stops the current runs, and the measurement ends in order. A second one ends the tool.

use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Shared by the runs and the thread that waits for signals.
#[derive(Clone, Default)]
pub struct Interruption(Arc<State>);

#[derive(Default)]
struct State {
    wanted: AtomicBool,
    /// By process number. The descriptor of a process that has ended signals no other process.
    running: Mutex<Vec<(u32, OwnedFd)>>,
}

impl Interruption {
    /// Takes over SIGINT and SIGTERM for the rest of this process.
    pub fn handle_signals() -> io::Result<Interruption> {
        let interruption = Interruption::default();
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let this = interruption.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                if this.is_wanted() {
                    let _ = signal_hook::low_level::emulate_default_handler(signal);
                }
                this.begin();
            }
        });
        Ok(interruption)
    }

    pub fn is_wanted(&self) -> bool {
        self.0.wanted.load(Ordering::SeqCst)
    }

    fn begin(&self) {
        // Set before the list is read: a run that is not in it yet sees this afterwards.
        self.0.wanted.store(true, Ordering::SeqCst);
        for (_, process) in self.lock().iter() {
            let _ = pidfd_send_signal(process, Signal::TERM);
        }
    }

    /// Runs the command to its end; an interruption ends it with SIGTERM.
    pub fn run(&self, command: &mut Command) -> io::Result<ExitStatus> {
        let mut child: Child = command.spawn()?;
        let id = child.id();
        let opened = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
        if let Ok(process) = opened {
            self.lock().push((id, process));
        }
        if self.is_wanted() {
            self.begin();
        }
        let status = child.wait();
        self.lock().retain(|(other, _)| *other != id);
        status
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u32, OwnedFd)>> {
        self.0
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
