//! What `serve` is told by a file: the same names as its options, and of less weight than those and than the environment.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};

/// Bytes of a file; all options take a few kilobytes.
const FILE_MAX: u64 = 1 << 20;

/// Options that a file cannot have.
const NOT_IN_FILES: [&str; 3] = ["help", "config", "print_config"];

/// Options whose values are nobody's to read.
const SECRET: [&str; 2] = ["password", "etcd_password"];

/// A command line with what a file says for `serve`.
pub(super) struct Told {
    pub(super) line: Vec<OsString>,
    /// The options that the file decides, by their ids.
    pub(super) by_file: BTreeSet<String>,
}

/// Puts what the file of `serve --config` says behind its options, unless the command line or the environment says otherwise.
///
/// # Errors
/// What is wrong with the file, for people.
pub(super) fn expand(all: &Command, line: Vec<OsString>) -> Result<Told, String> {
    let mut told = Told { line, by_file: BTreeSet::new() };
    // Without the file it may lack what an option requires, so mistakes wait.
    let Ok(matches) = all.clone().ignore_errors(true).try_get_matches_from(&told.line) else {
        return Ok(told);
    };
    let Some(("serve", given)) = matches.subcommand() else { return Ok(told) };
    let Some(path) = given.try_get_one::<PathBuf>("config").ok().flatten() else {
        return Ok(told);
    };
    let text = read(path).map_err(|error| format!("--config {}: {error}", path.display()))?;
    let serve = all.find_subcommand("serve").ok_or_else(|| "there is no serve".to_owned())?;
    let options = options(serve, &text)
        .map_err(|(at, error)| format!("--config {}:{at}: {error}", path.display()))?;
    for Setting { arg, values } in options {
        let id = arg.get_id().as_str();
        let is_said = matches!(
            given.value_source(id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        );
        if !is_said {
            told.by_file.insert(id.to_owned());
            told.line.extend(values);
        }
    }
    Ok(told)
}

fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_MAX {
        return Err(std::io::Error::other("it is larger than a megabyte"));
    }
    Ok(text)
}

/// An option, and how it is said on a command line.
struct Setting<'a> {
    arg: &'a Arg,
    values: Vec<OsString>,
}

/// What a file says; or in which line it cannot be read, and why.
fn options<'a>(serve: &'a Command, text: &str) -> Result<Vec<Setting<'a>>, (usize, String)> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        (line_at(text, at), error.message().to_owned())
    })?;
    let mut settings = Vec::new();
    for (name, value) in &table {
        let wrong = |why: String| (line_of(text, name), why);
        let arg = serve.get_arguments().find(|arg| {
            arg.get_long() == Some(name) && !NOT_IN_FILES.contains(&arg.get_id().as_str())
        });
        let arg = arg.ok_or_else(|| {
            wrong(format!("{name} is no option of serve: write them as `serve --help` names them, without the --"))
        })?;
        let takes_value = arg.get_action().takes_values();
        let values = match value {
            toml::Value::Boolean(is) if !takes_value => {
                if *is {
                    vec![format!("--{name}")]
                } else {
                    Vec::new()
                }
            }
            _ if !takes_value => return Err(wrong(format!("{name} is true or false"))),
            toml::Value::Array(values) if is_many(arg) => {
                let texts = values.iter().map(text_of).collect::<Option<Vec<_>>>();
                let texts = texts.ok_or_else(|| {
                    wrong(format!("{name} is a list of texts, as [\"a\", \"b\"]"))
                })?;
                texts.iter().map(|text| format!("--{name}={text}")).collect()
            }
            value => {
                let text = text_of(value).ok_or_else(|| {
                    wrong(format!("{name} is a text or a number, as on the command line"))
                })?;
                vec![format!("--{name}={text}")]
            }
        };
        // What is false or empty is not said at all.
        if !values.is_empty() {
            settings.push(Setting { arg, values: values.into_iter().map(Into::into).collect() });
        }
    }
    Ok(settings)
}

fn is_many(arg: &Arg) -> bool {
    matches!(arg.get_action(), clap::ArgAction::Append)
}

fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

fn line_at(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Where this name is given a value.
fn line_of(text: &str, name: &str) -> usize {
    let gives = |line: &str| {
        let rest = line.trim_start().trim_start_matches(['"', '\'', '[']).strip_prefix(name);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
    };
    text.lines().position(gives).map_or(1, |line| line + 1)
}

/// What `serve` would do, as a file for `--config`, with where each value is from. No passwords.
pub(super) fn print(serve: &Command, given: &ArgMatches, by_file: &BTreeSet<String>) -> String {
    let mut text =
        "# What `statestore serve` is told, and by whom. A file like this is for its --config.\n"
            .to_owned();
    for arg in serve.get_arguments() {
        let id = arg.get_id().as_str();
        let Some(name) = arg.get_long().filter(|_| !NOT_IN_FILES.contains(&id)) else { continue };
        let values: Vec<String> = match given.try_get_raw(id) {
            Ok(Some(raw)) => raw.map(|value| value.to_string_lossy().into_owned()).collect(),
            _ => Vec::new(),
        };
        let origin = match given.value_source(id) {
            Some(ValueSource::CommandLine) if by_file.contains(id) => "the file",
            Some(ValueSource::CommandLine) => "the command line",
            Some(ValueSource::EnvVariable) => "the environment",
            _ => "by default",
        };
        // Said, it might ask for something that it goes with.
        let off = if origin == "by default" { "# " } else { "" };
        if SECRET.contains(&id) {
            if !values.is_empty() {
                text += &format!("# {name} is set, and not shown # {origin}\n");
            }
            continue;
        }
        let value = if !arg.get_action().takes_values() {
            given.get_flag(id).to_string()
        } else if is_many(arg) {
            let all: Vec<String> = values.iter().map(|value| quoted(value)).collect();
            format!("[{}]", all.join(", "))
        } else {
            match values.first() {
                Some(value) if value.parse::<i64>().is_ok_and(|n| n.to_string() == *value) => {
                    value.clone()
                }
                Some(value) => quoted(value),
                None => continue,
            }
        };
        text += &format!("{off}{name} = {value} # {origin}\n");
    }
    text
}

/// As TOML writes a text: as JSON does, and without what moves a terminal.
fn quoted(text: &str) -> String {
    crate::escape::printable(&serde_json::Value::from(text).to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Args;

    /// A file of a test's own.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("statestore-config-{}-{name}.toml", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn built() -> Command {
        let mut all = Args::command();
        all.build();
        all
    }

    fn printed(options: &[&str], file: &str, text: &str) -> Result<String, String> {
        let file = Scratch::new(file, text);
        let mut line: Vec<OsString> = vec!["statestore".into(), "serve".into(), "--config".into()];
        line.push(file.0.clone().into());
        line.extend(options.iter().map(OsString::from));
        let all = built();
        let told = expand(&all, line)?;
        let matches =
            all.clone().try_get_matches_from(&told.line).map_err(|error| error.to_string())?;
        let (_, given) = matches.subcommand().unwrap();
        Ok(print(all.find_subcommand("serve").unwrap(), given, &told.by_file))
    }

    #[test]
    fn a_file_counts_for_more_than_nothing_and_less_than_an_option() {
        let file = "# ours\nmax-keys = 7\nlisten = \"127.0.0.1:0\"\nallow-all = true\nstrict-verbs = false\n\
                    durable-keys = [\"a*\", \"b\"]\ndata = \"/d\"\n";
        let text = printed(&["--listen", "[::1]:9"], "weight", file).unwrap();
        for line in [
            "max-keys = 7 # the file",
            "listen = \"[::1]:9\" # the command line",
            "allow-all = true # the file",
            "# strict-verbs = false # by default",
            "durable-keys = [\"a*\", \"b\"] # the file",
            "# max-bytes = 1073741824 # by default",
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }

    /// What is printed for nothing at all, with each option that can go with the others, says the same again.
    #[test]
    fn what_is_printed_can_be_read_again() {
        let first = printed(
            &["--node-id", "a \"b\" \u{7f}\u{1f980}", "--max-clock-drift", "7s"],
            "again-1",
            "",
        )
        .unwrap();
        let second = printed(&[], "again-2", &first).unwrap();
        let values = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(|line| line.rsplit_once(" # ").unwrap().0.to_owned()).collect()
        };
        assert_eq!(values(&first), values(&second));
        assert!(second.contains("max-clock-drift = \"7s\" # the file"), "{second}");
    }

    #[test]
    fn no_password_is_printed() {
        let file = "broker = [\"mqtt://h\"]\nuser = \"ann\"\npassword = \"secret\"\n";
        let text = printed(&[], "secret", file).unwrap();
        assert!(text.contains("# password is set, and not shown # the file"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        for (name, text, told) in [
            ("syntax", "max-keys = 1\nlisten = \n", ":2: "),
            ("unknown", "max-keys = 1\n\nmax-kays = 1\n", ":3: max-kays is no option of serve"),
            ("config", "config = \"x\"\n", ":1: config is no option"),
            ("help", "help = true\n", ":1: help is no option"),
            ("flag", "a = 1\nallow-all = 1\n", ":1: a is no option"),
            ("flag-2", "allow-all = \"yes\"\n", ":1: allow-all is true or false"),
            ("list", "durable-keys = [1.5]\n", ":1: durable-keys is a list of texts"),
            ("table", "[listen]\nport = 1\n", ":1: listen is a text or a number"),
            ("float", "max-keys = 1.5\n", ":1: max-keys is a text or a number"),
            ("twice", "max-keys = 1\nmax-keys = 2\n", ":2: "),
        ] {
            let error = printed(&[], name, text).unwrap_err();
            assert!(error.contains(told), "{name}: {error}");
        }
        let error = printed(&[], "value", "max-keys = \"many\"\n").unwrap_err();
        assert!(error.contains("--max-keys"), "{error}");
        let mut line: Vec<OsString> = vec!["statestore".into(), "serve".into()];
        line.extend(["--config".into(), "/no/such/file".into()]);
        assert!(expand(&built(), line).is_err_and(|error| error.contains("/no/such/file: ")));
    }

    /// So that a container, a unit and a person say the same thing by the same name.
    #[test]
    fn every_option_of_serve_has_its_variable() {
        let all = built();
        for arg in all.find_subcommand("serve").unwrap().get_arguments() {
            let Some(name) = arg.get_long().filter(|name| !["help", "print-config"].contains(name))
            else {
                continue;
            };
            let wanted = format!("STATESTORE_{}", name.replace('-', "_").to_uppercase());
            let has = arg.get_env().map(|name| name.to_string_lossy().into_owned());
            assert_eq!(has.as_deref(), Some(&*wanted), "--{name}");
        }
    }
}
