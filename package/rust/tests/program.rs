//! A program on Larder: what its collections get, at every alignment and from several threads.

use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::slice;
use std::thread;

use larder_malloc::Larder;

#[global_allocator]
static ALLOCATOR: Larder = Larder;

#[test]
fn collections_are_on_larder() {
    let before = larder_malloc::stats();
    let numbers: Vec<u64> = (0..1 << 20).collect();
    let after = larder_malloc::stats();
    assert!(after.in_use >= before.in_use + (8 << 20), "{after:?}");
    assert_eq!(numbers.iter().sum::<u64>(), ((1 << 20) - 1) << 19);
}

#[test]
fn threads_free_what_others_allocated() {
    let maps: Vec<BTreeMap<u32, String>> = (0..4)
        .map(|_| thread::spawn(|| (0..1000).map(|i| (i, i.to_string())).collect()))
        .map(|thread| thread.join().unwrap())
        .collect();
    assert!(maps.iter().all(|map| map[&999] == "999"));
}

#[test]
fn objects_are_aligned_distinct_and_keep_their_content() {
    for align in (0..=22).map(|bits| 1 << bits) {
        for size in [1, 7, 8, 9, 15, 16, 17, 24, 100, 4096, 40_000] {
            let layout = Layout::from_size_align(size, align).unwrap();
            grows_and_shrinks(layout);
            is_zeroed(layout);
        }
    }
}

fn grows_and_shrinks(layout: Layout) {
    let (mut layout, mut filled) = (layout, layout.size());
    // SAFETY: each call has the layout of the object, of a size that is not 0.
    unsafe {
        let mut object = Larder.alloc(layout);
        assert!(!object.is_null());
        object.write_bytes(0xa5, filled);
        for new_size in [layout.size() * 3, layout.size(), 1] {
            object = Larder.realloc(object, layout, new_size);
            assert!(is_aligned(object, layout.align()), "{layout:?} {new_size}");
            layout = Layout::from_size_align(new_size, layout.align()).unwrap();
            filled = filled.min(new_size);
            let content = slice::from_raw_parts(object, filled);
            assert!(content.iter().all(|byte| *byte == 0xa5), "{layout:?}");
        }
        Larder.dealloc(object, layout);
    }
}

fn is_zeroed(layout: Layout) {
    // SAFETY: the layout is not empty; the second object may have the memory of the first.
    unsafe {
        let dirty = Larder.alloc(layout);
        dirty.write_bytes(0xff, layout.size());
        Larder.dealloc(dirty, layout);
        let object = Larder.alloc_zeroed(layout);
        assert!(is_aligned(object, layout.align()), "{layout:?}");
        assert!(
            slice::from_raw_parts(object, layout.size())
                .iter()
                .all(|byte| *byte == 0)
        );
        Larder.dealloc(object, layout);
    }
}

fn is_aligned(object: *mut u8, align: usize) -> bool {
    !object.is_null() && object.addr().is_multiple_of(align)
}

#[test]
fn what_cannot_be_had_is_null() {
    let layout = Layout::from_size_align(1 << 62, 64).unwrap();
    // SAFETY: the layout is not empty.
    unsafe {
        assert!(Larder.alloc(layout).is_null());
        assert!(Larder.alloc_zeroed(layout).is_null());
    }
}

#[test]
fn the_version_is_that_of_the_crate() {
    assert_eq!(larder_malloc::version(), env!("CARGO_PKG_VERSION"));
}

#[cfg(feature = "profile")]
#[test]
fn the_profile_has_what_is_in_use() {
    use std::io::{Read, Seek};

    let held = vec![1u8; 64 << 20];
    let path = std::env::temp_dir().join(format!("larder-malloc-{}", std::process::id()));
    let mut file = std::fs::File::create_new(&path).unwrap();
    let mut text = String::new();
    larder_malloc::profile::mark().unwrap();
    larder_malloc::profile::write(&file).unwrap();
    let mut file_again = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file_again.read_to_string(&mut text).unwrap();
    assert!(file.stream_position().unwrap() > 0);
    assert!(text.starts_with("heap profile:"), "{text}");
    assert!(larder_malloc::profile::write(std::fs::File::open("/dev/null").unwrap()).is_err());
    drop(held);
}
