//! Connection settings from the variables of Azure IoT Operations.

use std::ffi::OsStr;

use statestore_client::{Options, SettingsError};

use super::Login;
use super::variables::variable;

/// Options and the variables that stand for them, for error messages.
const VARIABLES: [(&str, &str); 5] = [
    ("tls-ca", "AIO_TLS_CA_FILE"),
    ("tls-cert", "AIO_TLS_CERT_FILE"),
    ("tls-key", "AIO_TLS_KEY_FILE"),
    ("tls-key-password-file", "AIO_TLS_KEY_PASSWORD_FILE"),
    (TOKEN_FILE, "AIO_SAT_FILE"),
];

/// The option with a service account token.
pub(crate) const TOKEN_FILE: &str = "service-account-token-file";

/// Returns the URL of the broker, and completes a login, if the variables are set. Options of the
/// command line have precedence.
pub(super) fn resolve(login: &mut Login) -> Result<Option<String>, SettingsError> {
    let Some(options) = Options::from_env_if_set()? else { return Ok(None) };
    let url = url(&options);
    if login.client_id.is_none() && variable(OsStr::new("AIO_MQTT_CLIENT_ID")).is_some() {
        login.client_id = Some(options.client_id).filter(|client_id| !client_id.is_empty());
    }
    login.keep_alive = Some(options.keep_alive);
    // A login is replaced as a whole: the password of one user must not be sent for another.
    let has_login = login.user.is_some() || login.password.is_some();
    if !has_login && login.service_account_token_file.is_none() {
        if let Some((user, password)) = options.credentials {
            (login.user, login.password) = (Some(user), Some(password));
        }
        fill(
            &mut login.service_account_token_file,
            options.service_account_token,
            TOKEN_FILE,
            &mut login.variables,
        );
    }
    let tls = options.tls.unwrap_or_default();
    let variables = &mut login.variables;
    fill(&mut login.tls_ca, tls.ca_file, "tls-ca", variables);
    if login.tls_cert.is_none() && login.tls_key.is_none() {
        let (cert, key) = tls.identity.unzip();
        fill(&mut login.tls_cert, cert, "tls-cert", variables);
        fill(&mut login.tls_key, key, "tls-key", variables);
        let password = tls.key_password_file;
        fill(&mut login.tls_key_password_file, password, "tls-key-password-file", variables);
    }
    Ok(Some(url))
}

/// Sets an option that is not set, and records the variable that its value is from.
fn fill<T>(
    to: &mut Option<T>,
    from: Option<T>,
    option: &str,
    variables: &mut Vec<(&'static str, &'static str)>,
) {
    if to.is_none() && from.is_some() {
        *to = from;
        variables.extend(VARIABLES.iter().find(|(name, _)| *name == option));
    }
}

fn url(options: &Options) -> String {
    let scheme = if options.tls.is_some() { "mqtts" } else { "mqtt" };
    let (host, port) = (&options.host, options.port);
    match host.contains(':') && !host.starts_with('[') {
        true => format!("{scheme}://[{host}]:{port}"),
        false => format!("{scheme}://{host}:{port}"),
    }
}
