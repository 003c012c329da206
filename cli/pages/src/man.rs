//! The man pages: one for the tool, and one for each command. What clap has after a command's options,
//! examples and exit codes, becomes sections.

use std::io;

use clap::{Arg, Command};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

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
    let mut usage = Roff::new();
    synopsis(command, &mut usage);
    usage.to_writer(&mut page)?;
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

/// clap_mangen's own leaves out the values of options, and the `--` before a command.
fn synopsis(command: &Command, page: &mut Roff) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let mut line = vec![bold(name)];
    for option in shown().filter(|arg| !arg.is_positional()) {
        let short = option.get_short().map(|short| format!("-{short}"));
        let long = option.get_long().map(|long| format!("--{long}"));
        let names = [short, long].into_iter().flatten().collect::<Vec<_>>();
        let mut words = vec![bold(names.join("|"))];
        match option
            .get_num_args()
            .map_or(0, |values| values.min_values())
        {
            _ if !option.get_action().takes_values() => {}
            0 => words.extend([roman("[="), italic(value(option)), roman("]")]),
            _ => words.extend([roman(" "), italic(value(option))]),
        }
        line.extend(bracketed(option, words));
    }
    for argument in shown().filter(|arg| arg.is_positional()) {
        let mut words = vec![italic(value(argument))];
        if argument
            .get_num_args()
            .is_some_and(|values| values.max_values() > 1)
        {
            words.push(roman("..."));
        }
        if argument.is_last_set() {
            words.insert(0, bold("-- "));
        } else if argument.is_trailing_var_arg_set() {
            line.extend([roman(" ["), bold("--"), roman("]")]);
        }
        line.extend(bracketed(argument, words));
    }
    if command.has_subcommands() {
        line.extend([roman(" "), italic("command")]);
    }
    page.control("SH", ["SYNOPSIS"]).text(line);
}

/// In brackets, unless it is required.
fn bracketed(arg: &Arg, words: Vec<Inline>) -> Vec<Inline> {
    let (left, right) = match arg.is_required_set() {
        true => (" ", ""),
        false => (" [", "]"),
    };
    [vec![roman(left)], words, vec![roman(right)]].concat()
}

fn value(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    names.join(" ")
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
