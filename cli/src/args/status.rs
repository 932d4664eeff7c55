//! Options of `status`.

#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Sends a GET to the store at the broker, and prints whether the store responds. With --metrics-url,
asks the metrics listener of a store instead (`serve --metrics-listen 127.0.0.1:9464`), which needs
no login. With --etcd, prints which store leads and which stores are on standby.

--ready and --alive are for health checks. They send one request to the metrics listener and print
the response. They ignore --etcd and --output.

Exit codes: 0 ready, and a store leads; 1 not ready, for example a standby, or no store leads;
2 bad input; 3 no response within --timeout, or 3 seconds of the metrics listener.")]
pub(crate) struct Status {
    /// URL of `serve --metrics-listen`
    ///
    /// Default with `--ready` and `--alive`: `http://127.0.0.1:9464`.
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
    pub(crate) common: super::Common,
}
