//! The configuration of a [`Server`](crate::Server): one struct, from a file, from the environment
//! and from a command line.
//!
//! Each setting has one name, unique across all sections. In a file it is a key of its section, on
//! the command line an option with two hyphens, and in the environment a variable with a prefix.

#[cfg(feature = "clap")]
mod args;
mod check;
mod client_tls;
mod connections;
pub(crate) mod expiry;
mod external;
mod mode;
mod secret;
mod store;
mod time;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use statestore_tokio::diagnostics::text::without_value;
use toml::de::DeTable;

#[cfg(feature = "clap")]
pub use args::Origin;
pub use client_tls::ClientTlsFiles;
pub use connections::{BrokerLimits, CertificateUser, Listen, ListenTls, Login};
pub(crate) use external::CLIENT_ID;
pub use mode::Mode;
pub use secret::Secret;
pub use store::{
    CaptureSettings, Dialect, Durable, Etcd, ExternalBroker, Http, PolicySettings, Reads,
    ReloadSettings, Storage, StoreLimitSettings, StoreSettings,
};

/// Maximum size of a configuration file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The configuration of a [`Server`](crate::Server).
///
/// The default is a store in memory, in an embedded broker that only this machine can reach.
///
/// ```
/// use statestore_server::config::Config;
///
/// let config = Config::from_toml(
///     r#"
///     [listen]
///     listen = ["127.0.0.1:0"]
///
///     [limits]
///     max-keys = 1000
///     "#,
/// )?;
/// assert_eq!(config.limits.max_keys, 1_000);
/// # Ok::<(), statestore_server::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Config {
    /// Addresses of the embedded broker
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Listeners"))]
    pub listen: Listen,
    /// Certificates of the embedded broker
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "TLS of listeners"))]
    pub tls: ListenTls,
    /// Logins at the embedded broker
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Login"))]
    pub login: Login,
    /// Authorization
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Authorization"))]
    pub policy: PolicySettings,
    /// Durability
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Storage"))]
    pub storage: Storage,
    /// Limits of the store
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Limits of the store"))]
    pub limits: StoreLimitSettings,
    /// Limits of the embedded broker
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Limits of the broker"))]
    pub broker_limits: BrokerLimits,
    /// Rules of the store
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Store"))]
    pub store: StoreSettings,
    /// Monitoring
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Monitoring"))]
    pub http: Http,
    /// Capture for replay
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Monitoring"))]
    pub capture: CaptureSettings,
    /// Reload
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Monitoring"))]
    pub reload: ReloadSettings,
    /// External broker
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "External broker"))]
    pub broker: ExternalBroker,
    /// Cluster
    #[cfg_attr(feature = "clap", command(flatten, next_help_heading = "Cluster"))]
    pub etcd: Etcd,
}

/// Error of a configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The text is not TOML, or has an unknown key or a value of the wrong type.
    #[error("{}{line}: {message}", origin(path.as_deref()))]
    Syntax {
        /// The file, if there is one.
        path: Option<PathBuf>,
        /// Line number, from 1.
        line: usize,
        /// The cause, on one line, without the text of the file.
        message: String,
    },
    /// A value is out of range or malformed, or a setting requires or excludes another one.
    #[error("{key}: {reason}")]
    Setting {
        /// Name of the setting.
        key: String,
        /// The cause, and what to do.
        reason: String,
    },
}

fn origin(path: Option<&Path>) -> String {
    path.map_or_else(|| "line ".to_owned(), |path| format!("{}:", path.display()))
}

impl Config {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// [`ConfigError`] if the file cannot be read, is larger than 1 MiB, is not TOML, or has an
    /// unknown key or a value of the wrong type. [`check`](Self::check) finds contradictions.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        Ok(ConfigFile::read(path)?.config)
    }

    /// Parses the text of a TOML file.
    ///
    /// # Errors
    /// Like [`from_file`](Self::from_file).
    pub fn from_toml(text: &str) -> Result<Self, ConfigError> {
        toml::from_str(text).map_err(|error| ConfigError::syntax(None, text, &error))
    }
}

impl ConfigError {
    fn syntax(path: Option<&Path>, text: &str, error: &toml::de::Error) -> Self {
        let start = error.span().map_or(0, |span| span.start);
        // Any value may be a password in a wrong place. So may a name, unless it looks like one of
        // a setting.
        let message = match (error.message(), unknown_name(error.message())) {
            (unknown, Some(name)) if is_like_a_setting(name) => unknown.into(),
            // In the word of TOML instead of that of serde.
            (other, _) => without_value(other).replace("a sequence", "a list: [\"…\"]"),
        };
        let message = message.lines().collect::<Vec<_>>().join(" ");
        Self::Syntax { path: path.map(Into::into), line: line_at(text, start), message }
    }

    pub(crate) fn setting(key: &str, reason: impl Into<String>) -> Self {
        Self::Setting { key: key.to_owned(), reason: reason.into() }
    }

    /// Returns the cause without the name of the setting, if the error belongs to one.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Setting { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Returns the name of the setting, if the error belongs to one.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Setting { key, .. } => Some(key),
            _ => None,
        }
    }
}

/// A configuration file: its settings, and the line of each key.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
    config: Config,
    lines: BTreeMap<String, usize>,
}

impl ConfigFile {
    /// Reads a TOML file.
    ///
    /// # Errors
    /// Like [`Config::from_file`].
    pub fn read(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = read(path).map_err(|source| ConfigError::Io { path: path.into(), source })?;
        let syntax = |error| ConfigError::syntax(Some(path), &text, &error);
        let config = toml::from_str(&text).map_err(syntax)?;
        let lines = lines(&text).map_err(syntax)?;
        Ok(Self { path: path.into(), config, lines })
    }

    /// Returns the settings of the file, with defaults for all others.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the line of a setting, from 1. `None` if the file does not contain it.
    #[must_use]
    pub fn line(&self, key: &str) -> Option<usize> {
        self.lines.get(key).copied()
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if u64::try_from(text.len()).is_ok_and(|len| len > FILE_BYTES_MAX) {
        return Err(io::Error::other("the file is larger than 1 MiB"));
    }
    Ok(text)
}

/// Returns the line of each key in a section. Keys are unique across sections.
fn lines(text: &str) -> Result<BTreeMap<String, usize>, toml::de::Error> {
    let table = DeTable::parse(text)?;
    let sections = table.get_ref().values().filter_map(|section| section.get_ref().as_table());
    let keys = sections.flat_map(|section| section.keys());
    Ok(keys.map(|key| (key.get_ref().to_string(), line_at(text, key.span().start))).collect())
}

/// Returns the name in a message of serde about an unknown field.
fn unknown_name(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// Names of settings have only lower-case letters and hyphens.
fn is_like_a_setting(name: &str) -> bool {
    name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

fn line_at(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests;
