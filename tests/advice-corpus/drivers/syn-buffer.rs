// A table of pairs, as a macro is given it, made ready to be parsed.
use syn::buffer::{Cursor, TokenBuffer};
use syn::parse::{ParseStream, Parser};

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(20, |word| word.parse().unwrap());
    let stream = |input: ParseStream| input.step(|cursor| Ok((cursor.token_stream(), Cursor::empty())));
    let stream = stream.parse_str(&"(-,+),".repeat(500)).unwrap();
    let mut count = 0;
    for _ in 0..rounds {
        let buffer = TokenBuffer::new2(stream.clone());
        count += !buffer.begin().eof() as usize;
    }
    println!("{count} tables");
}
