//! Settings of the store: its rules, its limits, its durability and its diagnosis.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::secret::shown;
use super::{Secret, time};

/// Authorization.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PolicySettings {
    /// Policy, a `BrokerAuthorization`; see `statestore policy`
    ///
    /// JSON or YAML. All operations that it does not allow are refused
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub policy: Option<PathBuf>,
    /// With --broker and --policy: trust unverified client ids
    ///
    /// Only safe if the access rules of the broker keep clients from using other client ids
    #[cfg_attr(feature = "clap", arg(long))]
    pub trust_claimed_ids: bool,
}

/// Rules of the store that operators may choose.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct StoreSettings {
    /// Node id in versions
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub node_id: String,
    /// Format of responses
    ///
    /// `auto` responds to each client in the format of its requests
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_name = "NAME"))]
    pub dialect: Dialect,
    /// Reject verbs and options in lower case
    #[cfg_attr(feature = "clap", arg(long))]
    pub case_sensitive_verbs: bool,
    /// Add details to refusals: fence, limit, clock skew
    ///
    /// A client that may write a key then receives the fence of the key
    #[cfg_attr(feature = "clap", arg(long))]
    pub explain_refusals: bool,
    /// JSON file with keys and values that are set at the start, unless they exist
    ///
    /// An object, a list of objects, or the output of `statestore export`. The file is read at each
    /// start. With a data directory, these keys may become durable, and then keep their values
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub seed: Option<PathBuf>,
    /// Expiry of values that are set without one, by pattern, such as `sensors/*=10m`
    ///
    /// The first pattern that matches a key applies
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN=TIME"))]
    pub default_expiry: Vec<String>,
    /// Longest expiry of values, by pattern, such as `sensors/*=1d`; also for values without one
    ///
    /// The first pattern that matches a key applies. Leases of locks keep their expiry
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN=TIME"))]
    pub max_expiry: Vec<String>,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            node_id: "StateStore".to_owned(),
            dialect: Dialect::Auto,
            case_sensitive_verbs: false,
            explain_refusals: false,
            seed: None,
            default_expiry: Vec::new(),
            max_expiry: Vec::new(),
        }
    }
}

/// Wire format of responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// The format of each request
    #[default]
    Auto,
    /// The format of the public protocol specification
    Spec,
    /// The format of the deployed clients
    Deployed,
}

/// Limits of the store.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct StoreLimitSettings {
    /// Number of keys
    #[cfg_attr(feature = "clap", arg(long, value_name = "N"))]
    pub max_keys: usize,
    /// Bytes of all keys and values
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub max_bytes: usize,
    /// Maximum share of one user, in percent
    ///
    /// The share counts for keys, bytes and registrations. Without a user, it is the share of an
    /// address, or on this machine that of a client id. Ignored with --broker, where client ids are
    /// not verified
    #[cfg_attr(feature = "clap", arg(long, value_name = "PERCENT"))]
    pub client_quota_percent: u8,
    /// Maximum time that a client is ahead, 1s to 60s
    ///
    /// Requests that are further ahead are refused. Other requests move the versions of the store
    /// ahead
    #[cfg_attr(feature = "clap", arg(long, value_parser = time::parse, value_name = "TIME"))]
    #[serde(with = "time")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub max_clock_drift: Duration,
}

impl Default for StoreLimitSettings {
    fn default() -> Self {
        Self {
            max_keys: 1_000_000,
            max_bytes: 1 << 30,
            client_quota_percent: 50,
            max_clock_drift: Duration::from_secs(60),
        }
    }
}

/// Durability.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Storage {
    /// Directory for durable keys; created if absent
    ///
    /// Without it, all keys are in memory only
    #[cfg_attr(feature = "clap", arg(long, value_name = "DIR"))]
    pub data_dir: Option<PathBuf>,
    /// Keys that survive a restart
    ///
    /// The default with --data-dir is `requested`, with --etcd `all`. Responses to durable writes
    /// are sent when the write is on disk
    #[cfg_attr(feature = "clap", arg(long, value_enum))]
    pub durable: Option<Durable>,
    /// Pattern of keys that are always durable, as for `statestore keys`
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATTERN"))]
    pub durable_keys: Vec<String>,
    /// Free bytes that the disk of --data-dir must have [default: 67108864]
    ///
    /// The space to remove all durable keys is added. With less, durable writes fail with the quota
    /// error; deletions succeed
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub min_free_space: Option<u64>,
}

/// Keys that survive a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Durable {
    /// Those that clients persist with the property `aio-persistence`
    #[default]
    Requested,
    /// All
    All,
}

/// Several stores over one etcd: one leads, the others are standbys.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Etcd {
    /// URL of an etcd member
    ///
    /// Stores with the same etcd and prefix are standbys of each other
    #[cfg_attr(feature = "clap", arg(long, value_name = "URL", value_delimiter = ','))]
    pub etcd: Vec<String>,
    /// Prefix of all keys in etcd
    #[cfg_attr(feature = "clap", arg(long, value_name = "PREFIX"))]
    pub etcd_prefix: String,
    /// User name for etcd
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub etcd_user: Option<String>,
    /// Password for etcd; prefer the environment variable
    ///
    /// Other users of this machine can read command lines
    #[cfg_attr(feature = "clap", arg(long, hide_env_values = true, value_name = "PASSWORD"))]
    pub etcd_password: Option<Secret>,
    /// CAs to trust for https URLs, a PEM file
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub etcd_tls_ca: Option<PathBuf>,
    /// Certificate chain of this client of etcd, a PEM file
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub etcd_tls_cert: Option<PathBuf>,
    /// Private key of this client of etcd, a PEM file
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub etcd_tls_key: Option<PathBuf>,
    /// Unique name of this store in the cluster
    ///
    /// The default is the name of the machine and the id of the process
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub etcd_name: Option<String>,
    /// Leader lease in whole seconds, from 2s to 600s
    ///
    /// A failover takes this long after a crash
    #[cfg_attr(feature = "clap", arg(long, value_parser = time::parse, value_name = "TIME"))]
    #[serde(with = "time")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub etcd_lease: Duration,
    /// Read consistency
    #[cfg_attr(feature = "clap", arg(long, value_enum, value_name = "MODE"))]
    pub etcd_reads: Reads,
    /// Address to which standbys redirect clients while this store leads
    ///
    /// The default is the first listener
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOST:PORT"))]
    pub advertise: Option<String>,
}

impl Default for Etcd {
    fn default() -> Self {
        Self {
            etcd: Vec::new(),
            etcd_prefix: "/statestore/".to_owned(),
            etcd_user: None,
            etcd_password: None,
            etcd_tls_ca: None,
            etcd_tls_cert: None,
            etcd_tls_key: None,
            etcd_name: None,
            etcd_lease: Duration::from_secs(5),
            etcd_reads: Reads::Strict,
            advertise: None,
        }
    }
}

impl fmt::Debug for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&shown(self), f)
    }
}

/// Consistency of reads in a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Reads {
    /// A read waits until etcd confirms that this store leads. No response is out of date
    #[default]
    Strict,
    /// A read does not wait while this store has the lease. A process that was suspended just
    /// before it responds may send an old value
    Lease,
}

/// An external broker, instead of the embedded one.
#[derive(Clone, PartialEq, Eq, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ExternalBroker {
    /// Use this external broker: mqtt://HOST:PORT or mqtts://HOST:PORT
    ///
    /// Further URLs are tried in order
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "URL"))]
    pub broker: Vec<String>,
    /// URL of an HTTP proxy between the store and the broker
    ///
    /// The form is `http://USER:PASSWORD@HOST:PORT`. User name and password are optional and
    /// percent-encoded. The default port is 80
    #[cfg_attr(feature = "clap", arg(long, hide_env_values = true, value_name = "URL"))]
    pub proxy: Option<Secret>,
    /// MQTT client id of the store
    ///
    /// The default is `statestore`
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub client_id: Option<String>,
    /// User name for the broker
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub user: Option<String>,
    /// Password for the broker; prefer the environment variable
    ///
    /// Other users of this machine can read command lines
    #[cfg_attr(feature = "clap", arg(long, hide_env_values = true, value_name = "PASSWORD"))]
    pub password: Option<Secret>,
    /// Log in as a Kubernetes service account, by the token in this file
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub service_account_token_file: Option<PathBuf>,
    /// CAs to trust with mqtts://, a PEM file
    ///
    /// The default is the CAs of the system
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub tls_ca: Option<PathBuf>,
    /// Certificate chain of the store as a client, a PEM file
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the store as a client, a PEM file
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub tls_key: Option<PathBuf>,
    /// File with the password of an encrypted private key (PKCS #8)
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub tls_key_password_file: Option<PathBuf>,
    /// Detect disconnected clients by the log topic of mosquitto
    #[cfg_attr(feature = "clap", arg(long))]
    pub presence_from_mosquitto_log: bool,
    /// Start even if another store responds at the broker
    ///
    /// A store with the same client id then ends; its keys are lost unless they are durable. Stop a
    /// store with another client id first, since both would execute each request
    #[cfg_attr(feature = "clap", arg(long))]
    pub take_over: bool,
}

impl fmt::Debug for ExternalBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&shown(self), f)
    }
}

/// Monitoring over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Http {
    /// Address for HTTP without login: /metrics, /healthz and /readyz
    #[cfg_attr(feature = "clap", arg(long, value_name = "HOST:PORT"))]
    pub metrics_listen: Option<String>,
    /// Accepted host names in URLs of this server
    ///
    /// IP addresses and localhost are always accepted. Requests with another name are rejected,
    /// since a web page could have sent them
    #[cfg_attr(feature = "clap", arg(long, value_delimiter = ',', value_name = "NAME"))]
    pub http_allowed_hosts: Vec<String>,
    /// Serve /traffic too: the busiest clients and keys, for `top`
    ///
    /// The page contains their names. Requires --metrics-listen
    #[cfg_attr(feature = "clap", arg(long))]
    pub traffic: bool,
}

/// A capture for replay.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct CaptureSettings {
    /// Capture inputs and outputs in this new file, for `replay`
    ///
    /// The file contains keys, values and topics. Only its owner can read it
    #[cfg_attr(feature = "clap", arg(long, value_name = "PATH"))]
    pub capture: Option<PathBuf>,
    /// Replace captured values by others of the same length
    ///
    /// The replacement uses a random key that is not stored. Keys, topics and client ids are not
    /// replaced. Requires --capture
    #[cfg_attr(feature = "clap", arg(long))]
    pub capture_redacted: bool,
    /// Maximum bytes of the capture
    ///
    /// At the limit, the capture ends and the store continues
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES"))]
    pub capture_max_bytes: u64,
}

impl Default for CaptureSettings {
    fn default() -> Self {
        Self { capture: None, capture_redacted: false, capture_max_bytes: 1 << 30 }
    }
}

/// Reload of files.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ReloadSettings {
    /// Interval of checks for changed files, which are then reloaded
    ///
    /// The files are users, certificates, keys and policies. SIGHUP also reloads them
    #[cfg_attr(feature = "clap", arg(long, value_parser = time::parse, value_name = "TIME"))]
    #[serde(with = "time::option")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub watch_files: Option<Duration>,
}
