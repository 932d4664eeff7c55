//! Options from the connection settings of Azure IoT Operations: environment variables and the
//! connection string of its .NET SDK.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::options::{Options, Tls, read_secret};
use super::url::random_id;

/// Default port of the deployed SDKs.
const DEFAULT_PORT: u16 = 8883;
/// Session expiry of the deployed SDKs when only Clean Start is set.
const SDK_SESSION: Duration = Duration::from_secs(3_600);
/// Largest number of changed bytes for which an unknown name counts as misspelt.
const MISSPELT_MAX: usize = 2;
/// A variable that no SDK reads. Ignoring it would log in without a password.
const UNSUPPORTED_PASSWORD: &str = "AIO_MQTT_PASSWORD";

/// Error of invalid connection settings. It names the setting and never contains its value.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// A required setting is missing.
    #[error("{0} is not set")]
    Missing(&'static str),
    /// The value of a setting is invalid.
    #[error("{name} is invalid: expected {expected}")]
    Invalid {
        /// Name of the setting.
        name: &'static str,
        /// The accepted values.
        expected: &'static str,
    },
    /// Two settings exclude each other.
    #[error("{0} and {1} are both set: remove one of them")]
    Conflict(&'static str, &'static str),
    /// A setting requires another one.
    #[error("{name} is set without {missing}: set both or neither")]
    Incomplete {
        /// Name of the setting.
        name: &'static str,
        /// Name of the missing setting.
        missing: &'static str,
    },
    /// A name that differs little from a known one.
    #[error("unknown setting {name}: did you mean {nearest}?")]
    Misspelt {
        /// The unknown name.
        name: String,
        /// The known name.
        nearest: &'static str,
    },
    /// A part of a connection string is not a known `Name=Value`. The first part is number 1. The
    /// part itself may belong to a password.
    #[error("part {0} of the connection string is not a known Name=Value")]
    Property(usize),
    /// A setting of the SDK that this package does not support.
    #[error("{name} is not supported: {instead}")]
    Unsupported {
        /// Name of the setting.
        name: &'static str,
        /// The alternative.
        instead: &'static str,
    },
    /// The file with the password cannot be read.
    #[error("{name}: cannot read {}: {source}", path.display())]
    File {
        /// Name of the setting.
        name: &'static str,
        /// The path.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
}

/// A setting, by its names in the environment and in a connection string.
#[derive(PartialEq, Eq)]
struct Setting {
    variable: Option<&'static str>,
    property: &'static str,
}

impl Setting {
    const fn new(variable: &'static str, property: &'static str) -> Self {
        Self { variable: Some(variable), property }
    }

    const fn only_property(property: &'static str) -> Self {
        Self { variable: None, property }
    }
}

const HOST: Setting = Setting::new("AIO_BROKER_HOSTNAME", "HostName");
const PORT: Setting = Setting::new("AIO_BROKER_TCP_PORT", "TcpPort");
const CLIENT_ID: Setting = Setting::new("AIO_MQTT_CLIENT_ID", "ClientId");
const USE_TLS: Setting = Setting::new("AIO_MQTT_USE_TLS", "UseTls");
const CLEAN_START: Setting = Setting::new("AIO_MQTT_CLEAN_START", "CleanStart");
const KEEP_ALIVE: Setting = Setting::new("AIO_MQTT_KEEP_ALIVE", "KeepAlive");
const SESSION_EXPIRY: Setting = Setting::new("AIO_MQTT_SESSION_EXPIRY", "SessionExpiry");
const USER_NAME: Setting = Setting::new("AIO_MQTT_USERNAME", "Username");
const PASSWORD: Setting = Setting::only_property("Password");
const PASSWORD_FILE: Setting = Setting::new("AIO_MQTT_PASSWORD_FILE", "PasswordFile");
const CA_FILE: Setting = Setting::new("AIO_TLS_CA_FILE", "CaFile");
const CERT_FILE: Setting = Setting::new("AIO_TLS_CERT_FILE", "CertFile");
const KEY_FILE: Setting = Setting::new("AIO_TLS_KEY_FILE", "KeyFile");
const KEY_PASSWORD_FILE: Setting = Setting::new("AIO_TLS_KEY_PASSWORD_FILE", "KeyPasswordFile");
const KEY_PASSWORD: Setting = Setting::only_property("KeyFilePassword");
const TOKEN_FILE: Setting = Setting::new("AIO_SAT_FILE", "SatAuthFile");
const CONNECT_TIMEOUT: Setting = Setting::only_property("ConnectionTimeout");

const ALL: [&Setting; 17] = [
    &HOST,
    &PORT,
    &CLIENT_ID,
    &USE_TLS,
    &CLEAN_START,
    &KEEP_ALIVE,
    &SESSION_EXPIRY,
    &USER_NAME,
    &PASSWORD,
    &PASSWORD_FILE,
    &CA_FILE,
    &CERT_FILE,
    &KEY_FILE,
    &KEY_PASSWORD_FILE,
    &KEY_PASSWORD,
    &TOKEN_FILE,
    &CONNECT_TIMEOUT,
];

impl Options {
    /// Options from the environment variables that the SDKs of Azure IoT Operations read, so that
    /// an application runs with the manifest that it has.
    ///
    /// | Variable | Meaning | If unset |
    /// |---|---|---|
    /// | `AIO_BROKER_HOSTNAME` | host of the broker | an error |
    /// | `AIO_BROKER_TCP_PORT` | port | 8883 |
    /// | `AIO_MQTT_USE_TLS` | `true` or `false` | `true` |
    /// | `AIO_MQTT_CLIENT_ID` | client id | random |
    /// | `AIO_MQTT_KEEP_ALIVE` | seconds, [from 5 to 65,535](Self::keep_alive) | 60 |
    /// | `AIO_MQTT_SESSION_EXPIRY` | seconds that the broker keeps the session; 0 for none | none |
    /// | `AIO_MQTT_CLEAN_START` | [`true` or `false`](#sessions) | |
    /// | `AIO_MQTT_USERNAME` | user name | |
    /// | `AIO_MQTT_PASSWORD_FILE` | file with the password; a line end after it is ignored | |
    /// | `AIO_SAT_FILE` | file with a [service account token](Self::service_account_token) | |
    /// | `AIO_TLS_CA_FILE` | CA certificates to trust, PEM | those of the system |
    /// | `AIO_TLS_CERT_FILE`, `AIO_TLS_KEY_FILE` | client certificate and its key, PEM | |
    /// | `AIO_TLS_KEY_PASSWORD_FILE` | file with the password of the key | |
    ///
    /// An empty variable counts as unset. The password is read now; all other files when the link
    /// connects. With `AIO_MQTT_USE_TLS=false`, the variables `AIO_TLS_…` are checked for
    /// completeness and otherwise ignored: their files are not opened.
    ///
    /// # Sessions
    /// With `AIO_MQTT_CLEAN_START=true`, the session ends with the connection, and
    /// `AIO_MQTT_SESSION_EXPIRY` is ignored. With `false`, the broker keeps the session for
    /// `AIO_MQTT_SESSION_EXPIRY`, or for an hour if that is unset. Without both, the session ends
    /// with the connection, which differs from the SDKs: a client of this package subscribes again
    /// after a lost connection, so it needs no session. A session requires `AIO_MQTT_CLIENT_ID`.
    ///
    /// ```no_run
    /// use statestore_tokio::Options;
    ///
    /// let options = Options::from_env()?;
    /// # Ok::<(), statestore_tokio::SettingsError>(())
    /// ```
    ///
    /// # Errors
    /// [`SettingsError`] if a value is invalid, two settings exclude each other, one lacks its
    /// counterpart, or a variable differs from one of these in at most two characters. Other
    /// unknown variables are ignored, except `AIO_MQTT_PASSWORD`.
    pub fn from_env() -> Result<Self, SettingsError> {
        Settings::from_variables(std::env::vars_os())?.options()
    }

    /// As [`from_env`](Self::from_env), but `None` if none of these variables is set. For programs
    /// that have other sources of options.
    ///
    /// # Errors
    /// [`SettingsError`], as `from_env`. A misspelt variable is an error even if no other is set.
    pub fn from_env_if_set() -> Result<Option<Self>, SettingsError> {
        Settings::from_variables(std::env::vars_os())?.options_if_set()
    }

    /// Options from a connection string of the .NET SDK of Azure IoT Operations: properties
    /// `Name=Value`, separated by semicolons.
    ///
    /// The properties are `HostName`, `TcpPort`, `UseTls`, `ClientId`, `CleanStart`, `KeepAlive`,
    /// `SessionExpiry`, `ConnectionTimeout`, `Username`, `Password`, `PasswordFile`, `CaFile`,
    /// `CertFile`, `KeyFile`, `KeyPasswordFile` and `SatAuthFile`, in any case. They mean what the
    /// variables of [`from_env`](Self::from_env) mean. Times are seconds, or ISO 8601 durations
    /// such as `PT1M30S`. A value cannot contain a semicolon; put such a password in a file.
    ///
    /// ```
    /// use statestore_tokio::Options;
    ///
    /// let text = "HostName=aio-broker;TcpPort=1883;UseTls=false;ClientId=lamp-7";
    /// let options = Options::from_connection_string(text)?;
    /// assert_eq!((&*options.host, options.port), ("aio-broker", 1883));
    /// assert!(options.tls.is_none());
    /// # Ok::<(), statestore_tokio::SettingsError>(())
    /// ```
    ///
    /// # Errors
    /// [`SettingsError`]. An unknown property is an error too.
    pub fn from_connection_string(text: &str) -> Result<Self, SettingsError> {
        let mut settings = Settings { values: Vec::new(), is_text: true };
        for (number, part) in (1..).zip(text.split(';')) {
            if part.trim().is_empty() {
                continue;
            }
            let (name, value) = part.split_once('=').ok_or(SettingsError::Property(number))?;
            let known = |setting: &&Setting| setting.property.eq_ignore_ascii_case(name.trim());
            let setting = ALL.into_iter().find(known).ok_or(SettingsError::Property(number))?;
            settings.add(setting, value.trim().to_owned());
        }
        settings.options()
    }
}

/// The settings of one source.
struct Settings {
    values: Vec<(&'static Setting, String)>,
    /// Set if they are from a connection string.
    is_text: bool,
}

impl Settings {
    fn from_variables(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, SettingsError> {
        let mut settings = Self { values: Vec::new(), is_text: false };
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with("AIO_")) else {
                continue;
            };
            let known = ALL.into_iter().find(|setting| setting.variable == Some(name));
            let Some(setting) = known else {
                if value.is_empty() {
                    continue;
                }
                if name == UNSUPPORTED_PASSWORD {
                    let instead =
                        "write the password to a file, and name it with AIO_MQTT_PASSWORD_FILE";
                    return Err(SettingsError::Unsupported { name: UNSUPPORTED_PASSWORD, instead });
                }
                match nearest(name) {
                    Some(nearest) => {
                        return Err(SettingsError::Misspelt { name: name.to_owned(), nearest });
                    }
                    None => continue,
                }
            };
            let expected = "UTF-8";
            let value = value.into_string().map_err(|_| settings.invalid(setting, expected))?;
            settings.add(setting, value);
        }
        Ok(settings)
    }

    /// Options, or `None` without a setting.
    fn options_if_set(&self) -> Result<Option<Options>, SettingsError> {
        if self.values.is_empty() { Ok(None) } else { self.options().map(Some) }
    }

    /// Adds a value. The last one counts; an empty one counts as none.
    fn add(&mut self, setting: &'static Setting, value: String) {
        self.values.retain(|(other, _)| *other != setting);
        if !value.is_empty() {
            self.values.push((setting, value));
        }
    }

    fn get(&self, setting: &Setting) -> Option<&str> {
        let (_, value) = self.values.iter().find(|(other, _)| *other == setting)?;
        Some(value)
    }

    /// The name of a setting in this source.
    fn name(&self, setting: &Setting) -> &'static str {
        match setting.variable {
            Some(variable) if !self.is_text => variable,
            _ => setting.property,
        }
    }

    fn invalid(&self, setting: &Setting, expected: &'static str) -> SettingsError {
        SettingsError::Invalid { name: self.name(setting), expected }
    }

    fn bool(&self, setting: &Setting) -> Result<Option<bool>, SettingsError> {
        match self.get(setting) {
            None => Ok(None),
            Some(value) if value.eq_ignore_ascii_case("true") => Ok(Some(true)),
            Some(value) if value.eq_ignore_ascii_case("false") => Ok(Some(false)),
            Some(_) => Err(self.invalid(setting, "true or false")),
        }
    }

    fn time(&self, setting: &Setting) -> Result<Option<Duration>, SettingsError> {
        let Some(value) = self.get(setting) else { return Ok(None) };
        let seconds = value.parse().ok().map(|seconds: u32| Duration::from_secs(seconds.into()));
        match seconds.or_else(|| self.is_text.then(|| iso_duration(value)).flatten()) {
            Some(time) => Ok(Some(time)),
            None if self.is_text => Err(self.invalid(setting, "seconds, or a time such as PT60S")),
            None => Err(self.invalid(setting, "seconds, from 0 to 4294967295")),
        }
    }

    /// Returns an error if `setting` is set without `other`.
    fn require(&self, setting: &Setting, other: &Setting) -> Result<(), SettingsError> {
        if self.get(setting).is_some() && self.get(other).is_none() {
            let (name, missing) = (self.name(setting), self.name(other));
            return Err(SettingsError::Incomplete { name, missing });
        }
        Ok(())
    }

    fn options(&self) -> Result<Options, SettingsError> {
        let host = self.get(&HOST).ok_or_else(|| SettingsError::Missing(self.name(&HOST)))?;
        let port = match self.get(&PORT).map(str::parse) {
            None => DEFAULT_PORT,
            Some(Ok(port @ 1..)) => port,
            Some(_) => return Err(self.invalid(&PORT, "a port from 1 to 65535")),
        };
        let session = match (self.bool(&CLEAN_START)?, self.time(&SESSION_EXPIRY)?) {
            // Not the default of a store, which is a session of minutes.
            (Some(true), _) => Some(Duration::ZERO),
            (None, None) => None,
            (_, Some(expiry)) => Some(expiry),
            (Some(false), None) => Some(SDK_SESSION),
        };
        let client_id = match self.get(&CLIENT_ID) {
            Some(client_id) => client_id.to_owned(),
            // The broker would keep the session of each run.
            None if session.is_some_and(|session| !session.is_zero()) => {
                let expiry = self.get(&SESSION_EXPIRY).map(|_| &SESSION_EXPIRY);
                let name = self.name(expiry.unwrap_or(&CLEAN_START));
                let missing = self.name(&CLIENT_ID);
                return Err(SettingsError::Incomplete { name, missing });
            }
            None => random_id(),
        };
        let mut options = Options::new(client_id, host, port);
        options.session_expiry = session;
        if let Some(time) = self.time(&KEEP_ALIVE)? {
            options = options.keep_alive(time);
        }
        if let Some(time) = self.time(&CONNECT_TIMEOUT)? {
            options = options.connect_timeout(time);
        }
        if let Some((user, password)) = self.credentials()? {
            options = options.credentials(user, password);
        }
        if let Some(file) = self.get(&TOKEN_FILE) {
            options = options.service_account_token(file);
        }
        let tls = self.tls()?;
        if self.bool(&USE_TLS)? != Some(false) {
            options = options.tls(tls);
        }
        Ok(options)
    }

    /// User name and password.
    fn credentials(&self) -> Result<Option<(String, String)>, SettingsError> {
        let logins = [&PASSWORD, &PASSWORD_FILE, &TOKEN_FILE];
        let mut logins = logins.into_iter().filter(|setting| self.get(setting).is_some());
        if let (Some(first), Some(second)) = (logins.next(), logins.next()) {
            return Err(SettingsError::Conflict(self.name(first), self.name(second)));
        }
        let password = match (self.get(&PASSWORD), self.get(&PASSWORD_FILE)) {
            (Some(password), _) => Some(password.to_owned()),
            (None, Some(path)) => {
                let password = read_secret(path.as_ref());
                Some(password.map_err(|source| SettingsError::File {
                    name: self.name(&PASSWORD_FILE),
                    path: path.into(),
                    source,
                })?)
            }
            (None, None) => None,
        };
        let user = self.get(&USER_NAME).map(str::to_owned);
        let is_set = user.is_some() || password.is_some();
        Ok(is_set.then(|| (user.unwrap_or_default(), password.unwrap_or_default())))
    }

    fn tls(&self) -> Result<Tls, SettingsError> {
        self.require(&CERT_FILE, &KEY_FILE)?;
        self.require(&KEY_FILE, &CERT_FILE)?;
        self.require(&KEY_PASSWORD_FILE, &KEY_FILE)?;
        if self.get(&KEY_PASSWORD).is_some() {
            let instead = "write the password to a file, and name it with KeyPasswordFile";
            return Err(SettingsError::Unsupported { name: KEY_PASSWORD.property, instead });
        }
        let mut tls = Tls::default();
        if let Some(file) = self.get(&CA_FILE) {
            tls = tls.ca_file(file);
        }
        if let (Some(chain), Some(key)) = (self.get(&CERT_FILE), self.get(&KEY_FILE)) {
            tls = tls.identity(chain, key);
        }
        if let Some(file) = self.get(&KEY_PASSWORD_FILE) {
            tls = tls.key_password_file(file);
        }
        Ok(tls)
    }
}

/// An ISO 8601 duration of days, hours, minutes and whole seconds.
fn iso_duration(text: &str) -> Option<Duration> {
    let rest = text.strip_prefix('P')?;
    let (days, clock) = rest.split_once('T').unwrap_or((rest, ""));
    let is_empty = days.is_empty() && clock.is_empty();
    if is_empty || (rest.contains('T') && clock.is_empty()) {
        return None;
    }
    let seconds = sum(days, &[('D', 86_400)])?;
    let seconds = seconds.checked_add(sum(clock, &[('H', 3_600), ('M', 60), ('S', 1)])?)?;
    Some(Duration::from_secs(seconds))
}

/// The sum of numbers with units, each unit at most once and in this order.
fn sum(mut text: &str, units: &[(char, u64)]) -> Option<u64> {
    let mut total = 0_u64;
    for (unit, seconds) in units {
        if let Some((number, rest)) = text.split_once(*unit) {
            let number: u32 = number.parse().ok()?;
            total = total.checked_add(u64::from(number) * seconds)?;
            text = rest;
        }
    }
    text.is_empty().then_some(total)
}

/// The variable for which this name is a misspelling.
fn nearest(name: &str) -> Option<&'static str> {
    // Longer names would cost more and cannot be misspellings.
    if name.len() > 64 {
        return None;
    }
    let variables = ALL.into_iter().filter_map(|setting| setting.variable);
    let distances = variables.map(|variable| (distance(name, variable), variable));
    let (distance, variable) = distances.min()?;
    (distance <= MISSPELT_MAX).then_some(variable)
}

/// The number of bytes to insert, remove or replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for (row, left) in a.bytes().enumerate() {
        let mut current = vec![row + 1];
        for (column, right) in b.bytes().enumerate() {
            let replaced = previous[column] + usize::from(left != right);
            current.push(replaced.min(previous[column + 1] + 1).min(current[column] + 1));
        }
        previous = current;
    }
    previous[b.len()]
}

#[cfg(test)]
mod tests;
