//! Names of connection settings in error messages: their options, or the variables that set them.

use std::sync::OnceLock;

use statestore_client::SettingNames;
use statestore_doctor::tls::option_names;

/// An option without `--`, and a variable that sets it, since the command line does not.
pub(crate) type Source = (&'static str, &'static str);

/// Name of the option for a service account token.
pub(crate) const TOKEN_FILE: &str = "service-account-token-file";

/// The settings from variables. A process has one command line, so they are recorded once.
static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();

/// Records the settings from variables. Only the first call has an effect.
pub(crate) fn record(sources: Vec<Source>) {
    let _ = SOURCES.set(sources);
}

/// A connection of a command, whose settings have their own names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The only connection of a command.
    #[default]
    Broker,
    /// The connection of `serve` to an external broker.
    Serve,
    /// The source of `mirror`.
    Source,
    /// The target of `mirror`.
    Target,
}

impl Endpoint {
    /// Returns the name of a setting in a message: its option or argument, or the variables that
    /// set it.
    pub(crate) fn name(self, option: &str) -> String {
        match (self, option) {
            (Self::Broker, _) => setting_name(option),
            (Self::Source, "broker") => "FROM".to_owned(),
            (Self::Target, "broker") => "TO".to_owned(),
            (Self::Serve | Self::Source, _) => format!("--{option}"),
            (Self::Target, _) => format!("--to-{option}"),
        }
    }

    /// Returns the name of the variable for the password.
    pub(crate) const fn password_variable(self) -> &'static str {
        match self {
            Self::Broker | Self::Source => "STATESTORE_PASSWORD",
            Self::Serve => "STATESTORE_SERVE_PASSWORD",
            Self::Target => "STATESTORE_TO_PASSWORD",
        }
    }

    /// Returns the names for advice about TLS.
    pub(crate) fn tls_names(self) -> SettingNames {
        match self {
            // A notice about variables follows this advice.
            Self::Broker | Self::Serve => option_names(),
            Self::Source | Self::Target => SettingNames {
                broker: self.name("broker"),
                tls_ca: self.name("tls-ca"),
                tls_cert: self.name("tls-cert"),
                tls_key: self.name("tls-key"),
            },
        }
    }
}

/// Returns the name of a setting of a command with one connection: its option, or the variables
/// that set it.
pub(crate) fn setting_name(option: &str) -> String {
    variables(option).unwrap_or_else(|| format!("--{option}"))
}

/// Returns the names of the variables that set an option. `None` if the command line or a default
/// does.
pub(crate) fn variables(option: &str) -> Option<String> {
    names(SOURCES.get()?, option)
}

/// Returns a notice that lists the settings from variables. It completes messages that name only
/// their options. `None` if no setting is from a variable.
pub(crate) fn sources_notice() -> Option<String> {
    let sources = SOURCES.get().filter(|sources| !sources.is_empty())?;
    Some(format!("options are set by variables: {}", listed(sources)))
}

/// Each option once, with its variables.
fn listed(sources: &[Source]) -> String {
    let mut options: Vec<&str> = sources.iter().map(|(option, _)| *option).collect();
    options.dedup();
    let each = options.into_iter().filter_map(|option| {
        let variables = names(sources, option)?;
        Some(format!("--{option} by {variables}"))
    });
    each.collect::<Vec<_>>().join("; ")
}

fn names(sources: &[Source], option: &str) -> Option<String> {
    let variables = sources.iter().filter(|(own, _)| *own == option);
    let variables: Vec<&str> = variables.map(|(_, variable)| *variable).collect();
    let (last, first) = variables.split_last()?;
    Some(match first {
        [] => (*last).to_owned(),
        first => format!("{} and {last}", first.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_an_option_are_listed() {
        let sources = [("broker", "A"), ("broker", "B"), ("broker", "C"), ("user", "D")];
        assert_eq!(names(&sources, "broker").as_deref(), Some("A, B and C"));
        assert_eq!(names(&sources, "user").as_deref(), Some("D"));
        assert_eq!(names(&sources, "tls-ca"), None);
        assert_eq!(setting_name("tls-ca"), "--tls-ca");
        assert_eq!(listed(&sources), "--broker by A, B and C; --user by D");
    }
}
