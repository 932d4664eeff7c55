//! Options of `status`.

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
With --metrics-url, prints whether requests reach the store. With --etcd, prints which store leads
and which stores are on standby. Without both options, the URL is http://127.0.0.1:9464.

--ready and --alive are for health checks. They send one request to the metrics listener and print
the response. They need no login, write no key, and ignore --etcd and --output.

Exit codes: 0 ready, and a store leads; 1 not ready, for example a standby, or no store leads;
2 bad input; 3 no response within 3 seconds.")]
pub(crate) struct Status {
    /// Metrics listener of the store, http://HOST:PORT
    ///
    /// Environment: `STATESTORE_METRICS_URL`.
    #[arg(long, env = "STATESTORE_METRICS_URL", hide_env = true, value_name = "URL")]
    pub(crate) metrics_url: Option<String>,
    /// Check whether requests reach the store
    #[arg(long, conflicts_with = "alive")]
    pub(crate) ready: bool,
    /// Check whether the process responds, even if no requests reach the store
    #[arg(long)]
    pub(crate) alive: bool,
    #[cfg(feature = "etcd")]
    #[command(flatten)]
    pub(crate) etcd: super::EtcdConnection,
    #[cfg(not(feature = "etcd"))]
    #[command(flatten)]
    pub(crate) etcd: super::Etcd,
    #[command(flatten)]
    pub(crate) format: super::Format,
}
