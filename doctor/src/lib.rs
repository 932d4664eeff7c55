//! Checks each step between a client and its state store, from DNS to change notifications.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use statestore_client::Options;
//! use statestore_doctor::{Examination, Outcome};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::from_url("mqtt://localhost")?;
//! let report = Examination::new(options).timeout(Duration::from_secs(3)).run(|| {}).await;
//! print!("{}", report.text("mqtt://localhost"));
//! assert_eq!(report.outcome(), Outcome::Healthy);
//! # Ok(())
//! # }
//! ```
//!
//! It connects once, with the options of the client, and sends a few requests. Unless it is
//! [read-only](Examination::read_only), it writes one key with an expiry, and deletes it. What it
//! receives is bounded: packets of 2 MiB, 64 messages, and 4 KiB of each payload.
//!
//! Remedies name the options of the command `statestore`.
#![forbid(unsafe_code)]

mod network;
mod report;
mod store_checks;
pub mod tls;
mod wire;

use std::time::Duration;

use statestore_client::Options;
use statestore_mqtt::Reason;
use tokio::time::Instant;

pub use report::{CHECKS, Outcome, Report};

use network::Connected;
use report::Findings;
use store_checks::StoreChecks;
use wire::{ConnectionEnd, Connack};

/// Default timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Default prefix of the test key.
const KEY_PREFIX: &str = "statestore-doctor-";

/// An examination of one broker and its store.
#[derive(Debug)]
#[must_use = "it does nothing before `run`"]
pub struct Examination {
    options: Options,
    token: Option<Vec<u8>>,
    timeout: Duration,
    read_only: bool,
    key_prefix: String,
}

impl Examination {
    /// An examination as a client with these options. Only their first address is used.
    pub fn new(options: Options) -> Self {
        let key_prefix = KEY_PREFIX.to_owned();
        Self { options, token: None, timeout: TIMEOUT, read_only: false, key_prefix }
    }

    /// Sets the service account token to log in with. That of the options is not read.
    pub fn service_account_token(mut self, token: Option<impl Into<Vec<u8>>>) -> Self {
        self.token = token.map(Into::into);
        self
    }

    /// Sets the timeout of each step, from a millisecond to an hour; 3 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(Duration::from_millis(1), Duration::from_secs(3_600));
        self
    }

    /// Sets whether to write nothing. Clocks and notifications are not checked then.
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the prefix of the test key, for clients that may write certain keys only;
    /// `statestore-doctor-` by default. A random number follows.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Runs all checks. `on_check` is called after each check, for a display of progress.
    pub async fn run(self, on_check: impl Fn() + Sync) -> Report {
        let mut report = Findings::new(&on_check);
        self.check_all(&mut report).await;
        report.complete()
    }

    async fn check_all(&self, report: &mut Findings<'_>) {
        let Some(Connected { mut wire, is_encrypted }) =
            network::connect(&self.options, self.timeout, report).await
        else {
            return;
        };
        let until = Instant::now() + self.timeout;
        let Options { client_id, credentials, .. } = &self.options;
        let token = self.token.as_deref();
        let connack = wire.connect(client_id, credentials.as_ref(), token, until).await;
        if !check_login(connack.as_ref(), wire.end.as_ref(), is_encrypted, report) {
            return;
        }
        let connack = connack.unwrap_or_default();
        let is_enough = check_limits(&connack, report);
        let mut checks = StoreChecks::new(self, wire, report);
        if is_enough {
            checks.run(self.read_only, connack.has_wildcards).await;
        }
        checks.close().await;
    }
}

/// Checks the response to CONNECT. Returns whether the broker accepted this client.
fn check_login(
    connack: Option<&Connack>,
    end: Option<&ConnectionEnd>,
    is_encrypted: bool,
    report: &mut Findings<'_>,
) -> bool {
    let Some(connack) = connack else {
        match end {
            Some(ConnectionEnd::Io(error)) if network::report_tls_error(error, report) => {}
            Some(ConnectionEnd::TlsAlert) if !is_encrypted => {
                report.withdraw("tls");
                report.fail(
                    "tls",
                    "the broker speaks TLS on this port",
                    "write the --broker as mqtts://",
                );
            }
            Some(end @ ConnectionEnd::Options(_)) => {
                report.fail("login", end.to_string(), "check the options of this command");
            }
            Some(end @ ConnectionEnd::AuthenticationWanted) => report.fail(
                "login",
                end.to_string(),
                "log in by --service-account-token-file, or allow another login in the broker",
            ),
            Some(end @ (ConnectionEnd::NotMqtt(_) | ConnectionEnd::TlsAlert)) => report.fail(
                "login",
                end.to_string(),
                "check that --broker names the MQTT port of an MQTT 5 broker",
            ),
            // A port that speaks TLS may close the connection without an alert.
            Some(ConnectionEnd::Io(error)) => report.no_response(
                "login",
                format!("the connection was closed after CONNECT: {error}"),
                "see the log of the broker; if this port is for TLS, write the --broker as mqtts://",
            ),
            Some(ConnectionEnd::Disconnected(reason)) => report.no_response(
                "login",
                format!("the broker responds to CONNECT with DISCONNECT: {reason}"),
                "see the log of the broker",
            ),
            None => report.no_response(
                "login",
                "no response to CONNECT",
                "the port accepts connections but does not respond: check that --broker names an MQTT port, and write mqtts:// for TLS",
            ),
        }
        return false;
    };
    if !connack.reason.is_error() {
        report.pass("login", "accepted");
        return true;
    }
    let text = connack.text.as_deref().map(|text| format!(" ({text})")).unwrap_or_default();
    let seen = format!("refused: {}{text}", connack.reason);
    match connack.reason {
        Reason::BAD_USER_NAME_OR_PASSWORD | Reason::NOT_AUTHORIZED => report.fail(
            "login",
            seen,
            "check --user and STATESTORE_PASSWORD, the certificate or the token, and whether this --client-id may connect",
        ),
        Reason::CLIENT_IDENTIFIER_NOT_VALID => report.fail(
            "login",
            seen,
            "the client id of a user may have to be the user name or begin with it: set --user, or another --client-id",
        ),
        Reason::BAD_AUTHENTICATION_METHOD => report.fail(
            "login",
            seen,
            "the broker does not accept service account tokens: leave out --service-account-token-file",
        ),
        Reason::UNSUPPORTED_PROTOCOL_VERSION => {
            report.fail("login", seen, "update the broker, or enable MQTT 5 in it");
        }
        Reason::USE_ANOTHER_SERVER | Reason::SERVER_MOVED => {
            report.no_response("login", seen, "set --broker to the leader");
        }
        Reason::SERVER_BUSY | Reason::SERVER_UNAVAILABLE | Reason::CONNECTION_RATE_EXCEEDED
        | Reason::QUOTA_EXCEEDED => {
            report.no_response("login", seen, "the broker is overloaded or has too many connections: check its limits");
        }
        _ => report.fail("login", seen, "see the log of the broker"),
    }
    false
}

/// Compares the limits of the broker with the needs of the largest value. Returns whether a small
/// request passes.
fn check_limits(connack: &Connack, report: &mut Findings<'_>) -> bool {
    const LARGEST: u32 = (1 << 20) + (64 << 10);
    const SMALLEST: u32 = 1 << 10;
    if !connack.has_qos_1 {
        report.fail(
            "limits",
            "the broker supports QoS 0 only",
            "requests and responses need QoS 1: allow it in the broker",
        );
        return false;
    }
    let packet = connack.packet_max.map_or_else(
        || "packets of any size".to_owned(),
        |max| format!("packets of {max} bytes at most"),
    );
    let seen = format!(
        "{packet}, {} unacknowledged, {} topic aliases",
        connack.receive_max.unwrap_or(u16::MAX),
        connack.alias_max
    );
    match connack.packet_max {
        Some(max) if max < SMALLEST => {
            let remedy = format!("a request is larger: allow packets of {LARGEST} bytes");
            report.fail("limits", seen, remedy);
            return false;
        }
        Some(max) if max < LARGEST => report.warn(
            "limits",
            seen,
            format!("values of {max} bytes and more are too large: allow packets of {LARGEST} bytes if there are such values"),
        ),
        _ => report.pass("limits", seen),
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examination_can_be_spawned() {
        fn assert_send<T: Send>(_: &T) {}
        let examination = Examination::new(Options::new("c", "localhost", 1883));
        assert_send(&examination.run(|| {}));
    }
}
