//! Splits the records of a sealed chunk into columns: all control bytes, all times, all sizes, and so on.
//! That compresses better, and faster.
//!
//! Invariants: join(split(records)) = records. Neither allocates or panics; bytes written ≤ bytes of the
//! records + `HEADER_BYTES`.

use std::slice;

use crate::codec::shape::{self, Field, Move};
use crate::layout::Form;

pub const COLUMNS: usize = Field::Definition as usize + 1;
/// The columns' lengths, before the columns themselves.
pub const HEADER_BYTES: usize = 4 * COLUMNS;

/// Writes complete records as columns; returns the bytes used of `out`. `None` if this version does not
/// know the records, or if they do not fit. REQUIRES: `work` has `COLUMNS` times the bytes of `records`.
pub fn split(records: &[u8], work: &mut [u8], out: &mut [u8]) -> Option<usize> {
    // Each byte comes from the records, so no column outgrows its room.
    let room = records.len();
    let starts: [usize; COLUMNS] = std::array::from_fn(|column| column * room);
    let mut split = Split {
        records: records.iter(),
        work,
        ends: starts,
    };
    while !split.records.as_slice().is_empty() {
        shape::record(&mut split, Form::V3)?;
    }
    let Split { work, ends, .. } = split;
    let (header, mut rest) = out.split_at_mut_checked(HEADER_BYTES)?;
    for (place, (start, end)) in header.chunks_exact_mut(4).zip(starts.into_iter().zip(ends)) {
        let length = end - start;
        place.copy_from_slice(&(length as u32).to_le_bytes());
        let (to, behind) = rest.split_at_mut_checked(length)?;
        to.copy_from_slice(work.get(start..end)?);
        rest = behind;
    }
    Some(HEADER_BYTES + room)
}

struct Split<'a> {
    records: slice::Iter<'a, u8>,
    work: &'a mut [u8],
    /// Where the next byte of each column goes.
    ends: [usize; COLUMNS],
}

impl Move for Split<'_> {
    #[inline(always)]
    fn byte(&mut self, field: Field) -> Option<u8> {
        let value = *self.records.next()?;
        let end = &mut self.ends[field as usize];
        *self.work.get_mut(*end)? = value;
        *end += 1;
        Some(value)
    }
}

/// Joins the columns to records, which it appends to `out`. `None` if the columns are malformed.
pub fn join(columns: &[u8], form: Form, out: &mut Vec<u8>) -> Option<()> {
    let (header, mut rest) = columns.split_at_checked(HEADER_BYTES)?;
    let start = out.len();
    out.resize(start + rest.len(), 0);
    let mut join = Join {
        columns: std::array::from_fn(|_| [].iter()),
        out: out[start..].iter_mut(),
    };
    for (column, length) in join.columns.iter_mut().zip(header.chunks_exact(4)) {
        let length = u32::from_le_bytes(length.try_into().ok()?);
        let (bytes, behind) = rest.split_at_checked(length as usize)?;
        (*column, rest) = (bytes.iter(), behind);
    }
    while !join.columns[Field::Control as usize].as_slice().is_empty() {
        shape::record(&mut join, form)?;
    }
    let done = rest.is_empty()
        && join
            .columns
            .iter()
            .all(|column| column.as_slice().is_empty());
    done.then_some(())
}

struct Join<'a> {
    columns: [slice::Iter<'a, u8>; COLUMNS],
    out: slice::IterMut<'a, u8>,
}

impl Move for Join<'_> {
    #[inline(always)]
    fn byte(&mut self, field: Field) -> Option<u8> {
        let value = *self.columns[field as usize].next()?;
        *self.out.next()? = value;
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn taken_apart(records: &[u8]) -> Option<Vec<u8>> {
        let mut work = vec![0; COLUMNS * records.len()];
        let mut out = vec![0; records.len() + HEADER_BYTES];
        let bytes = split(records, &mut work, &mut out)?;
        assert_eq!(bytes, out.len());
        Some(out)
    }

    proptest! {
        /// Random bytes are mostly valid records: cuts them off where they are not.
        #[test]
        fn what_was_split_is_joined(mut records in proptest::collection::vec(any::<u8>(), 0..400)) {
            let columns = loop {
                match taken_apart(&records) {
                    Some(columns) => break columns,
                    None => _ = records.pop(),
                }
            };
            let mut back = vec![7];
            prop_assert_eq!(join(&columns, Form::V3, &mut back), Some(()));
            prop_assert_eq!(&back[1..], &records[..]);
        }

        #[test]
        fn damaged_columns_write_no_more_than_they_hold(columns in proptest::collection::vec(any::<u8>(), 0..400)) {
            let mut out = Vec::new();
            let _ = join(&columns, Form::V3, &mut out);
            prop_assert!(out.len() <= columns.len());
        }
    }

    #[test]
    fn columns_that_are_cut_or_too_long_are_malformed() {
        // A malloc with all fields, and a free as predicted.
        let records = [0, 1, 2, 3, 4, 0b0010_1110, 5];
        let good = taken_apart(&records).unwrap();
        let mut out = Vec::new();
        assert_eq!(join(&good, Form::V3, &mut out), Some(()));
        assert_eq!(out, records);
        for length in 0..good.len() {
            assert_eq!(
                join(&good[..length], Form::V3, &mut Vec::new()),
                None,
                "{length}"
            );
        }
        let longer = [good.as_slice(), &[0]].concat();
        assert_eq!(join(&longer, Form::V3, &mut Vec::new()), None);
    }

    #[test]
    fn what_is_no_record_or_does_not_fit_is_left_alone() {
        assert_eq!(taken_apart(&[0x80]), None);
        assert_eq!(taken_apart(&[0b0111_1111]), None);
        let records = [0, 1, 2, 3, 4];
        assert_eq!(
            split(&records, &mut [0; 45], &mut [0; HEADER_BYTES + 4]),
            None
        );
        assert_eq!(
            split(&records, &mut [0; 20], &mut [0; HEADER_BYTES + 5]),
            None
        );
    }
}
