//! The configuration as options of a command line and as variables of the environment.

use clap::builder::{BoolishValueParser, StyledStr};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::{Config, ConfigFile, secret};

/// Origin of the value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It is the default.
    Default,
    /// This line of the file.
    File(usize),
    /// A variable of the environment.
    Environment,
    /// An option of the command line.
    CommandLine,
}

impl Config {
    /// Adds an option for each setting to a command. Each option has the variable `env_prefix` plus
    /// its name in upper case with underscores.
    #[must_use]
    pub fn add_options(command: Command, env_prefix: &str) -> Command {
        let defaults = Self::default().sections();
        let options = Self::augment_args(Command::new("settings"));
        let options: Vec<Arg> = options
            .get_arguments()
            .map(|option| {
                let name = option.get_long().unwrap_or_default().to_owned();
                let variable = format!("{env_prefix}{}", name.replace('-', "_").to_uppercase());
                let value = defaults.values().find_map(|section| section.get(&name)).map(shown);
                let option = option.clone().env(variable).hide_env(true);
                finished(option, value.as_deref())
            })
            .collect();
        command.args(options)
    }

    /// Replaces the settings that are present in the environment or on the command line.
    ///
    /// # Errors
    /// The error of the first value that cannot be parsed.
    pub fn apply(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.update_from_arg_matches(matches)
    }

    /// Returns the origin of the value of a setting.
    #[must_use]
    pub fn origin(key: &str, matches: &ArgMatches, file: Option<&ConfigFile>) -> Origin {
        match matches.value_source(&key.replace('-', "_")) {
            Some(ValueSource::CommandLine) => Origin::CommandLine,
            Some(ValueSource::EnvVariable) => Origin::Environment,
            _ => match file.and_then(|file| file.line(key)) {
                Some(line) => Origin::File(line),
                None => Origin::Default,
            },
        }
    }

    /// Returns all sections with their settings, as in a file. Passwords are hidden, also those in
    /// URLs, and settings without a value are missing.
    #[must_use]
    pub fn sections(&self) -> std::collections::BTreeMap<String, toml::Table> {
        let section = |(name, value)| match value {
            toml::Value::Table(section) => Some((name, section)),
            _ => None,
        };
        secret::shown(self).into_iter().filter_map(section).collect()
    }
}

/// The default as the help shows it.
fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(","),
        toml::Value::Boolean(false) => String::new(),
        other => other.to_string(),
    }
}

/// No option is required or has a default: an absent one must not replace the value of the file.
fn finished(option: Arg, default: Option<&str>) -> Arg {
    let option = match option.get_action() {
        // `--option` and `--option=false`, so that the command line can turn off what a file turns
        // on.
        ArgAction::SetTrue => option
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .value_parser(BoolishValueParser::new())
            .value_name("BOOL")
            .hide_possible_values(true),
        _ => option.required(false),
    };
    let Some(default) = default.filter(|default| !default.is_empty()) else { return option };
    let with_default = |help: &StyledStr| format!("{help} [default: {default}]");
    let help = option.get_help().map(with_default);
    let long_help = option.get_long_help().map(with_default);
    let option = help.into_iter().fold(option, Arg::help);
    long_help.into_iter().fold(option, Arg::long_help)
}
