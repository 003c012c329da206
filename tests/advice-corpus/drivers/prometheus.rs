// A page of metrics, as it is asked for again and again: how long requests took, by where and what.
use prometheus::{Encoder, HistogramOpts, HistogramVec, Registry, TextEncoder};

const LABELS: [&str; 16] = ["cluster", "region", "zone", "node", "namespace", "pod", "container", "image", "service",
                            "team", "tier", "shard", "method", "path", "status", "version"];

fn main() {
    let pages: usize = std::env::args().nth(1).map_or(200, |word| word.parse().unwrap());
    let registry = Registry::new();
    let options = HistogramOpts::new("seconds", "How long requests took.").buckets(vec![0.1, 0.5, 1.0, 5.0, 10.0]);
    let seconds = HistogramVec::new(options, &LABELS).unwrap();
    registry.register(Box::new(seconds.clone())).unwrap();
    for path in ["/", "/index", "/search", "/login", "/logout"] {
        let values = ["main", "eu", "eu-1", "node-7", "shop", "shop-5f", "web", "shop:2.1", "shop",
                      "sales", "front", "3", "GET", path, "200", "2.1"];
        seconds.with_label_values(&values).observe(0.3);
    }
    let families = registry.gather();
    let mut page = Vec::new();
    let mut bytes = 0;
    for _ in 0..pages {
        page.clear();
        TextEncoder::new().encode(&families, &mut page).unwrap();
        bytes += page.len();
    }
    println!("{bytes} bytes");
}
