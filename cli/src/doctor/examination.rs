//! Checks each step between a client and its state store, from DNS to change notifications.
//!
//! It connects once, with the options of the client, and sends a few requests. Unless it is
//! [read-only](Examination::read_only), it writes one key with an expiry, and deletes it. What it
//! receives is bounded: packets of 2 MiB, 64 messages, and 4 KiB of each payload.
//!
//! Remedies name the options of the command `statestore`. Texts from the network are cut and
//! escaped in [`Report::text`].

use std::time::Duration;

use statestore_client::Options;
use statestore_mqtt::Reason;
use tokio::time::Instant;

use super::network;
use super::report::{Findings, Report};
use super::requests::Requests;
use super::store_checks::StoreChecks;
use super::wire::{Connack, ConnectionEnd};

/// An examination of one broker and its store.
pub(super) struct Examination {
    /// The options of a client. Only their first address is used.
    pub(super) options: Options,
    /// The service account token to log in with.
    pub(super) token: Option<Vec<u8>>,
    /// Timeout of each step.
    pub(super) timeout: Duration,
    /// Omits all writes. Clocks and notifications are not checked then.
    pub(super) read_only: bool,
    /// Prefix of the test key. A random number follows.
    pub(super) key_prefix: String,
}

impl Examination {
    /// Runs all checks. `on_check` is called after each check.
    pub(super) async fn run(self, on_check: impl Fn() + Sync) -> Report {
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
        let requests = Requests {
            client_id,
            response_topic: String::new(),
            wire,
            timeout: self.timeout,
            count: 0,
        };
        let key = format!("{}{:016x}", self.key_prefix, fastrand::u64(..));
        let mut checks = StoreChecks::new(requests, key, report);
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
