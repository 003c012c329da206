// Paths of requests, matched with the routes of a server.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let mut routes = matchit::Node::default();
    for route in ["/users/:user", "/users/:user/repos/:repo", "/files/*path", "/about"] {
        let _ = routes.insert(route, route.len());
    }
    let paths = ["/users/ada", "/users/ada/repos/engine", "/files/a/b.txt", "/about"];
    let mut sum = 0;
    for round in 0..rounds {
        let Ok(found) = routes.at(paths[round % 4]) else { panic!("{}", paths[round % 4]) };
        sum += *found.value + found.params.get("user").map_or(0, |user| user.len());
    }
    println!("{sum}");
}
