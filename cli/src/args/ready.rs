//! The options of `ready`.

#[derive(Debug, clap::Args)]
#[command(after_help = "\
It prints what the store says of itself and ends with 0 when requests reach the store, with 1 when they do not, for instance because it
stands by for another, and with 3 when nothing answers within 3 seconds. It takes neither a login nor a key.")]
pub(crate) struct Ready {
    /// Where the store serves its numbers over plain HTTP, as http://HOST:PORT
    #[arg(
        long,
        env = "STATESTORE_METRICS_URL",
        default_value = "http://127.0.0.1:9464",
        value_name = "URL"
    )]
    pub(crate) metrics: String,
    /// Ask whether it lives, also when no requests reach it
    #[arg(long)]
    pub(crate) alive: bool,
}
