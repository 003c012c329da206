// One query, taken apart many times.
use sqlparser::{dialect::GenericDialect, parser::Parser};

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(100, |word| word.parse().unwrap());
    let query = "SELECT customers.name, orders.total FROM customers JOIN orders ON customers.id = orders.customer \
                 WHERE orders.total > 100 AND customers.country = 'NZ' ORDER BY orders.total";
    let mut statements = 0;
    for _ in 0..rounds {
        statements += Parser::parse_sql(&GenericDialect {}, query).unwrap().len();
    }
    println!("{statements} statements");
}
