//! Errors of clap: about values of environment variables, whose names are added, and about values
//! that must not be shown.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

/// Adds the name of the variable to an error of a value that is from the environment.
pub(super) fn name_variable(mut error: Error, command: &Command, line: &[OsString]) -> Error {
    let command = subcommand(command, line);
    let variables = command.get_arguments().filter(|option| !is_given(option, line));
    let mut variables = variables.filter_map(|option| Some((option, option.get_env()?)));
    if error.kind() == ErrorKind::InvalidUtf8 {
        let is_invalid = |value: OsString| value.to_str().is_none();
        let found = variables.find(|(_, name)| variable(name).is_some_and(is_invalid));
        return match found {
            Some((_, name)) => {
                let text = format!("{}: the value is not UTF-8\n", name.display());
                Error::raw(ErrorKind::InvalidUtf8, text)
            }
            None => error,
        };
    }
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => option.clone(),
        _ => return error,
    };
    let is_it =
        |(found, name): &(&Arg, &OsStr)| found.to_string() == option && variable(name).is_some();
    if let Some((_, name)) = variables.find(is_it) {
        let text = format!("{option} of the variable {}", name.display());
        error.insert(ContextKind::InvalidArg, ContextValue::String(text));
    }
    error
}

/// Returns an error if a variable has almost the name of one that the command reads; `serve` checks
/// its own. Others with the same prefix exist: Kubernetes sets `STATESTORE_PORT` for a service
/// `statestore`.
pub(super) fn misspelt(command: &Command, line: &[OsString]) -> Option<Error> {
    const DISTANCE_MAX: usize = 2;
    let known = subcommand(command, line).get_arguments().filter_map(|option| option.get_env());
    let known = known.filter_map(OsStr::to_str);
    let known: Vec<&str> = known.filter(|name| !name.starts_with("STATESTORE_SERVE_")).collect();
    std::env::vars_os().find_map(|(name, _)| {
        let name = name.into_string().ok().filter(|name| name.starts_with("STATESTORE_"))?;
        let near = known.iter().map(|known| (strsim::osa_distance(&name, known), known)).min()?;
        matches!(near.0, 1..=DISTANCE_MAX).then(|| {
            let text = format!("{name}: unknown variable; the name of the setting is {}\n", near.1);
            Error::raw(ErrorKind::ValueValidation, text)
        })
    })
}

/// Removes an unexpected argument that may be a password or a value from an error.
pub(super) fn without_stray_value(mut error: Error, command: &Command, line: &[OsString]) -> Error {
    let command = subcommand(command, line);
    let takes_value = command.get_arguments().any(|argument| argument.get_id() == "value");
    let has_user = line.iter().any(|word| word.to_str().is_some_and(|word| word.contains("-user")));
    if !takes_value && !has_user && command.get_name() != "passwd" {
        return error;
    }
    let is_value = |context: &ContextValue| match context {
        ContextValue::String(argument) => !argument.starts_with('-'),
        _ => false,
    };
    if error.kind() == ErrorKind::UnknownArgument
        && error.get(ContextKind::InvalidArg).is_some_and(is_value)
    {
        let hidden = ContextValue::String("(hidden)".to_owned());
        error.insert(ContextKind::InvalidArg, hidden);
    }
    error
}

/// Replaces the usage in an error. That of clap contains the options that were given, as if they
/// were required.
pub(super) fn with_full_usage(mut error: Error, command: &Command, line: &[OsString]) -> Error {
    if error.get(ContextKind::Usage).is_some() {
        let usage = subcommand(command, line).clone().render_usage();
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

#[expect(clippy::disallowed_methods, reason = "clap or the library has read the same variable")]
pub(super) fn variable(name: &OsStr) -> Option<OsString> {
    std::env::var_os(name)
}

/// The subcommand of a command line.
fn subcommand<'a>(mut command: &'a Command, line: &[OsString]) -> &'a Command {
    for word in line.iter().skip(1) {
        if let Some(inner) = command.find_subcommand(word) {
            command = inner;
        }
    }
    command
}

/// Returns whether a command line contains an option, which then has precedence.
fn is_given(option: &Arg, line: &[OsString]) -> bool {
    let names = option.get_long_and_visible_aliases().unwrap_or_default();
    let is_long = |word: &str| {
        let word = word.strip_prefix("--").and_then(|word| word.split('=').next());
        word.is_some_and(|word| names.contains(&word))
    };
    let is_short = |word: &str| {
        let short = option.get_short();
        word.starts_with('-')
            && !word.starts_with("--")
            && short.is_some_and(|short| word.contains(short))
    };
    let mut words = line.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    words.any(|word| is_long(word) || is_short(word))
}
