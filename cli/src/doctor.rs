//! Checks each step between a client and its store, from DNS to change notifications, with advice.

mod questions;
mod reach;
mod report;
mod wire;

use std::process::ExitCode;

use statestore_mqtt::Reason;

use crate::args::{Doctor, Output};
use crate::connection;
use crate::escape::printable;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output;
use questions::Questions;
use reach::Reached;
use report::Report;
use wire::{End, Welcome};

pub(crate) async fn run(args: Doctor) -> Result<ExitCode, Failure> {
    // Bad input is reported before the first broker is checked.
    connection::options(&args.connection.broker, &args.connection.login, "doctor")?;
    let mut worst = Exit::Success;
    for broker in &args.connection.broker {
        let report = look_at(broker, &args).await?;
        let text = match args.output {
            Output::Text => report.text(broker),
            Output::Json => format!("{}\n", report.json(broker)),
        };
        output::raw(printable(&text).as_bytes())?;
        worst = more_urgent(worst, report.exit());
    }
    Ok(worst.into())
}

/// Returns the more urgent of two results. What the operator must change comes first.
fn more_urgent(one: Exit, other: Exit) -> Exit {
    if [one, other].contains(&Exit::Refused) { Exit::Refused } else { one.max(other) }
}

/// Runs all checks against one broker.
async fn look_at(broker: &String, args: &Doctor) -> Result<Report, Failure> {
    let login = &args.connection.login;
    let id = connection::client_id(login, "doctor");
    let options = connection::options(std::slice::from_ref(broker), login, &id)?;
    let token = login.service_account_token_file.as_deref();
    let token = token.map(connection::token).transpose()?;
    let mut report = Report::shown();
    if let Some(Reached { mut wire, is_encrypted }) =
        reach::reach(&options, args.timeout, &mut report).await
    {
        let until = tokio::time::Instant::now() + args.timeout;
        let credentials = options.credentials.as_ref();
        let welcome = wire.connect(&options.client_id, credentials, token.as_deref(), until).await;
        if is_let_in(welcome.as_ref(), wire.end.as_ref(), is_encrypted, &mut report) {
            let welcome = welcome.unwrap_or_default();
            let is_enough = look_at_limits(&welcome, &mut report);
            let mut questions = Questions::new(&options.client_id, wire, args, &mut report);
            if is_enough {
                questions.ask_all(args.read_only, welcome.has_wildcards).await;
            }
            questions.close().await;
        }
    }
    report.complete();
    Ok(report)
}

/// Checks the response to CONNECT. Returns whether the broker accepted this client.
fn is_let_in(
    welcome: Option<&Welcome>,
    end: Option<&End>,
    is_encrypted: bool,
    report: &mut Report,
) -> bool {
    let Some(welcome) = welcome else {
        match end {
            Some(End::Io(error)) if reach::blames_tls(error, report) => {}
            Some(End::TlsAlert) if !is_encrypted => {
                report.withdraw("tls");
                report.wrong(
                    "tls",
                    "the broker speaks TLS on this port",
                    "write the --broker as mqtts://",
                );
            }
            Some(end @ (End::NotMqtt(_) | End::TlsAlert)) => report.wrong(
                "login",
                end.to_string(),
                "this has to be a broker of MQTT 5: see that --broker names its MQTT port",
            ),
            // A port that speaks TLS may close the connection without an alert.
            Some(End::Io(error)) => report.lost(
                "login",
                format!("it closes the connection after CONNECT: {error}"),
                "see the log of the broker; if this port is for TLS, write the --broker as mqtts://",
            ),
            Some(End::Disconnected(reason)) => report.lost(
                "login",
                format!("it answers CONNECT with DISCONNECT: {reason}"),
                "see the log of the broker",
            ),
            None => report.lost(
                "login",
                "it does not answer CONNECT",
                "the port accepts connections but does not respond: check that --broker names an MQTT port, and write mqtts:// for TLS",
            ),
        }
        return false;
    };
    if !welcome.reason.is_error() {
        report.fine("login", "let in");
        return true;
    }
    let text = welcome.text.as_deref().map(|text| format!(" ({text})")).unwrap_or_default();
    let seen = format!("refused: {}{text}", welcome.reason);
    match welcome.reason {
        Reason::BAD_USER_NAME_OR_PASSWORD | Reason::NOT_AUTHORIZED => report.wrong(
            "login",
            seen,
            "check --user and STATESTORE_PASSWORD, the certificate or the token, and whether this --client-id may connect",
        ),
        Reason::CLIENT_IDENTIFIER_NOT_VALID => report.wrong(
            "login",
            seen,
            "client ids of users may have to be their names or begin with these: give --user, or another --client-id",
        ),
        Reason::BAD_AUTHENTICATION_METHOD => report.wrong(
            "login",
            seen,
            "this broker takes no service account tokens: leave out --service-account-token-file",
        ),
        Reason::UNSUPPORTED_PROTOCOL_VERSION => {
            report.wrong("login", seen, "the broker has to speak MQTT 5: update it, or switch that on");
        }
        Reason::USE_ANOTHER_SERVER | Reason::SERVER_MOVED => {
            report.lost("login", seen, "another one leads: name that one with --broker");
        }
        Reason::SERVER_BUSY | Reason::SERVER_UNAVAILABLE | Reason::CONNECTION_RATE_EXCEEDED
        | Reason::QUOTA_EXCEEDED => {
            report.lost("login", seen, "the broker has too much to do, or too many connections: see its limits");
        }
        _ => report.wrong("login", seen, "see the log of the broker"),
    }
    false
}

/// Compares the limits of the broker with the needs of the largest value. Returns whether a small
/// request passes.
fn look_at_limits(welcome: &Welcome, report: &mut Report) -> bool {
    const LARGEST: u32 = (1 << 20) + (64 << 10);
    const SMALLEST: u32 = 1 << 10;
    if !welcome.has_qos_1 {
        report.wrong(
            "limits",
            "the broker takes QoS 0 only",
            "requests and replies need QoS 1: allow it in the broker",
        );
        return false;
    }
    let packet = welcome.packet_max.map_or_else(
        || "packets of any size".to_owned(),
        |max| format!("packets of {max} bytes at most"),
    );
    let seen = format!(
        "{packet}, {} unacknowledged, {} topic aliases",
        welcome.receive_max.unwrap_or(u16::MAX),
        welcome.alias_max
    );
    match welcome.packet_max {
        Some(max) if max < SMALLEST => {
            let remedy = format!("not even a request passes: allow packets of {LARGEST} bytes");
            report.wrong("limits", seen, remedy);
            return false;
        }
        Some(max) if max < LARGEST => report.warn(
            "limits",
            seen,
            format!("values of {max} bytes and more do not pass: allow packets of {LARGEST} bytes if there are such"),
        ),
        _ => report.fine("limits", seen),
    }
    true
}
