// A table of prices, whose last column is wrapped.
use comfy_table::Table;

fn main() {
    let tables: usize = std::env::args().nth(1).map_or(20, |word| word.parse().unwrap());
    let mut signs = 0;
    for number in 0..tables {
        let mut table = Table::new();
        table.set_width(60).set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
        table.set_header(["article", "price", "what it is"]);
        for row in 0..20 {
            let price = format!("{}.{:02}", row * 3, number % 100);
            let text = "something that is rather long to describe, row by row".to_string();
            table.add_row([format!("article {row}"), price, text]);
        }
        signs += table.to_string().chars().filter(|sign| sign.is_alphanumeric()).count();
    }
    println!("{signs} signs");
}
