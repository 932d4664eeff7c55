//! Help of the whole command, with the subcommands in groups.

use std::fmt::Write as _;

use clap::{Command, Subcommand as _};

use super::Verb;
use crate::exit::Exit;

/// Groups of subcommands. A subcommand that is in no group is listed under `OTHER`.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Data", &["get", "set", "del", "vdel", "keys", "watch", "export", "import", "data"]),
    ("Coordination", &["lock", "elect"]),
    ("Server", &["serve", "dev", "passwd", "policy", "certificates", "status"]),
    ("Diagnosis", &["doctor", "top", "bench", "verify", "replay"]),
];

const OTHER: &str = "Other";

const EXAMPLES: &str = "\
Examples:
  statestore serve                            # broker and store on 127.0.0.1:1883
  statestore dev -- dotnet test               # applications of Azure IoT Operations
  statestore set thermostat 21
  statestore get thermostat
  statestore keys 'rooms/*'
  statestore watch thermostat
  statestore set job done --ttl 10s           # expires after ten seconds
  statestore lock nightly --lease 30s -- ./backup.sh
  statestore elect heating --candidate node-1
  statestore doctor --broker mqtt://HOST:1883 # check the connection step by step";

/// Template of the help, with the list of subcommands.
pub(super) fn template() -> String {
    let usage = "{about-with-newline}\n{usage-heading} {usage}";
    format!("{usage}\n\n{}Options:\n{{options}}{{after-help}}", subcommands())
}

/// Text below the short help.
pub(super) fn short() -> String {
    "`statestore COMMAND --help` describes a command in full.\n\
     `statestore --help` has examples and exit codes."
        .to_owned()
}

/// Text below the long help.
pub(super) fn long() -> String {
    format!(
        "{EXAMPLES}\n\n{}\n\
         The options of a client can be set by environment variables: STATESTORE_ and the name of \
         the\n\
         option, for example STATESTORE_BROKER. STATESTORE_LOG=info logs more. Without a broker \
         from these,\n\
         the variables of the SDKs of Azure IoT Operations are read, such as AIO_BROKER_HOSTNAME.",
        Exit::help()
    )
}

fn subcommands() -> String {
    let all = Verb::augment_subcommands(Command::new("statestore"));
    let is_grouped = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut text = String::new();
    let mut group = |heading: &str, commands: &[&Command]| {
        if commands.is_empty() {
            return;
        }
        let _ = writeln!(text, "{heading}:");
        for command in commands {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let aliases = command.get_visible_aliases().collect::<Vec<_>>().join(", ");
            let aliases = if aliases.is_empty() { aliases } else { format!(" [also: {aliases}]") };
            let _ = writeln!(text, "  {:<13} {about}{aliases}", command.get_name());
        }
        text.push('\n');
    };
    for (heading, names) in GROUPS {
        let commands = names.iter().filter_map(|name| all.find_subcommand(name));
        group(heading, &commands.collect::<Vec<_>>());
    }
    let others = all.get_subcommands().filter(|command| !is_grouped(command.get_name()));
    group(OTHER, &others.collect::<Vec<_>>());
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::Args;
    use super::*;

    /// Height of a screen, for the output of `-h`.
    const LINES_MAX: usize = 50;

    /// Width of a screen.
    const COLUMNS_MAX: usize = 100;

    #[test]
    fn top_level_help_lists_each_command_once() {
        let mut all = Args::command();
        let help = all.render_help().to_string();
        for command in Args::command().get_subcommands() {
            let line = format!("\n  {} ", command.get_name());
            assert_eq!(help.matches(&line).count(), 1, "{line} in {help}");
        }
        for heading in ["Data:", "Coordination:", "Server:", "Diagnosis:", "Other:"] {
            assert!(help.contains(heading), "{heading} in {help}");
        }
    }

    /// All commands, with their subcommands, under the names that a user types.
    fn all_commands(parent: &Command, path: &str) -> Vec<(String, Command)> {
        let path = format!("{path} {}", parent.get_name()).trim().to_owned();
        let inner = parent.get_subcommands().filter(|command| command.get_name() != "help");
        let inner = inner.flat_map(|command| all_commands(command, &path)).collect::<Vec<_>>();
        [(path, parent.clone())].into_iter().chain(inner).collect()
    }

    #[test]
    fn short_help_of_every_command_fits_one_screen() {
        let all = all_commands(&Args::command(), "");
        assert!(all.len() > 25, "{}", all.len());
        for (path, mut command) in all {
            let help = command.render_help().to_string();
            let count = help.lines().count();
            assert!(count <= LINES_MAX, "{path}: {count} lines: {help}");
            let is_long = |line: &&str| line.chars().count() > COLUMNS_MAX;
            let long: Vec<&str> = help.lines().filter(is_long).collect();
            assert!(long.is_empty(), "{path}: {long:#?}");
        }
    }

    /// The commands page wraps a longer line again.
    #[test]
    fn text_below_the_options_is_wrapped() {
        for (path, command) in all_commands(&Args::command(), "") {
            let text = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            for line in text.lines() {
                assert!(line.chars().count() <= COLUMNS_MAX, "{path}: {line}");
            }
        }
    }

    #[test]
    fn options_of_client_commands_have_headings() {
        let all = Args::command();
        for name in ["get", "set", "del", "vdel", "keys", "watch", "lock", "elect", "doctor"] {
            let mut command = all.find_subcommand(name).expect("a command").clone();
            let help = command.render_help().to_string();
            for heading in ["Connection:", "TLS:", "Login:", "Output:"] {
                assert!(help.contains(heading), "{name}: {heading} in {help}");
            }
        }
    }

    #[test]
    fn long_help_names_hidden_environment_variables() {
        for command in Args::command().get_subcommands() {
            // The variables of `serve` have one prefix, which the text below its help names.
            if command.get_name() == "serve" {
                let text = command.get_after_help().expect("a text").to_string();
                assert!(text.contains("STATESTORE_SERVE_"), "{text}");
                continue;
            }
            for option in command.get_arguments().filter(|option| option.is_hide_env_set()) {
                let variable = option.get_env().expect("a variable").to_string_lossy();
                let help = [option.get_long_help(), option.get_help()].into_iter().flatten();
                let is_named = help.map(ToString::to_string).any(|text| text.contains(&*variable));
                assert!(is_named, "{} {variable}", command.get_name());
            }
        }
    }
}
