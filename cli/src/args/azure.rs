//! Connection settings from the variables of Azure IoT Operations.

use std::ffi::OsStr;

use statestore_client::{Options, SettingsError};

use super::login::Login;
use super::variables::variable;
use crate::sources::{Source, TOKEN_FILE};

/// Options and the variables that set them.
const VARIABLES: [Source; 10] = [
    ("broker", "AIO_BROKER_HOSTNAME"),
    ("broker", "AIO_BROKER_TCP_PORT"),
    ("broker", "AIO_MQTT_USE_TLS"),
    ("client-id", "AIO_MQTT_CLIENT_ID"),
    ("user", "AIO_MQTT_USERNAME"),
    (TOKEN_FILE, "AIO_SAT_FILE"),
    ("tls-ca", "AIO_TLS_CA_FILE"),
    ("tls-cert", "AIO_TLS_CERT_FILE"),
    ("tls-key", "AIO_TLS_KEY_FILE"),
    ("tls-key-password-file", "AIO_TLS_KEY_PASSWORD_FILE"),
];

/// URL of a broker, and the settings that are from variables.
pub(super) struct Resolved {
    pub(super) url: String,
    pub(super) sources: Vec<Source>,
}

/// Returns the URL of the broker, and completes a login, if the variables are set. Options of the
/// command line have precedence.
pub(super) fn resolve(login: &mut Login) -> Result<Option<Resolved>, SettingsError> {
    let Some(options) = Options::from_env_if_set()? else { return Ok(None) };
    let mut resolved = Resolved { url: url(&options), sources: Vec::new() };
    resolved.add_source("broker");
    login.keep_alive = Some(options.keep_alive);
    // A login is replaced as a whole: the password of one user must not be sent for another.
    let has_login = login.user.is_some() || login.password.is_some();
    if !has_login && login.service_account_token_file.is_none() {
        if let Some((user, password)) = options.credentials {
            (login.user, login.password) = (Some(user), Some(password));
            resolved.add_source("user");
        }
        let token = options.service_account_token;
        resolved.fill(&mut login.service_account_token_file, token, TOKEN_FILE);
    }
    if login.client_id.is_none() && variable(OsStr::new("AIO_MQTT_CLIENT_ID")).is_some() {
        let client_id = Some(options.client_id).filter(|client_id| !client_id.is_empty());
        let client_id = client_id.map(|client_id| unique(&client_id, login));
        resolved.fill(&mut login.client_id, client_id, "client-id");
    }
    let tls = options.tls.unwrap_or_default();
    resolved.fill(&mut login.tls_ca, tls.ca_file, "tls-ca");
    if login.tls_cert.is_none() && login.tls_key.is_none() {
        let (cert, key) = tls.identity.unzip();
        resolved.fill(&mut login.tls_cert, cert, "tls-cert");
        resolved.fill(&mut login.tls_key, key, "tls-key");
        let password = tls.key_password_file;
        resolved.fill(&mut login.tls_key_password_file, password, "tls-key-password-file");
    }
    Ok(Some(resolved))
}

impl Resolved {
    /// Records the variables of an option that are set.
    fn add_source(&mut self, option: &str) {
        let variables = VARIABLES.into_iter().filter(|(name, _)| *name == option);
        self.sources.extend(variables.filter(|(_, name)| variable(OsStr::new(name)).is_some()));
    }

    /// Sets an option that is not set, and records its variables.
    fn fill<T>(&mut self, to: &mut Option<T>, from: Option<T>, option: &str) {
        if to.is_none() && from.is_some() {
            *to = from;
            self.add_source(option);
        }
    }
}

/// Returns a new client id for this run. The application has the client id of the variable, and a
/// broker disconnects a client when another one connects with its client id. The separator is the
/// one by which `serve` derives the client ids of a user or of a service account.
fn unique(client_id: &str, login: &Login) -> String {
    let separator = if login.service_account_token_file.is_some() { '_' } else { '-' };
    format!("{client_id}{separator}{:08x}", fastrand::u32(..))
}

fn url(options: &Options) -> String {
    let scheme = if options.tls.is_some() { "mqtts" } else { "mqtt" };
    let (host, port) = (&options.host, options.port);
    match host.contains(':') && !host.starts_with('[') {
        true => format!("{scheme}://[{host}]:{port}"),
        false => format!("{scheme}://{host}:{port}"),
    }
}
