//! `larder serve`: the heap profiles and statistics of running processes by HTTP, read from outside
//! (`process`). The processes are neither stopped nor signalled.
//!
//! ```text
//! place (where) ─> a thread a connection: http (request) ─> routes ─> targets, profile, stats, names
//! ```
//!
//! `push` sends the profiles to a receiver. Up to 64 connections are served at once; one at a time reads
//! a process. liblarder_endpoint.so serves its own process with the same code (`Service::of_itself`).

mod args;
mod http;
mod names;
mod place;
mod push;
mod routes;
mod targets;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

pub use args::{EXAMPLES, RawServe, ServePlan, TOKEN_VARIABLE, is_token};
pub use place::{Listener, Place};
pub use routes::Service;
pub use socket2::Socket;

use larder_base::error::{BaseError, system};
use larder_base::failure::Result;
use larder_base::printable;
pub use larder_base::target::reason;

use http::Answer;
use push::Pusher;
use targets::Targets;

const MOST_CONNECTIONS: usize = 64;

/// Returns when a signal ends it.
pub fn serve(plan: ServePlan) -> Result<()> {
    let targets = Targets::new(plan.which).map_err(|(id, obstacle)| obstacle.failure(id))?;
    let targets = Arc::new(targets);
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(system("signals", "try again"))?;
    // The socket is in the file system until this is dropped.
    let listener = match &plan.listen {
        Some(place) => Some(Listener::open(place).map_err(cannot_listen(place))?),
        None => None,
    };
    let pusher = match plan.push {
        Some(push) => {
            eprintln!("larder: pushing to {}", push.url);
            Some(Pusher::start(push, targets.clone()).map_err(no_thread())?)
        }
        None => None,
    };
    if let (Some(listener), Some(place)) = (&listener, &plan.listen) {
        let service = Arc::new(Service::new(targets, pusher, plan.token));
        let socket = listener.socket.try_clone();
        let socket = socket.map_err(cannot_listen(place))?;
        let serve = move || serve_all(&socket, &service);
        let thread = thread::Builder::new()
            .name("larder-serve".into())
            .spawn(serve);
        thread.map_err(no_thread())?;
        eprintln!("larder: serving at {}", name(place));
    }
    signals.forever().next();
    Ok(())
}

fn no_thread() -> impl Fn(io::Error) -> BaseError {
    system("a thread", "raise ulimit -u")
}

fn name(place: &Place) -> String {
    match place {
        Place::Path(path) => format!("unix:{}", printable::name(path)),
        Place::Port(address) => format!("http://{address}"),
    }
}

fn cannot_listen(place: &Place) -> impl Fn(io::Error) -> BaseError {
    let remedy = match place {
        Place::Path(_) => "name a path in a folder of your own that nothing has",
        Place::Port(_) => "name a port that is free",
    };
    system(name(place), remedy)
}

/// A thread for each connection, up to `MOST_CONNECTIONS`.
pub fn serve_all(socket: &Socket, service: &Arc<Service>) -> ! {
    static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);
    loop {
        let Ok((client, _)) = socket.accept() else {
            // The process may have too many open files.
            thread::sleep(Duration::from_millis(50));
            continue;
        };
        if CONNECTIONS.load(Ordering::Relaxed) >= MOST_CONNECTIONS {
            // Must not block.
            let _ = client.set_nonblocking(true);
            Answer::error(503, "64 requests are being answered: try again").send(&client);
            continue;
        }
        CONNECTIONS.fetch_add(1, Ordering::Relaxed);
        let service = service.clone();
        let started = thread::Builder::new().spawn(move || {
            let _end = OnDrop(|| {
                CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
            });
            serve_one(&client, &service);
        });
        if started.is_err() {
            CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Counts down on drop, so also if a thread panics.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn serve_one(client: &Socket, service: &Service) {
    let answer = match http::read(client) {
        Ok(request) => service.answer(&request, client),
        Err(refusal) => refusal.map(|http::Refusal(status, why)| Answer::error(status, why)),
    };
    if let Some(answer) = answer {
        let _sending = service.sending(&answer);
        answer.send(client);
    }
}
