//! The options of `abuse`.

#[derive(Debug, clap::Args)]
pub(crate) struct Abuse {
    /// Run only this attack; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Time without and with each attack
    #[arg(long, default_value_t = 5, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Run each attack for one second, and limit each request to two seconds instead of comparing
    /// latencies
    #[arg(long, conflicts_with = "seconds")]
    pub(crate) quick: bool,
    /// List the attacks, and exit
    #[arg(long)]
    pub(crate) list: bool,
}
