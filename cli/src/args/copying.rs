//! Options of `mirror` and `bridge`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ArgGroup;

use super::{Common, Format, Login, TimeLimit, duration};
use crate::sources::Endpoint;

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Copies the keys that match the pattern, then every change, until it is stopped. Each write carries
the version of the source as fencing token, so the target refuses an older copy of a key. A deletion
removes that protection. Deletions are copied while the mirror runs; keys that were deleted before
that stay in the target. Expiries are not copied: a key that expires in the source is deleted.

It can be stopped and started again at any time: it then writes all keys again. A connection that is
lost is opened again. Requests to either store that fail are repeated. At most 1,000 keys are
mirrored; for a single copy of more, use `statestore export` and `statestore import`.

At the start it writes, reads and deletes one key that begins with statestore-mirror-, to check that
both stores differ. Do not mirror the same keys in both directions: each copy would be copied back.

Prints the number of copies, deletions and refused keys, and the lag: the time from the version of
the source to the response of the target, by the clocks of both machines.")]
pub(crate) struct Mirror {
    /// URL of the source, `mqtt://HOST[:PORT]` or `mqtts://HOST[:PORT]`
    pub(crate) from: String,
    /// URL of the target
    pub(crate) to: String,
    /// Pattern of the keys, for example 'rooms/*'; see `statestore keys`
    #[arg(long, value_name = "PATTERN")]
    pub(crate) keys: String,
    /// Exit once all keys are copied
    #[arg(long)]
    pub(crate) once: bool,
    /// Interval of the reports while keys change
    #[arg(long, default_value = "10s", value_parser = duration, value_name = "TIME")]
    pub(crate) report: Duration,
    /// Login at the source.
    #[command(flatten)]
    pub(crate) login: Login,
    #[command(flatten)]
    pub(crate) to_login: TargetLogin,
    #[command(flatten)]
    pub(crate) time_limit: TimeLimit,
    #[command(flatten)]
    pub(crate) format: Format,
}

/// Login at the target of a mirror.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct TargetLogin {
    /// HTTP proxy between this client and the target
    ///
    /// As `--proxy`. Environment: `STATESTORE_TO_PROXY`.
    #[arg(
        long,
        env = "STATESTORE_TO_PROXY",
        hide_env = true,
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Login at the target",
        hide_short_help = true
    )]
    to_proxy: Option<String>,
    /// MQTT client id at the target
    #[arg(long, value_name = "ID", help_heading = "Login at the target")]
    to_client_id: Option<String>,
    /// User name at the target
    #[arg(long, value_name = "NAME", help_heading = "Login at the target")]
    to_user: Option<String>,
    /// Password at the target; prefer the environment variable `STATESTORE_TO_PASSWORD`
    #[arg(
        long,
        env = "STATESTORE_TO_PASSWORD",
        hide_env = true,
        hide_env_values = true,
        help_heading = "Login at the target"
    )]
    to_password: Option<String>,
    /// Service account token at the target, in this file
    #[arg(long, value_name = "PATH", help_heading = "Login at the target")]
    to_service_account_token_file: Option<PathBuf>,
    /// CA certificates that are trusted at the target, PEM
    #[arg(long, value_name = "PATH", help_heading = "Login at the target")]
    to_tls_ca: Option<PathBuf>,
    /// Certificate chain of this client at the target, PEM
    #[arg(long, value_name = "PATH", help_heading = "Login at the target")]
    to_tls_cert: Option<PathBuf>,
    /// Private key of this client at the target, PEM
    #[arg(long, value_name = "PATH", help_heading = "Login at the target")]
    to_tls_key: Option<PathBuf>,
    /// File with the password of an encrypted private key (PKCS #8) at the target
    #[arg(long, value_name = "PATH", help_heading = "Login at the target", hide_short_help = true)]
    to_tls_key_password_file: Option<PathBuf>,
}

impl TargetLogin {
    /// The same as the options of other commands.
    pub(crate) fn login(&self) -> Login {
        Login {
            proxy: self.to_proxy.clone(),
            client_id: self.to_client_id.clone(),
            user: self.to_user.clone(),
            password: self.to_password.clone(),
            service_account_token_file: self.to_service_account_token_file.clone(),
            tls_ca: self.to_tls_ca.clone(),
            tls_cert: self.to_tls_cert.clone(),
            tls_key: self.to_tls_key.clone(),
            tls_key_password_file: self.to_tls_key_password_file.clone(),
            keep_alive: None,
            endpoint: Endpoint::Target,
        }
    }
}

#[derive(Debug, clap::Args)]
#[command(
    group = ArgGroup::new("direction").args(["topic", "keys"]).required(true).multiple(true)
)]
#[command(after_long_help = "\
With --topic and --key, subscribes to the filter, and sets a key for each message, until it is
stopped. An empty message deletes the key. With --keys and --publish, publishes the present values
of the keys, and then every change. A deletion is an empty message. With all four, does both: a key
that was set from a topic is not published to the same topic.

The template of the key is a text with placeholders: {topic} is the whole topic, and {1}, {2} and so
on are its levels. `--topic 'sensors/+/state' --key 'state/{2}'` sets the key state/7 for the topic
sensors/7/state. In --publish, {key} is the whole key, and {1} is its first level.

Without --value, the value is the payload. With it, the payload is JSON, and the value is the part
at this pointer (RFC 6901), for example /data/temperature; a text without its quotes, anything else
as JSON. A message without such a part is skipped.

A message is acknowledged when its key is set, so messages are redelivered after an interruption if
the broker keeps the session. Then their keys are set again. Otherwise, writes of one key keep the
order of the messages. Messages of the protocol of the store are skipped, and so are those that
another bridge has published, unless --accept-bridged is given.

Changes are published at QoS 1, in order for each key, and again after a reconnect if they were not
acknowledged. At most 1,000 keys are watched; others are skipped, with a message. A new key is found
within ten seconds.

Further connections, with the suffixes -messages and -changes of the client id, receive the messages
and publish the changes.")]
pub(crate) struct Bridge {
    /// Topic filter, for example 'sensors/+/state'
    #[arg(long, value_name = "FILTER", requires = "key")]
    pub(crate) topic: Option<String>,
    /// Template of the key, for example 'state/{2}'
    #[arg(long, value_name = "TEMPLATE", requires = "topic")]
    pub(crate) key: Option<String>,
    /// JSON pointer to the value in the payload
    #[arg(long, value_name = "POINTER", requires = "topic")]
    pub(crate) value: Option<String>,
    /// Time to live of each value, for example 10m
    #[arg(
        long,
        visible_alias = "ttl",
        value_parser = duration,
        value_name = "TIME",
        requires = "topic"
    )]
    pub(crate) expires: Option<Duration>,
    /// Set keys also from messages that another bridge has published
    #[arg(long, requires = "topic")]
    pub(crate) accept_bridged: bool,
    /// Pattern of keys whose changes are published, for example 'state/*'
    #[arg(long, value_name = "PATTERN", requires = "publish")]
    pub(crate) keys: Option<String>,
    /// Template of the topic, for example 'devices/{2}/state'
    #[arg(long, value_name = "TEMPLATE", requires = "keys")]
    pub(crate) publish: Option<String>,
    /// Publish retained messages; a deletion removes the retained message
    #[arg(long, requires = "keys")]
    pub(crate) retain: bool,
    /// Allow a pattern that matches every key
    #[arg(long, requires = "keys")]
    pub(crate) all_keys: bool,
    /// Exit after this number of messages, in each direction
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    #[command(flatten)]
    pub(crate) common: Common,
}
