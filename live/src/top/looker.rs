//! Looks at the process on a thread of its own, so that a look which takes long, or does not end, holds
//! up no key. Nobody waits for that thread when the tool ends.

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
    pub look: bool,
    /// Growth is counted from that look on.
    pub mark: bool,
    /// Of this site, as the last look has them.
    pub stacks: Option<SiteId>,
}

pub struct Answer {
    pub model: Option<Result<Model, Obstacle>>,
    /// The look.
    pub took: Duration,
    pub stacks: Option<(SiteId, Vec<String>)>,
}

pub struct Looker {
    asks: Sender<Ask>,
    answers: Receiver<Answer>,
    /// Asked, and not answered yet.
    pub is_busy: bool,
}

impl Looker {
    /// With what a first look brings.
    pub fn start(id: u32, charging: &Charging) -> io::Result<(Self, Result<Model, Obstacle>)> {
        let (asks, asked) = channel::<Ask>();
        let (answered, answers) = channel();
        let charging = charging.clone();
        let look = move || {
            let mut watch = Watch::open(id, &charging);
            for ask in asked {
                if answered.send(answer(&mut watch, &ask)).is_err() {
                    return;
                }
            }
        };
        let name = "larder-look".into();
        std::thread::Builder::new().name(name).spawn(look)?;
        let mut looker = Self {
            asks,
            answers,
            is_busy: false,
        };
        looker.ask(Ask {
            look: true,
            ..Ask::default()
        });
        let first = looker.answers.recv().map_err(|_| broken_off())?;
        looker.is_busy = false;
        Ok((looker, first.model.ok_or_else(broken_off)?))
    }

    /// One at a time.
    pub fn ask(&mut self, ask: Ask) {
        // A thread that has panicked is found out by `answer`.
        let _ = self.asks.send(ask);
        self.is_busy = true;
    }

    /// If there is one by now.
    pub fn answer(&mut self) -> io::Result<Option<Answer>> {
        match self.answers.try_recv() {
            Ok(answer) => {
                self.is_busy = false;
                Ok(Some(answer))
            }
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(broken_off()),
        }
    }
}

fn broken_off() -> io::Error {
    io::Error::other("the look was broken off")
}

fn answer(watch: &mut Result<Watch, Obstacle>, ask: &Ask) -> Answer {
    let began = Instant::now();
    let model = ask.look.then(|| {
        let watch = watch.as_mut().map_err(|obstacle| obstacle.clone())?;
        if ask.mark {
            watch.mark();
        }
        watch.look()
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
