//! Stable sorts like the standard library's, for rows to print and the like. The library's sort takes some
//! 8 KB for each type of element; these sort positions, so that there is one of it.

use std::cmp::Ordering;

pub fn sort_by<T>(items: &mut [T], mut compare: impl FnMut(&T, &T) -> Ordering) {
    let mut from = positions(items.len(), &mut |a, b| compare(&items[a], &items[b]));
    arrange(&mut from, &mut |a, b| items.swap(a, b));
}

pub fn sort_by_key<T, K: Ord>(items: &mut [T], mut key: impl FnMut(&T) -> K) {
    sort_by(items, |a, b| key(a).cmp(&key(b)));
}

/// The same by keys that are known, one for each item.
pub fn sort_by_keys<T, K: Ord>(items: &mut [T], keys: &[K]) {
    let mut from = positions(items.len(), &mut |a, b| keys[a].cmp(&keys[b]));
    arrange(&mut from, &mut |a, b| items.swap(a, b));
}

fn positions(count: usize, compare: &mut dyn FnMut(usize, usize) -> Ordering) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..count).collect();
    positions.sort_by(|a, b| compare(*a, *b));
    positions
}

/// Moves the element at from[i] to i for each i, along the permutation's cycles.
fn arrange(from: &mut [usize], swap: &mut dyn FnMut(usize, usize)) {
    for start in 0..from.len() {
        let mut to = start;
        while from[to] != start {
            let next = from[to];
            swap(to, next);
            from[to] = to;
            to = next;
        }
        from[to] = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_that_of_the_standard_library() {
        let mut random = fastrand::Rng::with_seed(17);
        for count in (0..40).chain([1000, 5000]) {
            for keys in [1, 3, 50, u32::MAX] {
                let rows: Vec<(u32, usize)> = (0..count).map(|i| (random.u32(..keys), i)).collect();
                let (mut expected, mut sorted) = (rows.clone(), rows.clone());
                expected.sort_by_key(|(key, _)| *key);
                sort_by_key(&mut sorted, |(key, _)| *key);
                assert_eq!(sorted, expected);
                let (mut sorted, keys) = (rows.clone(), rows.iter().map(|(key, _)| *key));
                sort_by_keys(&mut sorted, &keys.collect::<Vec<u32>>());
                assert_eq!(sorted, expected);
                let mut sorted = rows;
                expected.sort_by(|(a, _), (b, _)| b.cmp(a));
                sort_by(&mut sorted, |(a, _), (b, _)| b.cmp(a));
                assert_eq!(sorted, expected);
            }
        }
    }
}
