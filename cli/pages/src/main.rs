//! Makes man pages and shells' completions of the definitions of the command line. `make build` runs this
//! program and stages what it writes; it is not installed itself, so the tool does without its libraries.
//! Usage: larder-pages SHARE    writes below SHARE, as in PREFIX/share
//!
//! Invariant: hidden commands are in none of them.

mod completions;
mod man;

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;

fn main() -> io::Result<()> {
    match std::env::args_os().nth(1) {
        Some(share) => write(share.as_ref()),
        None => Err(io::Error::other("usage: larder-pages SHARE")),
    }
}

fn write(share: &Path) -> io::Result<()> {
    for (name, page) in man::pages(tool())? {
        write_file(&share.join("man/man1").join(name), &page)?;
    }
    for (place, script) in completions::scripts(tool()) {
        write_file(&share.join(place), script.as_bytes())?;
    }
    Ok(())
}

fn write_file(path: &Path, content: &[u8]) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::write(path, content)
}

/// The tool with the commands of `larder-lab`.
fn tool() -> Command {
    let (tool, lab) = (larder_cli::command(), larder_lab::command());
    let commands = tool.get_subcommands().chain(lab.get_subcommands());
    let shown = commands.filter(|command| !command.is_hide_set()).cloned();
    let ordered = shown.enumerate();
    // A new one, because clap takes no command away.
    Command::new("larder")
        .version(env!("CARGO_PKG_VERSION"))
        .about(tool.get_about().cloned().unwrap_or_default())
        .after_help(tool.get_after_help().cloned().unwrap_or_default())
        .subcommand_required(true)
        .subcommands(ordered.map(|(place, command)| command.display_order(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completes `WORD… --` for each line of words.
    const COMPLETE: &str = r#"
        source "$1/bash-completion/completions/larder"
        while read -ra words; do
            COMP_WORDS=("${words[@]}" --) COMP_CWORD=${#words[@]}
            _larder larder -- "${words[-1]}"
            echo " ${COMPREPLY[*]} "
        done <<<"$2""#;

    /// The words of each command, and its long options.
    fn defined(command: &Command, before: &str, found: &mut Vec<(String, Vec<String>)>) {
        let words = format!("{before}{} ", command.get_name());
        let shown = command
            .get_arguments()
            .filter(|option| !option.is_hide_set());
        let options = shown.filter_map(|option| Some(format!("--{}", option.get_long()?)));
        found.push((words.trim().to_owned(), options.collect()));
        for subcommand in command.get_subcommands() {
            defined(subcommand, &words, found);
        }
    }

    #[test]
    fn a_synopsis_has_the_values_of_options_and_the_command() {
        for (page, expected) in [
            ("larder-report", "[--top N]"),
            ("larder-report", "[-o|--output FILE]"),
            ("larder-report", "[--json] "),
            ("larder-report", " TRACE\n"),
            ("larder-record", "[--syscalls[=BY]]"),
            ("larder-record", " [--] COMMAND|PID...\n"),
            ("larder-leaks", " [PID] [-- COMMAND...]\n"),
            ("larder-import", " -o|--output DIR "),
            ("larder-lab", " command\n"),
        ] {
            let pages = man::pages(tool()).unwrap();
            let file = format!("{page}.1");
            let (_, content) = pages.iter().find(|(name, _)| *name == file).unwrap();
            let text = String::from_utf8_lossy(content).replace("\\-", "-");
            let text = ["\\fB", "\\fI", "\\fR"]
                .into_iter()
                .fold(text, |text, font| text.replace(font, ""));
            let (_, synopsis) = text.split_once(".SH SYNOPSIS\n").unwrap();
            let (synopsis, _) = synopsis.split_once(".SH").unwrap();
            assert!(synopsis.contains(expected), "{page} {expected}: {synopsis}");
        }
    }

    #[test]
    fn every_option_of_every_command_is_in_all_of_them() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path()).unwrap();
        let read = |place: &str| fs::read_to_string(folder.path().join(place)).unwrap();
        let [_, zsh, fish] = completions::PLACES.map(|(_, place)| read(place));
        let mut commands = Vec::new();
        defined(&tool(), "", &mut commands);
        assert!(commands.len() > 30, "{commands:?}");
        let words: Vec<_> = commands.iter().map(|(words, _)| words.as_str()).collect();
        let completed = std::process::Command::new("bash")
            .args(["-euc", COMPLETE, "bash"])
            .arg(folder.path())
            .arg(words.join("\n"))
            .output()
            .unwrap();
        assert!(completed.status.success(), "{completed:?}");
        let completed = String::from_utf8(completed.stdout).unwrap();
        let mut bash = completed.lines();
        for (words, options) in &commands {
            let page = read(&format!("man/man1/{}.1", words.replace(' ', "-")));
            let page = page.replace("\\-", "-");
            let bash = bash.next().unwrap();
            for option in options {
                assert!(page.contains(option), "{words} {option}: {page}");
                assert!(
                    bash.contains(&format!(" {option} ")),
                    "{words} {option}: {bash}"
                );
                assert!(zsh.contains(option), "{words} {option}");
                assert!(
                    fish.contains(&option.replace("--", "-l ")),
                    "{words} {option}"
                );
            }
        }
        assert!(!zsh.contains("look-at-end"), "hidden");
    }
}
