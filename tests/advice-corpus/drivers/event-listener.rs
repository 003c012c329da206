// Tasks that wait for one event, each from within the one before.
use event_listener::Event;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(500, |word| word.parse().unwrap());
    let event = Event::new();
    let mut count = 0;
    for _ in 0..rounds {
        count += wait(&event, 8);
    }
    println!("{count} woken");
}

fn wait(event: &Event, tasks: usize) -> usize {
    if tasks == 0 {
        event.notify(usize::MAX);
        return 0;
    }
    #[cfg(before)]
    let listener = event.listen();
    #[cfg(after)]
    let mut listener = std::pin::pin!(event_listener::EventListener::new(event));
    #[cfg(after)]
    listener.as_mut().listen();
    let woken = wait(event, tasks - 1);
    listener.wait();
    woken + 1
}
