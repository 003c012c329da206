//! `larder flamegraph`: a trace's stacks as a flame graph, one SVG file that needs nothing else.
//!
//! Time and memory grow with the distinct stacks; the picture holds only frames wide enough to see.

mod args;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};

pub use args::{EXAMPLES, RawFlamegraph};

use larder_base::failure::{Failure, Result};
use larder_base::number::grouped;
use larder_base::output::{self, Content};
use larder_base::printable;

use crate::error::AnalysisError;
use crate::export::{self, folded_sums};
use crate::reading::measure::Measure;
use crate::reading::stacks::StackRow;
use crate::reading::subject::Subject;

#[derive(Debug)]
pub struct FlamegraphPlan {
    pub subject: Subject,
    /// The trace to compare with.
    pub base: Option<Subject>,
    pub measure: Measure,
    pub output: Option<PathBuf>,
}

impl FlamegraphPlan {
    pub fn new(subject: Subject, measure: Option<Measure>, output: Option<PathBuf>) -> Self {
        Self {
            subject,
            base: None,
            measure: measure.unwrap_or(Measure::Calls),
            output,
        }
    }
}

/// In percent of the whole width: narrower frames are left out.
const MIN_WIDTH_PERCENT: f64 = 0.1;
/// No honest trace exceeds this; drawing sums widths without a check of their range.
const MAX_TOTAL: u64 = 1 << 62;

pub fn flamegraph(plan: &FlamegraphPlan) -> Result<()> {
    let mut title = format!(
        "{}, {}",
        plan.measure.title(),
        printable::name(&plan.subject.trace)
    );
    let rows = rows(&plan.subject, plan.measure)?;
    let picture = match &plan.base {
        None => svg(&rows, plan.measure, &title),
        Some(base) => {
            title = format!("{title} against {}", printable::name(&base.trace));
            let before = self::rows(base, plan.measure)?;
            if before.is_empty() && !plan.measure.is_of_allocations() {
                return Err(nothing(base, plan.measure));
            }
            differential(&before, &rows, plan.measure, &title)
        }
    };
    let picture = picture.ok_or_else(|| nothing(&plan.subject, plan.measure))?;
    output::write(plan.output.as_deref(), Content::Text, |out| {
        out.write_all(picture.as_bytes())
    })
}

/// What fails without any stack of a measure.
fn nothing(subject: &Subject, measure: Measure) -> Failure {
    let what_to_do = match measure.option() {
        "" => "choose another --value".to_owned(),
        option => format!("record with {option}, or choose another --value"),
    };
    let lack = format!("has no {} of this measure: {what_to_do}", measure.unit());
    AnalysisError::unfit(&subject.trace, lack).into()
}

fn rows(subject: &Subject, measure: Measure) -> Result<Vec<StackRow>> {
    let (_, stacks) = export::read(subject, measure)?;
    Ok(stacks.rows)
}

/// A flame graph of these rows, whole and interactive; `None` if their values are 0.
pub fn svg(rows: &[StackRow], measure: Measure, title: &str) -> Option<String> {
    let sums = folded_sums(rows, measure);
    let total = total(&sums)?;
    let lines: Vec<String> = sums
        .iter()
        .map(|(stack, value)| format!("{stack} {value}"))
        .collect();
    let subtitle = format!("{} {}", grouped(total), measure.unit());
    draw(&lines, measure, title, subtitle)
}

/// The flame graph of `rows`, each frame coloured by its own change since `base`, without that of its
/// callees: red is more, blue is less.
pub fn differential(
    base: &[StackRow],
    rows: &[StackRow],
    measure: Measure,
    title: &str,
) -> Option<String> {
    let (before, after) = (folded_sums(base, measure), folded_sums(rows, measure));
    let (old, new) = (total(&before).unwrap_or(0), total(&after)?);
    let lines: Vec<String> = after
        .iter()
        .map(|(stack, value)| {
            let was = before.get(stack).copied().unwrap_or(0);
            format!("{stack} {was} {value}")
        })
        .chain(
            // These have no width, unless they are prefixes of others.
            before
                .iter()
                .filter(|(stack, _)| !after.contains_key(*stack))
                .map(|(stack, was)| format!("{stack} {was} 0")),
        )
        .collect();
    let subtitle = format!(
        "{} → {} {}; red: the frame itself has more than before, blue: less; a frame that is gone has no width",
        grouped(old),
        grouped(new),
        measure.unit()
    );
    draw(&lines, measure, title, subtitle)
}

/// `None`: 0, or beyond the largest sum.
fn total(sums: &BTreeMap<String, u64>) -> Option<u64> {
    let total = sums
        .values()
        .try_fold(0u64, |sum, value| sum.checked_add(*value))?;
    (1..=MAX_TOTAL).contains(&total).then_some(total)
}

fn draw(lines: &[String], measure: Measure, title: &str, subtitle: String) -> Option<String> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some(format!(
        "{subtitle}; frames under {MIN_WIDTH_PERCENT} % of the width are left out"
    ));
    options.count_name = measure.unit().to_owned();
    options.min_width = MIN_WIDTH_PERCENT;
    options.deterministic = true;
    options.text_truncate_direction = TextTruncateDirection::Right;
    let mut picture = Vec::new();
    let drawn: io::Result<()> =
        from_lines(&mut options, lines.iter().map(String::as_str), &mut picture);
    drawn.ok()?;
    String::from_utf8(picture).ok()
}
