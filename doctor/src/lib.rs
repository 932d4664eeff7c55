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
//! Remedies name the options of the command `statestore`. Texts from the network are cut and
//! escaped in [`Report::text`].
#![forbid(unsafe_code)]

mod network;
mod report;
mod requests;
mod store_checks;
pub mod tls;
mod wire;

use std::fmt;
use std::time::Duration;

use statestore_client::Options;
use statestore_mqtt::Reason;
use tokio::time::Instant;

pub use report::{CHECKS, Outcome, Report};

use report::Findings;
use store_checks::StoreChecks;
use wire::{Connack, ConnectionEnd};

/// Default timeout of each step.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Default prefix of the test key.
const KEY_PREFIX: &str = "statestore-doctor-";

/// An examination of one broker and its store.
#[must_use = "an examination does nothing before `run`"]
pub struct Examination {
    options: Options,
    token: Option<Vec<u8>>,
    timeout: Duration,
    read_only: bool,
    key_prefix: String,
}

/// Omits the token.
impl fmt::Debug for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Examination")
            .field("options", &self.options)
            .field("timeout", &self.timeout)
            .field("read_only", &self.read_only)
            .field("key_prefix", &self.key_prefix)
            .finish_non_exhaustive()
    }
}

impl Examination {
    /// An examination as a client with these options. Only their first address is used.
    pub fn new(options: Options) -> Self {
        let key_prefix = KEY_PREFIX.to_owned();
        Self { options, token: None, timeout: TIMEOUT, read_only: false, key_prefix }
    }

    /// Sets the service account token to log in with. The token file of the options is not read.
    pub fn service_account_token(mut self, token: Option<impl Into<Vec<u8>>>) -> Self {
        self.token = token.map(Into::into);
        self
    }

    /// Sets the timeout of each step, from 1 ms to 1 h; 3 s by default. Other values are clamped.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(Duration::from_millis(1), Duration::from_secs(3_600));
        self
    }

    /// Sets whether to omit all writes. Clocks and notifications are not checked then.
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets the prefix of the test key, for clients that may write certain keys only;
    /// `statestore-doctor-` by default. The key is this prefix and a random number.
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = prefix.into();
        self
    }

    /// Runs all checks. `on_check` is called after each check, for example to display progress.
    pub async fn run(self, on_check: impl Fn() + Sync) -> Report {
        let mut report = Findings::new(&on_check);
        self.check_all(&mut report).await;
        report.complete()
    }

    async fn check_all(&self, report: &mut Findings<'_>) {
        let Some(mut wire) = network::connect(&self.options, self.timeout, report).await else {
            return;
        };
        let until = Instant::now() + self.timeout;
        let Options { client_id, credentials, .. } = &self.options;
        let token = self.token.as_deref();
        let connack = wire.connect(client_id, credentials.as_ref(), token, until).await;
        if !check_login(connack.as_ref(), wire.end.as_ref(), report) {
            return;
        }
        let connack = connack.unwrap_or_default();
        let can_send = check_limits(&connack, report);
        let mut checks = StoreChecks::new(self, wire, report);
        if can_send {
            checks.run(self.read_only, connack.has_wildcards).await;
        }
        checks.close().await;
    }
}

/// Checks the response to CONNECT. Returns whether the broker accepted this client.
fn check_login(
    connack: Option<&Connack>,
    end: Option<&ConnectionEnd>,
    report: &mut Findings<'_>,
) -> bool {
    let Some(connack) = connack else {
        match end {
            Some(ConnectionEnd::Io(error)) if network::report_tls_error(error, report) => {}
            Some(end @ ConnectionEnd::Options(_)) => {
                report.fail("login", end.to_string(), "check the options of this command");
            }
            Some(end @ ConnectionEnd::AuthenticationRequired) => report.fail(
                "login",
                end.to_string(),
                "set --service-account-token-file, or allow logins without AUTH in the broker",
            ),
            Some(end @ ConnectionEnd::NotMqtt(_)) => report.fail(
                "login",
                end.to_string(),
                "check --broker: it must be the MQTT port of an MQTT 5 broker",
            ),
            // A port that speaks TLS may close the connection without an alert.
            Some(ConnectionEnd::Io(error)) => report.no_response(
                "login",
                format!("the connection was closed after CONNECT: {error}"),
                "see the log of the broker; if this port is for TLS, set --broker to \
                 mqtts://HOST:PORT",
            ),
            Some(ConnectionEnd::Disconnected(reason)) => report.no_response(
                "login",
                format!("the broker responded to CONNECT with DISCONNECT: {reason}"),
                "see the log of the broker",
            ),
            None => report.no_response(
                "login",
                "no response to CONNECT",
                "check --broker: it must be an MQTT port; if the port is for TLS, set --broker to \
                 mqtts://HOST:PORT",
            ),
        }
        return false;
    };
    if !connack.reason.is_error() {
        report.pass("login", "accepted");
        return true;
    }
    let text = connack.text.as_deref().map(|text| format!(" ({text})")).unwrap_or_default();
    let seen = format!("the broker rejected CONNECT: {}{text}", connack.reason);
    match connack.reason {
        Reason::BAD_USER_NAME_OR_PASSWORD | Reason::NOT_AUTHORIZED => report.fail(
            "login",
            seen,
            "check --user and STATESTORE_PASSWORD, the client certificate or the token, and that \
             the broker allows this --client-id",
        ),
        Reason::CLIENT_IDENTIFIER_NOT_VALID => report.fail(
            "login",
            seen,
            "set --user or another --client-id: some brokers require that the client id is the \
             user name or starts with it",
        ),
        Reason::BAD_AUTHENTICATION_METHOD => report.fail(
            "login",
            seen,
            "omit --service-account-token-file: the broker does not accept service account tokens",
        ),
        Reason::UNSUPPORTED_PROTOCOL_VERSION => {
            report.fail("login", seen, "update the broker, or enable MQTT 5 in it");
        }
        Reason::USE_ANOTHER_SERVER | Reason::SERVER_MOVED => {
            report.no_response("login", seen, "set --broker to the address of the leader");
        }
        Reason::SERVER_BUSY
        | Reason::SERVER_UNAVAILABLE
        | Reason::CONNECTION_RATE_EXCEEDED
        | Reason::QUOTA_EXCEEDED => {
            report.no_response(
                "login",
                seen,
                "check the limits of the broker: it is overloaded or has too many connections",
            );
        }
        _ => report.fail("login", seen, "see the log of the broker"),
    }
    false
}

/// Compares the limits of the broker with the size of the largest value. Returns whether small
/// requests can be sent.
fn check_limits(connack: &Connack, report: &mut Findings<'_>) -> bool {
    const LARGEST: u32 = (1 << 20) + (64 << 10);
    const SMALLEST: u32 = 1 << 10;
    if !connack.has_qos_1 {
        report.fail(
            "limits",
            "the broker supports QoS 0 only",
            "allow QoS 1 in the broker: requests and responses need it",
        );
        return false;
    }
    let packet = connack.packet_max.map_or_else(
        || "no limit of packet size".to_owned(),
        |max| format!("maximum packet size {max} bytes"),
    );
    let seen = format!(
        "{packet}, receive maximum {}, topic alias maximum {}",
        connack.receive_max.unwrap_or(u16::MAX),
        connack.alias_max
    );
    match connack.packet_max {
        Some(max) if max < SMALLEST => {
            let remedy =
                format!("allow packets of {LARGEST} bytes: requests are larger than the limit");
            report.fail("limits", seen, remedy);
            return false;
        }
        Some(max) if max < LARGEST => report.warn(
            "limits",
            seen,
            format!(
                "allow packets of {LARGEST} bytes if clients use values of {max} bytes or more"
            ),
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
