//! `doctor`: checks each step between a client and its store, with advice.

mod examination;
mod network;
mod report;
mod requests;
mod store_checks;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use examination::Examination;
use report::{CHECKS, Outcome, Report};

use crate::args::{Doctor, Output};
use crate::connection;
use crate::escape::printable;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use crate::progress::Progress;
use crate::sources::sources_notice;

/// Maximum timeout of a step, so that clocks can add it.
const TIMEOUT_MAX: Duration = Duration::from_secs(3_600);

pub(crate) async fn run(args: Doctor) -> Result<ExitCode, Failure> {
    // Bad input is reported before the first broker is checked.
    connection::options(&args.connection.broker, &args.connection.login, "doctor")?;
    // The report names options.
    sources_notice().iter().for_each(output::notice);
    let mut worst = Exit::Success;
    for broker in &args.connection.broker {
        let report = examine(broker, &args).await?;
        let text = match args.format.output {
            Output::Text => report.text(broker),
            Output::Json => format!("{}\n", report.json(broker)),
        };
        output::raw(printable(&text).as_bytes())?;
        worst = more_urgent(worst, exit(report.outcome()));
    }
    Ok(worst.into())
}

const fn exit(outcome: Outcome) -> Exit {
    match outcome {
        Outcome::Healthy => Exit::Success,
        Outcome::Warnings => Exit::Negative,
        Outcome::Failed => Exit::Refused,
        Outcome::NoResponse => Exit::Unreachable,
    }
}

/// Returns the more urgent of two results. What the operator must change comes first.
fn more_urgent(one: Exit, other: Exit) -> Exit {
    if [one, other].contains(&Exit::Refused) { Exit::Refused } else { one.max(other) }
}

/// Runs all checks against one broker.
async fn examine(broker: &String, args: &Doctor) -> Result<Report, Failure> {
    let login = &args.connection.login;
    let id = connection::client_id(login, "doctor");
    let options = connection::options(std::slice::from_ref(broker), login, &id)?;
    let token = login.service_account_token_file.as_deref();
    let token = token.map(connection::token).transpose()?;
    let progress = Progress::checks("checking", CHECKS.len() as u64);
    let examination = Examination {
        options,
        token,
        timeout: args.time_limit.timeout.min(TIMEOUT_MAX),
        read_only: args.read_only,
        key_prefix: args.key_prefix.clone(),
    };
    Ok(examination.run(|| progress.advance(1)).await)
}
