//! `larder --help`: the commands in groups by what they are for, in each the common ones first.

use clap::Command;

pub const GROUPS: [(&str, &[&str]); 5] = [
    ("Run and record", &["run", "record", "import", "doctor"]),
    (
        "Read a trace",
        &[
            "report",
            "advise",
            "view",
            "callers",
            "callees",
            "diff",
            "flamegraph",
            "html",
            "timeline",
            "export",
            "memdebug",
        ],
    ),
    (
        "Watch a running process",
        &["top", "profile", "leaks", "stats", "serve"],
    ),
    ("Keep it in CI", &["check", "history"]),
    (
        "Test and measure",
        &["bench", "replay", "torture", "sweep", "alias", "lab"],
    ),
];

/// The width where there is no terminal, and the largest.
const WIDTH: usize = 100;
/// Spaces before a command, and between it and its description.
const GAP: usize = 2;

/// Clap's template for the help of the whole tool.
pub fn template(tool: &Command) -> String {
    let terminal = rustix::termios::tcgetwinsize(std::io::stdout());
    let columns = terminal.map_or(0, |size| usize::from(size.ws_col));
    let width = if columns == 0 { WIDTH } else { columns };
    let commands = listed(tool, width.min(WIDTH));
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}Options:\n{{options}}{{after-help}}"
    )
}

fn listed(tool: &Command, width: usize) -> String {
    let names = GROUPS.iter().flat_map(|group| group.1);
    let longest = names.map(|name| name.len()).max().unwrap_or(0);
    let indent = GAP + longest + GAP;
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(&format!("{heading}:\n"));
        for name in names {
            let command = tool.find_subcommand(name);
            let about = command.and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let lines = wrapped(&about, width.saturating_sub(indent));
            let between = format!("\n{:indent$}", "");
            text.push_str(&format!("{:GAP$}{name:longest$}{:GAP$}", "", ""));
            text.push_str(&lines.join(&between));
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

/// Lines of up to `width` columns; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_are_wrapped_beside_the_names() {
        let about = "Run a command and record each of its allocations";
        let tool = Command::new("larder").subcommand(Command::new("record").about(about));
        let text = listed(&tool, 40);
        let expected =
            "  record      Run a command and record\n              each of its allocations\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_word_that_is_too_long_has_a_line() {
        assert_eq!(wrapped("a bc def", 2), ["a", "bc", "def"]);
    }
}
