//! The options of `serve`.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::{Etcd, Kept, Listen, Login, Record, drift};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
SIGTERM and SIGINT end it. SIGHUP has it read the --password-file, the --certificate-attributes, the
--service-account-keys and the --policy again: whoever may not do any more what it might is disconnected, and a file that is of no use, or has nobody in it, changes nothing. A certificate that has expired or
is not valid yet is refused at the start. After four wrong passwords for a name an address waits before it may try that name
again, up to a minute, and after twenty for whatever names up to four seconds; who has logged in within the last hour does not.

Standard error has a line for each refused request, with the rule that refused it, refused connection, message, subscription and will, failed handshake, client that is
disconnected, write that has set the versions ahead of the clock here, and lack of file descriptors: ten of a kind in ten seconds, and then how many more there were. STATESTORE_LOG=error says less, info more, and
debug all of it. Nobody has to read it.")]
pub(crate) struct Serve {
    /// Read options from this TOML file, by their names without the --, as in `max-keys = 1000`; what the command line or the
    /// environment says counts for more
    #[arg(long, env = "STATESTORE_CONFIG", value_name = "PATH")]
    pub(crate) config: Option<PathBuf>,
    /// Print all options and where they are from, as such a file, and do nothing else
    #[arg(long)]
    pub(crate) print_config: bool,
    #[command(flatten)]
    pub(crate) listen: Listen,
    /// Serve beside this broker instead: mqtt://HOST:PORT, or mqtts://HOST:PORT with TLS; several, as for a client, where they
    /// stand by for one another
    #[arg(
        long,
        env = "STATESTORE_BROKER",
        hide_env_values = true,
        value_delimiter = ',',
        value_name = "URL"
    )]
    pub(crate) broker: Vec<String>,
    #[command(flatten)]
    pub(crate) login: Login,
    /// Allow only what is in this file, a `BrokerAuthorization` in JSON or YAML: see `statestore policy`. SIGHUP reads it again
    #[arg(long, env = "STATESTORE_POLICY", value_name = "PATH")]
    pub(crate) policy: Option<PathBuf>,
    /// With --broker and --policy: take each request for one of the client that it claims to be from
    #[arg(long, env = "STATESTORE_TRUST_CLAIMED_IDS", requires = "broker", requires = "policy")]
    pub(crate) trust_claimed_ids: bool,
    #[command(flatten)]
    pub(crate) kept: Kept,
    #[command(flatten)]
    pub(crate) etcd: Etcd,
    /// Node id in the versions that the store issues
    #[arg(long, env = "STATESTORE_NODE_ID", default_value = "StateStore", value_name = "ID")]
    pub(crate) node_id: String,
    /// Keys stored at most
    #[arg(long, env = "STATESTORE_MAX_KEYS", default_value_t = 1_000_000, value_name = "N")]
    pub(crate) max_keys: usize,
    /// Bytes of all keys and values at most
    #[arg(long, env = "STATESTORE_MAX_BYTES", default_value_t = 1 << 30, value_name = "N")]
    pub(crate) max_bytes: usize,
    /// What one client may hold of all keys, bytes and registrations, in percent; beside a broker, where clients are who
    /// they claim to be, it means nothing
    #[arg(long, env = "STATESTORE_CLIENT_SHARE", default_value_t = 50, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) client_share: u8,
    /// How far a client's clock may be ahead of the one here, 1s to 60s: a request that is further ahead is refused. One that is
    /// not sets the versions of all keys ahead by as much
    #[arg(long, env = "STATESTORE_MAX_CLOCK_DRIFT", default_value = "60s", value_parser = drift, value_name = "TIME")]
    pub(crate) max_clock_drift: Duration,
    /// The wire forms to answer in; auto answers each requester in its own
    #[arg(long, env = "STATESTORE_DIALECT", value_enum, default_value_t)]
    pub(crate) dialect: Dialect,
    /// Refuse verbs and options in lower case
    #[arg(long, env = "STATESTORE_STRICT_VERBS")]
    pub(crate) strict_verbs: bool,
    /// Say in each refusal why: which fence, which limit, how far which clock is ahead. `statestore set` and the like show
    /// that. It tells whoever may write a key the token that fences it
    #[arg(long, env = "STATESTORE_EXPLAIN", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) explain: bool,
    /// Serve numbers here over plain HTTP, as Prometheus reads them: /metrics, /healthz and /readyz. Whoever can connect can read
    /// them, so choose an address that only those can reach who may
    #[arg(long, env = "STATESTORE_METRICS", value_name = "HOST:PORT")]
    pub(crate) metrics: Option<String>,
    /// With --metrics: count requests by client and by key too, and serve those with most as JSON at /traffic, for
    /// `statestore top`. Whoever can connect there can read these names
    #[arg(long, env = "STATESTORE_TRAFFIC", requires = "metrics", value_parser = clap::builder::FalseyValueParser::new())]
    pub(crate) traffic: bool,
    #[command(flatten)]
    pub(crate) record: Record,
    /// With --broker: learn from mosquitto's log topic which clients have gone
    #[arg(long, env = "STATESTORE_PRESENCE")]
    pub(crate) presence: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dialect {
    #[default]
    Auto,
    /// The forms of the public protocol page
    Page,
    /// The forms of the deployed clients
    Deployed,
}
