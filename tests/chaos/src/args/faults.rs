//! The options of `faults`.

#[derive(Debug, clap::Args)]
pub(crate) struct Faults {
    /// Run only this fault; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Vec<String>,
    /// Use only this form: embedded or mosquitto
    #[arg(long, value_name = "NAME", value_parser = ["embedded", "mosquitto"])]
    pub(crate) form: Option<String>,
    /// Number of runs [default: one of each fault in each form]
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<usize>,
    /// Seed of the random choices of the first run; each run prints its seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Lease of the leader
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(2..=60))]
    pub(crate) lease: u64,
    /// Run once with three faults, with embedded brokers
    #[arg(long, conflicts_with_all = ["only", "form", "runs", "twin"])]
    pub(crate) quick: bool,
    /// Test the checker with a defect that it must find: one run with stores that share nothing, or
    /// histories of a store without durability
    #[arg(long, conflicts_with_all = ["only", "runs"])]
    pub(crate) twin: bool,
    /// Run histories of one store instead: connections lose, repeat, delay and cut packets, while
    /// the store and clients are killed; each history has its own seed
    #[arg(long, value_name = "N", conflicts_with_all = ["only", "runs", "quick", "lease"])]
    pub(crate) histories: Option<usize>,
    /// Length of each history
    #[arg(long, value_name = "SECONDS", default_value_t = 60, requires = "histories", value_parser = clap::value_parser!(u64).range(5..=3_600))]
    pub(crate) seconds: u64,
    /// Print the output of the stores also after successful runs
    #[arg(long)]
    pub(crate) logs: bool,
    /// List the faults, and exit
    #[arg(long)]
    pub(crate) list: bool,
}
