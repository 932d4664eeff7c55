//! The options of `serve`: those of the server's configuration.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches, value_parser};
use statestore_server::config::{Config, ConfigError, ConfigFile, Origin};

use crate::escape::printable;

/// Prefix of the environment variables. Those of the client commands have a shorter one, so that
/// `STATESTORE_BROKER` of a client does not make `serve` use an external broker.
pub(crate) const ENV_PREFIX: &str = "STATESTORE_SERVE_";

/// Options that `-h` shows. All are in `--help`.
const COMMON: [&str; 14] = [
    "listen",
    "listen-tls",
    "listen-websocket",
    "allow-anonymous",
    "listen-tls-cert",
    "listen-tls-key",
    "password-file",
    "policy",
    "data-dir",
    "durable",
    "max-keys",
    "metrics-listen",
    "broker",
    "etcd",
];

/// Description of the command.
pub(crate) const ABOUT: &str = "Run a state store with an embedded or an external broker";

const AFTER_HELP: &str = "\
An option replaces its variable, STATESTORE_SERVE_NAME, which replaces the setting in the file.
SIGTERM and SIGINT stop the server. SIGHUP reloads users, certificates, public keys of
service accounts, and policies.
STATESTORE_LOG=error, info or debug changes the log on standard error.";

/// Arguments of `serve`.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) config: Config,
    pub(crate) origins: Origins,
    /// Text to print instead: the help, or the effective settings with their origins.
    pub(crate) print: Option<String>,
}

/// Origins of the settings, for errors.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    matches: ArgMatches,
    file: Option<ConfigFile>,
}

impl Origins {
    /// The error with the place of its setting: the line of the file, the variable or the option.
    pub(crate) fn locate(&self, error: &ConfigError) -> String {
        let (Some(key), Some(reason)) = (error.key(), error.reason()) else {
            return error.to_string();
        };
        match (Config::origin(key, &self.matches, self.file.as_ref()), &self.file) {
            (Origin::File(line), Some(file)) => {
                format!("{}:{line}: {key}: {reason}", file.path().display())
            }
            (Origin::Environment, _) => {
                format!("{ENV_PREFIX}{}: {reason}", key.replace('-', "_").to_uppercase())
            }
            _ => format!("--{key}: {reason}"),
        }
    }
}

impl clap::Args for Serve {
    fn augment_args(command: Command) -> Command {
        with_help(with_options(command)).mut_args(|option| {
            let is_rare = option.get_long().is_some_and(|name| !COMMON.contains(&name));
            let is_setting = option.get_help_heading().is_some();
            if is_rare && is_setting { option.hide_short_help(true) } else { option }
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn with_options(command: Command) -> Command {
    let command = command
        .arg(
            Arg::new("config")
                .long("config")
                .env(format!("{ENV_PREFIX}CONFIG"))
                .hide_env(true)
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("TOML file with settings, in sections as --print-config prints them"),
        )
        .arg(
            Arg::new("print_config")
                .long("print-config")
                .action(ArgAction::SetTrue)
                .help("Print all settings with their origins as such a file, and exit"),
        );
    Config::add_options(command, ENV_PREFIX)
}

/// Compact help with all options, a line for each.
fn help() -> String {
    let command = Command::new("serve").bin_name("statestore serve").about(ABOUT);
    with_help(with_options(command)).render_help().to_string()
}

/// Adds the options for help, and the text below the options.
fn with_help(command: Command) -> Command {
    let short =
        Arg::new("help").short('h').action(ArgAction::HelpShort).help("Print common options");
    let all = Arg::new("help_all")
        .long("help")
        .action(ArgAction::SetTrue)
        .help("Print all options; `statestore man serve` explains them");
    command.disable_help_flag(true).arg(short).arg(all).after_help(AFTER_HELP)
}

impl FromArgMatches for Serve {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if matches.get_flag("help_all") {
            let (config, origins) = (Config::default(), Origins::default());
            return Ok(Self { config, origins, print: Some(help()) });
        }
        check_variables()?;
        let file = matches.get_one::<PathBuf>("config").map(ConfigFile::read).transpose();
        let file = file.map_err(|error| invalid(error.to_string()))?;
        let mut config = file.as_ref().map(|file| file.config().clone()).unwrap_or_default();
        config.apply(matches)?;
        let origins = Origins { matches: matches.clone(), file };
        config.check().map_err(|error| invalid(origins.locate(&error)))?;
        let file = origins.file.as_ref();
        let print = matches.get_flag("print_config").then(|| printed(&config, matches, file));
        Ok(Self { config, origins, print })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Rejects variables that do not name a setting, such as misspelt ones.
fn check_variables() -> Result<(), clap::Error> {
    let options = with_options(Command::new("serve"));
    let is_known = |name: &str| {
        options.get_arguments().filter_map(Arg::get_env).any(|variable| variable == name)
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    match names.filter(|name| name.starts_with(ENV_PREFIX)).find(|name| !is_known(name)) {
        Some(name) => Err(invalid(format!(
            "{name}: unknown setting; `statestore serve --print-config` lists all"
        ))),
        None => Ok(()),
    }
}

fn invalid(message: String) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, message + "\n")
}

/// All settings in sections, each with its origin. Those of the file, the environment and the
/// command line can be read again as a file.
fn printed(config: &Config, matches: &ArgMatches, file: Option<&ConfigFile>) -> String {
    let mut text = String::new();
    for (name, section) in config.sections() {
        text += &format!("[{name}]\n");
        for (key, value) in section {
            let origin = Config::origin(&key, matches, file);
            let comment = match (origin, file) {
                (Origin::Default, _) => "default".to_owned(),
                (Origin::File(line), Some(file)) => format!("{}:{line}", file.path().display()),
                (Origin::Environment, _) => "environment".to_owned(),
                _ => "command line".to_owned(),
            };
            let is_hidden = value.as_str() == Some("(hidden)");
            let off = if origin == Origin::Default || is_hidden { "# " } else { "" };
            text += &format!("{off}{key} = {} # {comment}\n", printable(&value.to_string()));
        }
        text.push('\n');
    }
    text
}
