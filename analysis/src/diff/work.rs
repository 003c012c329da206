//! The work of each trace: given by the user, or counted in the traces.

use larder_base::failure::Fatal;
use larder_base::printable;

use super::side::Side;
use crate::reading::work::Work;

/// The least growth of the work from the first trace to the last.
pub const GROWS: f64 = 1.1;
/// Marks of a trace in the message about a missing one.
const MARKS_NAMED: usize = 8;

/// The value of `--work`.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkRequest {
    /// One number a trace, growing.
    Given(Vec<f64>),
    Measured(Quantity),
    Estimated,
}

#[derive(Debug, PartialEq, thiserror::Error)]
pub enum WorkError {
    #[error(
        "--work '{}': give growing numbers, one for each trace, as in 1000:10000, or mark:NAME, \
         read, write, calls or estimate",
        printable::escape(.0)
    )]
    Unknown(String),
    #[error(
        "the {} do not grow from trace to trace ({}): name the traces in order of size, or another \
         --work",
        quantity.describe(),
        work.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")
    )]
    NotGrowing { quantity: Quantity, work: Vec<f64> },
    #[error(
        "{trace}: has no {}: record with --syscalls, or give the work as in --work 1000:10000",
        quantity.describe()
    )]
    NotCounted { trace: String, quantity: Quantity },
    /// With some of the marks that the trace has, printable.
    #[error(
        "{trace}: has no {} ({}): name one of its marks, or give the work as in --work 1000:10000",
        mark.describe(), listed(marks)
    )]
    NoSuchMark {
        trace: String,
        mark: Quantity,
        marks: Vec<String>,
    },
}

impl Fatal for WorkError {}

fn listed(marks: &[String]) -> String {
    match marks {
        [] => "it has none".to_owned(),
        marks => format!("it has {}", marks.join(", ")),
    }
}

/// A quantity that a trace counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Passes of a mark that the program set with `larder_mark`.
    Mark(Vec<u8>),
    BytesRead,
    BytesWritten,
    SystemCalls,
}

impl Quantity {
    /// In `--work`'s form, printable.
    pub fn name(&self) -> String {
        match self {
            Self::Mark(name) => format!("mark:{}", printable::escape_bytes(name)),
            Self::BytesRead => "read".to_owned(),
            Self::BytesWritten => "write".to_owned(),
            Self::SystemCalls => "calls".to_owned(),
        }
    }

    /// As text.
    pub fn describe(&self) -> String {
        match self {
            Self::Mark(name) => format!("passes of the mark '{}'", printable::escape_bytes(name)),
            Self::BytesRead => "bytes read".to_owned(),
            Self::BytesWritten => "bytes written".to_owned(),
            Self::SystemCalls => "system calls".to_owned(),
        }
    }

    fn of(&self, work: &Work) -> u64 {
        match self {
            Self::Mark(name) => work.marks.of(name),
            Self::BytesRead => work.io.read_bytes,
            Self::BytesWritten => work.io.written_bytes,
            Self::SystemCalls => work.io.all_calls(),
        }
    }

    fn of_all(&self, works: &[Work]) -> Vec<f64> {
        works.iter().map(|work| self.of(work) as f64).collect()
    }
}

/// One number a trace, growing, of the quantity that the user names.
pub fn measure(
    works: &[Work],
    sides: &[Side<'_>],
    quantity: &Quantity,
) -> Result<Vec<f64>, WorkError> {
    if let Some((side, work)) = sides.iter().zip(works).find(|(_, w)| quantity.of(w) == 0) {
        return Err(missing(&side.trace, work, quantity));
    }
    let work = quantity.of_all(works);
    if !work.is_sorted_by(|a, b| a < b) {
        let quantity = quantity.clone();
        return Err(WorkError::NotGrowing { quantity, work });
    }
    Ok(work)
}

fn missing(trace: &str, work: &Work, quantity: &Quantity) -> WorkError {
    let (trace, quantity) = (trace.to_owned(), quantity.clone());
    let Quantity::Mark(_) = quantity else {
        return WorkError::NotCounted { trace, quantity };
    };
    let marks = work.marks.ranked().into_iter().take(MARKS_NAMED);
    WorkError::NoSuchMark {
        trace,
        mark: quantity,
        marks: marks
            .map(|(name, _)| printable::escape_bytes(name))
            .collect(),
    }
}

/// The quantity that grows from trace to trace: the mark that is passed most often, else the bytes
/// read.
pub fn find(works: &[Work]) -> Option<(Vec<f64>, Quantity)> {
    let marks = works.first()?.marks.ranked().into_iter();
    let marks = marks.map(|(name, _)| Quantity::Mark(name.to_vec()));
    let mut quantities = marks.chain([Quantity::BytesRead]);
    quantities.find_map(|quantity| {
        let work = quantity.of_all(works);
        let (first, last) = (*work.first()?, *work.last()?);
        let grows = first > 0.0 && last >= first * GROWS && work.is_sorted_by(|a, b| a < b);
        grows.then_some((work, quantity))
    })
}

/// `1000:10000`, `mark:NAME`, `read`, `write`, `calls` or `estimate`.
pub fn parse(text: &str) -> Result<WorkRequest, WorkError> {
    if let Some(name) = text.strip_prefix("mark:").filter(|name| !name.is_empty()) {
        return Ok(WorkRequest::Measured(Quantity::Mark(name.into())));
    }
    match text {
        "read" => return Ok(WorkRequest::Measured(Quantity::BytesRead)),
        "write" => return Ok(WorkRequest::Measured(Quantity::BytesWritten)),
        "calls" => return Ok(WorkRequest::Measured(Quantity::SystemCalls)),
        "estimate" => return Ok(WorkRequest::Estimated),
        _ => {}
    }
    let numbers = text.split(':').map(|number| number.parse().ok());
    let numbers: Option<Vec<f64>> = numbers
        .map(|number| number.filter(|number: &f64| number.is_normal() && *number > 0.0))
        .collect();
    let growing = numbers.filter(|numbers| numbers.is_sorted_by(|a, b| a < b));
    growing
        .map(WorkRequest::Given)
        .ok_or_else(|| WorkError::Unknown(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_growing_numbers_or_what_is_counted() {
        let given = WorkRequest::Given(vec![1.0, 2.5, 1000.0]);
        assert_eq!(parse("1:2.5:1e3").unwrap(), given);
        let mark = WorkRequest::Measured(Quantity::Mark(b"a:b".to_vec()));
        assert_eq!(parse("mark:a:b").unwrap(), mark);
        assert_eq!(parse("estimate").unwrap(), WorkRequest::Estimated);
        for text in [
            "", "1:", "2:1", "1:1", "0:1", "-1:1", "1:nan", "1:inf", "x\n:2", "mark:", "reads",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error, WorkError::Unknown(text.to_owned()));
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }

    fn work(marks: &[(&str, u64)], read_bytes: u64) -> Work {
        let mut work = Work::default();
        for (name, passes) in marks {
            (0..*passes).for_each(|_| work.marks.pass(name.as_bytes()));
        }
        work.io.read_bytes = read_bytes;
        work
    }

    #[test]
    fn marks_come_before_bytes_and_only_what_grows_counts() {
        let both = [
            work(&[("row", 5), ("start", 9)], 100),
            work(&[("row", 50), ("start", 9)], 1000),
        ];
        let (numbers, quantity) = find(&both).unwrap();
        assert_eq!(
            (numbers, quantity.name()),
            (vec![5.0, 50.0], "mark:row".to_owned())
        );
        let steady = [work(&[("row", 5)], 100), work(&[("row", 5)], 1000)];
        assert_eq!(find(&steady).unwrap().1, Quantity::BytesRead);
        let once = [work(&[("row", 5)], 100), work(&[], 1000)];
        assert_eq!(find(&once).unwrap().1, Quantity::BytesRead);
        assert_eq!(find(&[work(&[], 1000), work(&[], 1001)]), None);
        assert_eq!(find(&[work(&[], 0), work(&[], 1000)]), None);
        assert_eq!(find(&[]), None);
    }
}
