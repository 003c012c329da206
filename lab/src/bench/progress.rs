//! Progress on stderr: a bar on a terminal, else a line for each tenth.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress {
    what: &'static str,
    total: u64,
    done: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn new(what: &'static str, total: usize) -> Progress {
        let total = total as u64;
        let bar = std::io::stderr().is_terminal().then(|| {
            let template = "{prefix} {bar:30} {pos}/{len}  {eta} left  {msg}";
            let style = ProgressStyle::with_template(template);
            let bar = ProgressBar::new(total).with_prefix(what);
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        });
        Progress {
            what,
            total,
            done: 0,
            bar,
        }
    }

    /// One more step is done: `text` names it.
    pub fn step(&mut self, text: &str) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.set_message(text.to_owned());
            bar.set_position(self.done);
        } else if is_tenth(self.done, self.total) {
            say(&format!("{} {}/{}", self.what, self.done, self.total));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The last step into another tenth.
fn is_tenth(done: u64, total: u64) -> bool {
    done * 10 / total.max(1) != (done - 1) * 10 / total.max(1)
}

/// Prints a line on stderr over the bar, which the next step draws again. Ignores errors: there is
/// nowhere to report a closed stderr.
pub fn say(text: &str) {
    let mut out = std::io::stderr();
    let clear = if out.is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(out, "{clear}larder bench: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_ten_lines_at_most_and_the_last_is_the_end() {
        for total in [1, 7, 10, 99, 1000] {
            let lines: Vec<u64> = (1..=total).filter(|done| is_tenth(*done, total)).collect();
            assert!(lines.len() <= 10, "{total}: {lines:?}");
            assert_eq!(lines.last(), Some(&total));
        }
    }
}
