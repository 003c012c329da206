//! The man pages: one for the tool, and one for each command. What clap has after a command's options,
//! examples and exit codes, becomes sections.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// How the paragraph begins.
const EXIT_CODES: &str = "Exit codes:";

/// The names of the files, and their content.
pub fn pages(tool: Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut tool = tool.disable_help_subcommand(true);
    tool.build();
    let mut pages = Vec::new();
    add(&tool, &tool, &[], &mut pages)?;
    Ok(pages)
}

fn add(
    tool: &Command,
    command: &Command,
    parents: &[&str],
    pages: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    pages.push((format!("{name}.1"), page(tool, command, parents)?));
    let parents = [parents, &[name]].concat();
    for subcommand in command.get_subcommands() {
        add(tool, subcommand, &parents, pages)?;
    }
    Ok(())
}

fn page(tool: &Command, command: &Command, parents: &[&str]) -> io::Result<Vec<u8>> {
    let source = format!("Larder {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source).manual("Larder");
    // No date, so that a build can be reproduced; an empty one would not be quoted.
    let man = man.date(" ");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    let (text, of_tool) = (after_help(command), after_help(tool));
    let general = match (text.contains(EXIT_CODES), of_tool.find(EXIT_CODES)) {
        (false, Some(start)) => &of_tool[start..],
        _ => "",
    };
    for paragraph in text.split("\n\n").chain([general]) {
        section(paragraph, &mut rest);
    }
    see_also(command, parents, &mut rest);
    rest.to_writer(&mut page)?;
    Ok(page)
}

fn after_help(command: &Command) -> String {
    let text = command.get_after_help();
    text.map(ToString::to_string).unwrap_or_default()
}

fn section(paragraph: &str, page: &mut Roff) {
    let (heading, text) = match paragraph.split_once(':') {
        Some(("Example" | "Examples", text)) => ("EXAMPLES", text),
        Some(("Exit codes", text)) => ("EXIT CODES", text),
        _ if paragraph.is_empty() => return,
        _ => ("NOTES", paragraph),
    };
    page.control("SH", [heading]);
    for line in text.trim_start_matches('\n').lines() {
        // A command; what is below it is indented further.
        let command = line
            .strip_prefix("  ")
            .filter(|line| !line.starts_with(' '));
        if let Some(command) = command {
            page.control("TP", []).text([bold(command)]);
        } else {
            page.text([roman(line.trim_start())]);
        }
    }
}

/// The commands that this one belongs to, its group in the tool's help, and its own commands.
fn see_also(command: &Command, parents: &[&str], page: &mut Roff) {
    let name = command.get_name();
    let groups = larder_cli::GROUPS.iter().map(|group| group.1);
    let group = groups.filter(|names| names.contains(&name) && parents.len() == 1);
    let others = group.flatten().filter(|other| **other != name);
    let own = command
        .get_subcommands()
        .filter_map(Command::get_display_name);
    let mut pages: Vec<String> = parents.iter().map(ToString::to_string).collect();
    pages.extend(others.map(|other| format!("larder-{other}")));
    pages.extend(own.map(str::to_owned));
    page.control("SH", ["SEE ALSO"]);
    for (index, name) in pages.iter().enumerate() {
        let comma = if index + 1 < pages.len() { "," } else { "" };
        page.control("BR", [name, &format!("(1){comma}")[..]]);
    }
}
