// Spans that a layer notes something in, made and dropped one after the other.
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

struct Notes;

impl<S: tracing::Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Notes {
    fn new_span(&self, _: &tracing::span::Attributes<'_>, id: &tracing::Id, context: Context<'_, S>) {
        context.span(id).unwrap().extensions_mut().insert(id.into_u64());
    }
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let subscriber = tracing_subscriber::registry().with(Notes);
    tracing::subscriber::with_default(subscriber, || {
        for _ in 0..rounds {
            drop(tracing::span!(tracing::Level::INFO, "request"));
        }
    });
    println!("{rounds} spans");
}
