//! Takes snapshots of the process on a thread of its own, so that a slow one does not delay the keys.
//! The tool does not wait for that thread when it ends.

use std::io;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use larder_analysis::reading::resolve::Charging;
use larder_analysis::reading::sites::SiteId;

use super::model::Model;
use super::watch::Watch;
use crate::process::Obstacle;

#[derive(Default)]
pub struct Ask {
    pub snapshot: bool,
    /// Count growth from this snapshot on.
    pub mark: bool,
    /// The site whose stacks are wanted, from the last snapshot.
    pub stacks: Option<SiteId>,
}

pub struct Answer {
    pub model: Option<Result<Model, Obstacle>>,
    /// Time that the snapshot took.
    pub took: Duration,
    pub stacks: Option<(SiteId, Vec<String>)>,
}

pub struct Reader {
    asks: Sender<Ask>,
    answers: Receiver<Answer>,
    /// A request has no answer yet.
    pub is_busy: bool,
}

impl Reader {
    /// Returns with the first snapshot.
    pub fn start(id: u32, charging: &Charging) -> io::Result<(Self, Result<Model, Obstacle>)> {
        let (asks, asked) = channel::<Ask>();
        let (answered, answers) = channel();
        let charging = charging.clone();
        let read = move || {
            let mut watch = Watch::open(id, &charging);
            for ask in asked {
                if answered.send(answer(&mut watch, &ask)).is_err() {
                    return;
                }
            }
        };
        let name = "larder-read".into();
        std::thread::Builder::new().name(name).spawn(read)?;
        let mut reader = Self {
            asks,
            answers,
            is_busy: false,
        };
        reader.ask(Ask {
            snapshot: true,
            ..Ask::default()
        });
        let first = reader.answers.recv().map_err(|_| ended())?;
        reader.is_busy = false;
        Ok((reader, first.model.ok_or_else(ended)?))
    }

    /// REQUIRES: not `is_busy`.
    pub fn ask(&mut self, ask: Ask) {
        // `answer` reports a thread that has panicked.
        let _ = self.asks.send(ask);
        self.is_busy = true;
    }

    /// Does not wait: `None` if there is none yet.
    pub fn answer(&mut self) -> io::Result<Option<Answer>> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.is_busy = false;
                Ok(Some(answer))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(ended()),
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("the thread that reads the process has ended")
}

fn answer(watch: &mut Result<Watch, Obstacle>, ask: &Ask) -> Answer {
    let began = Instant::now();
    let model = ask.snapshot.then(|| {
        let watch = watch.as_mut().map_err(|obstacle| obstacle.clone())?;
        if ask.mark {
            watch.mark();
        }
        watch.read()
    });
    let took = began.elapsed();
    let stacks = match (watch, ask.stacks) {
        (Ok(watch), Some(id)) => Some((id, watch.stacks(id))),
        _ => None,
    };
    Answer {
        model,
        took,
        stacks,
    }
}
