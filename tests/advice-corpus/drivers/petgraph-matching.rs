// Workers and the few machines that they share: as many as can be are given one.
use petgraph::algo::maximum_matching;
use petgraph::graph::UnGraph;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(50, |word| word.parse().unwrap());
    let mut graph = UnGraph::<(), ()>::new_undirected();
    let machines: Vec<_> = (0..4).map(|_| graph.add_node(())).collect();
    for worker in 0..60 {
        let node = graph.add_node(());
        graph.add_edge(node, machines[worker % 4], ());
    }
    let mut pairs = 0;
    for _ in 0..rounds {
        pairs += maximum_matching(&graph).edges().count();
    }
    println!("{pairs} pairs");
}
