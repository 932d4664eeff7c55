//! Options of `verify`.

use clap::ValueEnum;

use super::{Connection, TimeLimit};

#[derive(Debug, clap::Args)]
#[command(mut_arg("timeout", |timeout| timeout.default_value("5s")))]
#[command(after_long_help = "\
Each rule passes, fails or differs. A finding includes the request and its reply. The source of a
rule is the public specification, the wire (what deployed clients need), or a choice where both are
silent. A store differs if it does something else that is legal. A store with an external broker
cannot implement every rule, so it differs there.

`verify` sends about 900 requests, one after the other. It sets keys below one prefix,
statestore-verify- and eight digits (with --user NAME, after NAME-), and deletes them at the end,
also after SIGINT, SIGTERM and SIGHUP. It changes no other key. Client ids begin with --client-id,
for example ID-a and ID-b.

The rule clock/nearly-ahead sends a timestamp that is 40 seconds ahead. The store then issues
versions that are up to 40 seconds ahead of the time of day, until the time of day has caught up.
Use --skip clock/nearly-ahead where this matters.

With --output json, each line is a rule and the last line is the summary. With junit, failures and
differences are also printed on standard error.

The exit code is 1 if a rule fails or a key may be left, 3 without a response, and 128 plus the
number of the signal if `verify` was stopped.")]
pub(crate) struct Verify {
    /// Check only this rule or section; repeatable
    #[arg(long = "rule", value_name = "NAME")]
    pub(crate) cases: Vec<String>,
    /// Skip this rule or section; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) skip: Vec<String>,
    /// List the rules with their sources, and exit
    #[arg(long)]
    pub(crate) list: bool,
    /// Send every row of the golden vectors rather than every third
    #[arg(long)]
    pub(crate) thorough: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(flatten)]
    pub(crate) time_limit: TimeLimit,
    /// Output format
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT", help_heading = "Output")]
    pub(crate) output: ReportFormat,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportFormat {
    /// One line per rule, with details of findings
    #[default]
    Text,
    /// One JSON object per rule, and one for the summary
    Json,
    /// JUnit XML for CI systems; differences do not count as failures
    Junit,
}
