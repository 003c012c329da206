use super::*;
use crate::columns::{self, Columns, Records, Rows};
use crate::fingerprint::Fingerprint;

/// Tables with a fixed number of sites and frames.
struct Fixed {
    sites: Vec<SiteMemory>,
    callees: Vec<Callees>,
    frame_of: Vec<u32>,
    next_frame: u32,
}

impl Fixed {
    fn new() -> Self {
        Fixed {
            sites: vec![SiteMemory::default(); 15],
            callees: vec![Callees::default(); 50],
            frame_of: vec![0, 0],
            next_frame: FIRST_FRAME,
        }
    }

    fn take(&mut self, links: &[Link]) {
        for link in links {
            let frame = match *link {
                Link::Frame(frame) => frame,
                Link::New(_) => {
                    self.next_frame += 1;
                    self.next_frame - 1
                }
            };
            self.frame_of.push(frame);
        }
    }
}

impl Tables for Fixed {
    fn site(&mut self, site: u32) -> Option<&mut SiteMemory> {
        self.sites.get_mut(site as usize)
    }

    fn callees(&mut self, frame: u32) -> Option<&mut Callees> {
        self.callees.get_mut(frame as usize)
    }

    fn frame_of(&mut self, node: u32) -> u32 {
        self.frame_of.get(node as usize).copied().unwrap_or(0)
    }

    fn next_node(&self) -> u32 {
        self.frame_of.len() as u32
    }

    fn next_frame(&self) -> u32 {
        self.next_frame
    }
}

use proptest::prelude::*;

fn calls() -> impl Strategy<Value = Vec<CallRecord>> {
    let class = prop_oneof![
        Just(Class::Alloc),
        Just(Class::Free),
        Just(Class::Realloc),
        Just(Class::Copy)
    ];
    let address = prop_oneof![
        4 => (0u64..64).prop_map(|n| 0x5555_0000_0000 + n * 16),
        1 => any::<u64>().prop_map(|n| n & ADDRESS_BITS),
        1 => Just(0),
    ];
    let size = prop_oneof![4 => 0u64..200, 1 => any::<u64>()];
    let extra = prop_oneof![3 => Just(0u64), 1 => any::<u64>()];
    let call = (
        class,
        0u32..20,
        0u64..5_000,
        address.clone(),
        size,
        extra,
        address,
    );
    proptest::collection::vec(call, 0..300).prop_map(|raw| {
        let mut time = 1_000;
        raw.into_iter()
            .map(|(class, site, step, address, size, extra, old)| {
                time += step;
                let realloc = class == Class::Realloc;
                let has_old = realloc || class == Class::Copy;
                CallRecord {
                    class,
                    site,
                    time,
                    address,
                    size,
                    extra,
                    begin: if realloc { time - step } else { 0 },
                    old: if has_old { old } else { 0 },
                }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn calls_return_as_written(calls in calls()) {
        let mut encoder = Predictor::new();
        let mut tables = Fixed::new();
        encoder.begin_chunk(1_000, FIRST_NODE);
        let mut bytes = Vec::new();
        for call in &calls {
            let mut out = [0; 128];
            let len = encoder.encode(&mut out, &mut tables, *call);
            prop_assert!(len <= MAX_CALL_BYTES);
            bytes.extend_from_slice(&out[..len]);
        }
        let mut decoder = Predictor::new();
        let mut tables = Fixed::new();
        decoder.begin_chunk(1_000, FIRST_NODE);
        let mut rows = Rows::of(bytes);
        for call in &calls {
            let back = decoder.decode_call(&mut rows, &mut tables);
            prop_assert_eq!(back, Some(*call));
        }
        prop_assert_eq!(rows.bytes_left(), 0);
    }

    #[test]
    fn any_bytes_decode_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut decoder = Predictor::new();
        decoder.begin_chunk(u64::MAX - 100_000, FIRST_NODE);
        let mut tables = Fixed::new();
        let mut rows = Rows::of(bytes.clone());
        let mut details = Details::default();
        while let Some(control) = rows.control() {
            let decoded = match is_call(control) {
                true => decoder.decode_call(&mut rows, &mut tables).is_some(),
                false => decoder.decode(&mut rows, &mut tables, &mut details).is_some(),
            };
            if !decoded {
                break;
            }
            prop_assert!(details.links.len() <= bytes.len());
            tables.take(&details.links[..details.links.len().min(10)]);
        }
    }
}

#[test]
fn chains_of_frames_return_as_written() {
    let chains: [(u32, Vec<Link>); 5] = [
        (
            ROOT_COMPLETE,
            vec![Link::New(0x2000), Link::New(0xffff_0000_2468), Link::New(7)],
        ),
        (3, vec![Link::Frame(3), Link::Frame(3), Link::New(9)]),
        (ROOT_TRUNCATED, vec![Link::Frame(1)]),
        (
            ROOT_COMPLETE,
            vec![Link::Frame(1), Link::Frame(2), Link::Frame(4)],
        ),
        (
            7,
            vec![
                Link::Frame(2),
                Link::Frame(3),
                Link::Frame(2),
                Link::Frame(4),
            ],
        ),
    ];
    for first_node in [FIRST_NODE, 5, 100] {
        let mut coder = Predictor::new();
        let mut tables = Fixed::new();
        coder.begin_chunk(10, first_node);
        let mut bytes = vec![0; 2048];
        let mut len = 0;
        for (parent, links) in &chains {
            let room = &mut bytes[len..];
            let new = tables.next_frame;
            len += coder
                .encode_nodes(room, &mut tables, *parent, links, new)
                .expect("fits");
            tables.take(links);
        }
        let mut decoder = Predictor::new();
        let mut tables = Fixed::new();
        decoder.begin_chunk(10, first_node);
        let mut rows = Rows::of(bytes[..len].to_vec());
        let mut details = Details::default();
        for (parent, links) in &chains {
            let record = decoder.decode(&mut rows, &mut tables, &mut details);
            assert_eq!(record, Some(Record::Nodes { parent: *parent }));
            assert_eq!(&details.links, links);
            tables.take(&details.links);
        }
        assert_eq!(rows.bytes_left(), 0);
    }
}

const FINGERPRINT: Fingerprint = Fingerprint {
    hash: u64::MAX - 1,
    flags: 0xff,
};

const CALLED: SystemCallRecord = SystemCallRecord {
    site: 4,
    result: -110,
    time: 25,
    ticks: 7,
    limit: u64::MAX,
    descriptor: -1,
    buffer: ADDRESS_BITS,
};

/// One of each kind but calls and nodes, and what is read back of it; and where the last begins.
fn other_records() -> (Vec<u8>, [Record; 9], usize) {
    let mut coder = Predictor::new();
    coder.begin_chunk(10, FIRST_NODE);
    let mut bytes = [0; 512];
    let mut len = coder.encode_site(&mut bytes, 2, 1, 5).expect("fits");
    len += coder
        .encode_thread(&mut bytes[len..], 77, 15)
        .expect("fits");
    len += coder
        .encode_generation(&mut bytes[len..], 3, true)
        .expect("fits");
    len += coder
        .encode_thread_end(&mut bytes[len..], 20)
        .expect("fits");
    let name = [b'n'; MAX_MARK_NAME];
    len += coder
        .encode_mark_name(&mut bytes[len..], 9, &name)
        .expect("fits");
    len += coder.encode_mark(&mut bytes[len..], 9, 22).expect("fits");
    len += coder
        .encode_system_call(&mut bytes[len..], &CALLED)
        .expect("fits");
    len += coder
        .encode_sample(&mut bytes[len..], 2, 1, u64::MAX, 27)
        .expect("fits");
    let last = len;
    len += coder
        .encode_contents(&mut bytes[len..], ADDRESS_BITS, FINGERPRINT, 30)
        .expect("fits");
    let records = [
        Record::Site { node: 1, call: 5 },
        Record::Thread { tid: 77, time: 15 },
        Record::Generation {
            generation: 3,
            reset: true,
        },
        Record::ThreadEnd { time: 20 },
        Record::MarkName { number: 9 },
        Record::Mark {
            number: 9,
            time: 22,
        },
        Record::SystemCall(CALLED),
        Record::Sample {
            time: 27,
            node: 1,
            cpu_ns: u64::MAX,
        },
        Record::Contents {
            time: 30,
            address: ADDRESS_BITS,
            fingerprint: FINGERPRINT,
        },
    ];
    (bytes[..len].to_vec(), records, last)
}

#[test]
fn the_other_records_return_as_written() {
    let (bytes, records, last) = other_records();
    assert!(bytes.len() - last <= MAX_DEFINITION_BYTES);
    let mut decoder = Predictor::new();
    decoder.begin_chunk(10, FIRST_NODE);
    let (mut rows, mut tables) = (Rows::of(bytes.clone()), Fixed::new());
    let mut details = Details::default();
    for record in records {
        let back = decoder.decode(&mut rows, &mut tables, &mut details);
        assert_eq!(back, Some(record));
        if matches!(record, Record::MarkName { .. }) {
            assert_eq!(details.name, [b'n'; MAX_MARK_NAME]);
        }
    }
    let back = decoder.decode(&mut rows, &mut tables, &mut details);
    assert_eq!(back, None);
    for cut in last + 1..bytes.len() {
        let mut rows = Rows::of(bytes[last..cut].to_vec());
        let back = decoder.decode(&mut rows, &mut tables, &mut details);
        assert_eq!(back, None);
    }
}

/// Malloc of a block, and free of it: version 2 names it by its place, one byte.
#[test]
fn a_recent_address_of_an_earlier_version_is_read() {
    let slot = ((0x4000u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
    assert!(slot >= 0x80, "a varint would go on");
    let records = [0b0000_0000, 1, 1, 50, 0x80, 0x40, 0b0010_1001, 1, 2, slot];
    let lengths: Vec<u8> = [2u32, 2, 2, 1, 2, 1, 0, 0, 0]
        .iter()
        .flat_map(|length| length.to_le_bytes())
        .collect();
    let columns = [0b0000_0000, 0b0010_1001, 1, 1, 1, 2, 50, 0x80, 0x40, slot];
    let columns = [&lengths[..], &columns].concat();
    recent_of_version_2(&mut Rows::of(records.to_vec()));
    recent_of_version_2(&mut Columns::<{ columns::COLUMNS }>::of(&columns).expect("columns"));
}

fn recent_of_version_2(records: &mut impl Records) {
    let (mut decoder, mut tables) = (Predictor::of(Form::V2), Fixed::new());
    decoder.begin_chunk(0, FIRST_NODE);
    for class in [Class::Alloc, Class::Free] {
        let call = decoder.decode_call(records, &mut tables).expect("a call");
        assert_eq!((call.class, call.address), (class, 0x4000));
    }
    assert_eq!(records.bytes_left(), 0);
}

/// As version 2.2 wrote it: no duration, limit or descriptor.
#[test]
fn a_system_call_of_an_earlier_version_is_read() {
    let bytes = [0x60 | 7, 15, 4, 0xdb, 0x01];
    let mut decoder = Predictor::new();
    decoder.begin_chunk(10, FIRST_NODE);
    let (mut rows, mut details) = (Rows::of(bytes.to_vec()), Details::default());
    let back = decoder.decode(&mut rows, &mut Fixed::new(), &mut details);
    let earlier = SystemCallRecord {
        ticks: 0,
        limit: 0,
        buffer: 0,
        ..CALLED
    };
    assert_eq!(back, Some(Record::SystemCall(earlier)));
}

#[test]
fn the_other_records_return_from_columns() {
    let (bytes, records, _) = other_records();
    let (mut work, mut columns) = ([0; 16 << 10], [0; 1024]);
    let split = columns::split(&bytes, &mut work, &mut columns).expect("records");
    let columns = Columns::<{ columns::COLUMNS }>::of(&columns[..split]);
    let (mut columns, mut tables) = (columns.expect("columns"), Fixed::new());
    let mut decoder = Predictor::new();
    decoder.begin_chunk(10, FIRST_NODE);
    for record in records {
        let back = decoder.decode(&mut columns, &mut tables, &mut Details::default());
        assert_eq!(back, Some(record));
    }
    assert_eq!(columns.bytes_left(), 0);
}

#[test]
fn a_name_that_is_too_long_or_cut_is_malformed() {
    let mut coder = Predictor::new();
    let mut tables = Fixed::new();
    let mut bytes = [0; 512];
    for (claimed, cut) in [(MAX_MARK_NAME + 1, 0), (MAX_MARK_NAME, 1)] {
        let name = [b'n'; 512];
        let len = coder
            .encode_mark_name(&mut bytes, 1, &name[..claimed])
            .expect("fits");
        let mut rows = Rows::of(bytes[..len - cut].to_vec());
        let back = coder.decode(&mut rows, &mut tables, &mut Details::default());
        assert_eq!(back, None);
    }
}

#[test]
fn a_steady_loop_takes_two_bytes_a_call() {
    let mut coder = Predictor::new();
    coder.begin_chunk(0, FIRST_NODE);
    let mut tables = Fixed::new();
    let mut out = [0; 128];
    let mut last = 0;
    for turn in 0..10u64 {
        let make = CallRecord {
            class: Class::Alloc,
            site: 1,
            time: turn * 20,
            address: 0x5000,
            size: 50,
            extra: 0,
            begin: 0,
            old: 0,
        };
        let end = CallRecord {
            class: Class::Free,
            site: 2,
            time: turn * 20 + 9,
            size: 0,
            ..make
        };
        last = coder.encode(&mut out, &mut tables, make);
        last += coder.encode(&mut out, &mut tables, end);
    }
    assert_eq!(last, 4);
}
