// Lines of mixed direction, put into the order in which they are shown.
use unicode_bidi::BidiInfo;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(2000, |word| word.parse().unwrap());
    let lines = ["abc (אבג) def 12", "שלום world 34 [x]", "plain text", "אב גד (הו) 56"];
    let mut bytes = 0;
    for round in 0..rounds {
        let info = BidiInfo::new(lines[round % 4], None);
        let paragraph = &info.paragraphs[0];
        bytes += info.reorder_line(paragraph, paragraph.range.clone()).len();
    }
    println!("{bytes} bytes");
}
