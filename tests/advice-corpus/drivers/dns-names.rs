// Names out of answers of a name server, looked at and dropped.
use trust_dns_proto::rr::Name;
use trust_dns_proto::serialize::binary::BinDecodable;

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(5000, |word| word.parse().unwrap());
    let names: [&[u8]; 3] = [b"\x03www\x07example\x03com\x00", b"\x04mail\x07example\x03org\x00",
                             b"\x02ns\x05inner\x07example\x03net\x00"];
    let mut labels = 0;
    for round in 0..rounds {
        labels += Name::from_bytes(names[round % 3]).unwrap().num_labels() as usize;
    }
    println!("{labels} labels");
}
