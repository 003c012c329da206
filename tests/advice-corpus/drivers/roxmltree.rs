// A document whose paragraphs begin with a CDATA section, after which there is text with an entity in it.
fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(100, |word| word.parse().unwrap());
    let mut text = String::from("<page>");
    for number in 0..50 {
        text.push_str(&format!("<p><![CDATA[part <{number}>]]> is followed by text, which is long &amp; plain</p>"));
    }
    text.push_str("</page>");
    let mut bytes = 0;
    for _ in 0..rounds {
        let document = roxmltree::Document::parse(&text).unwrap();
        bytes += document.descendants().filter_map(|node| node.text()).map(str::len).sum::<usize>();
    }
    println!("{bytes} bytes");
}
