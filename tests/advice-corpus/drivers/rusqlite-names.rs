// A statement that is run many times with parameters by name.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let connection = rusqlite::Connection::open_in_memory().unwrap();
    connection.execute_batch("CREATE TABLE points (x INTEGER, y INTEGER)").unwrap();
    let mut insert = connection.prepare("INSERT INTO points VALUES (:x, :y)").unwrap();
    let mut rows = 0;
    for round in 0..rounds as i64 {
        rows += insert.execute_named(&[(":x", &round), (":y", &(round * 2))]).unwrap();
    }
    println!("{rows} rows");
}
