//! The variables that the SDKs of Azure IoT Operations read.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::args::{DevEnv, DevFormat, DevLogin};
use crate::dev::certificates::{AUTHORITY, CLIENT};
use crate::dev::directory::{Directory, find};
use crate::dev::tokens::TOKEN;
use crate::escape::path_on_one_line;
use crate::failure::Failure;

/// Client id of the SDK repository's `.env`.
pub(super) const CLIENT_ID: (&str, &str) = ("AIO_MQTT_CLIENT_ID", "sdk-sample-app");

/// File of the variables of all logins. `dev` removes it before it opens its ports.
pub(super) const ENV: &str = "env.json";

/// Variables of logins and addresses. Those that a login does not use must not be set, since the
/// SDKs reject some combinations.
pub(super) const ALL: [&str; 10] = [
    "AIO_BROKER_HOSTNAME",
    "AIO_BROKER_TCP_PORT",
    "AIO_MQTT_USE_TLS",
    "AIO_MQTT_USERNAME",
    "AIO_MQTT_PASSWORD_FILE",
    "AIO_SAT_FILE",
    "AIO_TLS_CA_FILE",
    "AIO_TLS_CERT_FILE",
    "AIO_TLS_KEY_FILE",
    "AIO_TLS_KEY_PASSWORD_FILE",
];

const LOGINS: [(DevLogin, &str); 3] =
    [(DevLogin::Token, "token"), (DevLogin::Certificate, "certificate"), (DevLogin::None, "none")];

/// Where clients connect.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) host: String,
    /// `None` if the listener is not open.
    pub(super) plain_port: Option<u16>,
    pub(super) certificate_port: u16,
    pub(super) token_port: u16,
    /// `None` if the listener is not open.
    pub(super) websocket_port: Option<u16>,
}

/// Names and values.
pub(super) type Variables = Vec<(String, String)>;

impl Endpoint {
    /// Returns the variables of a login, without the client id. `None` if its listener is not open.
    pub(super) fn variables(&self, login: DevLogin, directory: &Directory) -> Option<Variables> {
        let file = |name: &str| directory.path(name).display().to_string();
        let (port, files) = match login {
            DevLogin::None => (self.plain_port?, vec![]),
            DevLogin::Certificate => (
                self.certificate_port,
                vec![
                    ("AIO_TLS_CA_FILE", file(AUTHORITY.certificate)),
                    ("AIO_TLS_CERT_FILE", file(CLIENT.certificate)),
                    ("AIO_TLS_KEY_FILE", file(CLIENT.key)),
                ],
            ),
            DevLogin::Token => (
                self.token_port,
                vec![
                    ("AIO_TLS_CA_FILE", file(AUTHORITY.certificate)),
                    ("AIO_SAT_FILE", file(TOKEN)),
                ],
            ),
        };
        let first = [
            ("AIO_BROKER_HOSTNAME", self.host.clone()),
            ("AIO_BROKER_TCP_PORT", port.to_string()),
            ("AIO_MQTT_USE_TLS", (login != DevLogin::None).to_string()),
        ];
        let all = first.into_iter().chain(files);
        Some(all.map(|(name, value)| (name.to_owned(), value)).collect())
    }
}

/// Writes `env`, `env.ps1` and `env.json`. The first two are for the login with a token.
pub(super) fn write(endpoint: &Endpoint, directory: &mut Directory) -> Result<(), Failure> {
    let mut logins = Map::new();
    for (login, name) in LOGINS {
        if let Some(mut variables) = endpoint.variables(login, directory) {
            variables.push((CLIENT_ID.0.to_owned(), CLIENT_ID.1.to_owned()));
            let pairs = variables.iter().map(|(name, value)| (name.clone(), json!(value)));
            logins.insert(name.to_owned(), Value::Object(pairs.collect()));
            if login == DevLogin::Token {
                directory.write("env", &script(&variables, DevFormat::Sh))?;
                directory.write("env.ps1", &script(&variables, DevFormat::Ps1))?;
            }
        }
    }
    directory.write(ENV, &format!("{:#}\n", Value::Object(logins)))
}

/// Returns the text of `dev env`.
pub(super) fn print(args: &DevEnv) -> Result<String, Failure> {
    let path = &args.directory.dir;
    let text = find(path, ENV)?;
    let invalid = || {
        Failure::bad_input(format_args!(
            "{}: not the file that `statestore dev` wrote; start it again",
            path_on_one_line(&path.join(ENV))
        ))
    };
    let logins: Map<String, Value> = serde_json::from_str(&text).map_err(|_| invalid())?;
    let name = LOGINS.iter().find(|(login, _)| *login == args.login).map_or("", |(_, name)| name);
    let Some(variables) = logins.get(name) else {
        return Err(Failure::bad_input(format_args!(
            "--login {name}: with --listen-all the listener without login is not open; use token or \
             certificate"
        )));
    };
    let variables = variables.as_object().ok_or_else(invalid)?;
    if args.format == DevFormat::Json {
        return Ok(format!("{:#}\n", Value::Object(variables.clone())));
    }
    let pairs: Option<Variables> = variables
        .iter()
        .map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())))
        .collect();
    let pairs = pairs.ok_or_else(invalid)?;
    match pairs.iter().all(|(name, _)| is_name(name)) {
        true => Ok(script(&pairs, args.format)),
        false => Err(invalid()),
    }
}

/// Returns whether a shell accepts a name.
fn is_name(name: &str) -> bool {
    name.starts_with("AIO_") && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
}

/// The variables as a script, which removes those that are not used.
fn script(variables: &[(String, String)], format: DevFormat) -> String {
    let is_sh = format != DevFormat::Ps1;
    let unused = ALL.iter().filter(|name| !variables.iter().any(|(used, _)| used == *name));
    let unset = unused.map(|name| match is_sh {
        true => format!("unset {name}\n"),
        false => format!("Remove-Item Env:{name} -ErrorAction SilentlyContinue\n"),
    });
    let set = variables.iter().map(|(name, value)| match is_sh {
        true => format!("export {name}='{}'\n", value.replace('\'', "'\\''")),
        false => format!("$env:{name} = '{}'\n", value.replace('\'', "''")),
    });
    unset.chain(set).collect()
}

/// Returns a path as it is shown: relative to the current directory if it is inside of it.
pub(super) fn shown(path: &Path) -> String {
    let current = std::env::current_dir().ok();
    let inside = current.and_then(|current| path.strip_prefix(current).ok().map(Path::to_owned));
    path_on_one_line(inside.as_deref().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_quote_values_and_remove_unused_variables() {
        let variables = [("AIO_SAT_FILE".to_owned(), "/it's here/$HOME".to_owned())];
        let sh = script(&variables, DevFormat::Sh);
        assert!(sh.contains("export AIO_SAT_FILE='/it'\\''s here/$HOME'\n"), "{sh}");
        assert!(sh.contains("unset AIO_TLS_CERT_FILE\n") && !sh.contains("unset AIO_SAT"), "{sh}");
        let ps1 = script(&variables, DevFormat::Ps1);
        assert!(ps1.contains("$env:AIO_SAT_FILE = '/it''s here/$HOME'\n"), "{ps1}");
        assert!(ps1.contains("Remove-Item Env:AIO_MQTT_USERNAME "), "{ps1}");
    }
}
