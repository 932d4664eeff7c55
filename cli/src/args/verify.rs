//! What `verify` takes.

use std::time::Duration;

use clap::ValueEnum;

use super::{Connection, duration};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each rule passes, fails or differs, and with each finding come the request and its answer. A rule's source is the public
protocol page, the wire (what deployed clients need), or a choice, where both are silent. A store differs when it does
something else that is legal; one beside a broker cannot do all that a store within its broker can, so it differs there.

Some hundreds of requests are sent, one after the other. Keys are set below one prefix, statestore-verify- and eight
digits (with --user NAME behind NAME-), and removed at the end, also after SIGINT, SIGTERM and SIGHUP; no other key is
changed. The rule clock/nearly-ahead moves the clock of the store up to 40 seconds ahead of the time of day until that has
caught up: leave it out with --skip where this matters. Client ids begin with --client-id, as ID-a and ID-b. With --output
json a line is a rule, and the last one the summary; with junit what fails or differs is also on standard error. The exit
code is 1 when a rule fails or a key may be left, 3 when nobody answers, and 128 and the signal's
number when it was stopped.")]
pub(crate) struct Verify {
    /// Try this rule alone, or this section of rules; may be given more than once
    #[arg(long = "case", value_name = "NAME")]
    pub(crate) cases: Vec<String>,
    /// Leave out this rule, or this section; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) skip: Vec<String>,
    /// Print the rules with their sources, and try none
    #[arg(long)]
    pub(crate) list: bool,
    /// Send every row of the golden vectors rather than every third
    #[arg(long)]
    pub(crate) thorough: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// How long to wait for an answer or a notification, such as 500ms or 3s
    #[arg(long, env = "STATESTORE_TIMEOUT", default_value = "5s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// How to print what comes of it
    #[arg(long, value_enum, default_value_t)]
    pub(crate) output: ReportForm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    /// A line for each rule, with more for what is not as expected
    #[default]
    Raw,
    /// A JSON object for each rule, and one for the whole
    Json,
    /// JUnit's XML, for CI systems; what differs is no failure
    Junit,
}
