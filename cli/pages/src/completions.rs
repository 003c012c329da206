//! The shells' completions: what clap makes of the command line, and what it leaves out.

use clap::{Command, ValueHint};
use clap_complete::Shell;

pub const PLACES: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/larder"),
    (Shell::Zsh, "zsh/site-functions/_larder"),
    (Shell::Fish, "fish/vendor_completions.d/larder.fish"),
];

/// The places of the scripts below `share`, and their content.
pub fn scripts(tool: Command) -> impl Iterator<Item = (&'static str, String)> {
    let tool = tool.mut_subcommands(|command| {
        command.mut_args(
            |option| match option.is_last_set() || option.is_trailing_var_arg_set() {
                true => option.value_hint(ValueHint::CommandWithArguments),
                false => option,
            },
        )
    });
    PLACES.into_iter().map(move |(shell, place)| {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut tool.clone(), "larder", &mut script);
        let script = String::from_utf8_lossy(&script);
        let script = match shell {
            Shell::Bash => script.into_owned() + include_str!("command.bash"),
            Shell::Fish => after_help(&script) + include_str!("command.fish"),
            _ => script.into_owned(),
        };
        (place, script)
    })
}

/// clap's condition is that none of the commands was typed, and `help`, which was, is among them.
fn after_help(fish: &str) -> String {
    let lines = fish.lines().map(
        |line| match line.contains("_using_subcommand help; and not ") {
            true => line.replacen(" help\" ", "\" ", 1),
            false => line.to_owned(),
        },
    );
    lines.flat_map(|line| [line, "\n".to_owned()]).collect()
}
