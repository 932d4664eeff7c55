//! Names of connection settings in error messages: their options, or the variables that set them.

use std::sync::OnceLock;

/// An option without `--`, and a variable that sets it, since the command line does not.
pub(crate) type Source = (&'static str, &'static str);

/// Name of the option for a service account token.
pub(crate) const TOKEN_FILE: &str = "service-account-token-file";

/// Variable of the password of a client.
pub(crate) const PASSWORD_VARIABLE: &str = "STATESTORE_PASSWORD";

/// The settings from variables. A process has one command line, so they are recorded once.
static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();

/// Records the settings from variables. Only the first call has an effect.
pub(crate) fn record(sources: Vec<Source>) {
    let _ = SOURCES.set(sources);
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
