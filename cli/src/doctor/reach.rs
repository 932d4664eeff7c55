//! Connects: DNS, TCP and TLS.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use statestore_client::{Options, tls_config};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::report::Report;
use super::wire::Wire;
use crate::tls::Trouble;

/// A certificate that expires sooner causes a warning.
const SOON: Duration = Duration::from_secs(14 * 24 * 3_600);

/// A connection before CONNECT.
pub(super) struct Reached {
    pub(super) wire: Wire,
    pub(super) is_encrypted: bool,
}

pub(super) async fn reach(
    options: &Options,
    patience: Duration,
    report: &mut Report,
) -> Option<Reached> {
    // As in a URL, an IPv6 address has brackets.
    let host = options.host.trim_start_matches('[').trim_end_matches(']');
    let stream = connect(host, options.port, patience, report).await?;
    let Some(tls) = &options.tls else {
        if !report.has("tls") {
            report.skip("tls", "not asked for: the --broker is mqtt://");
        }
        return Some(Reached { wire: Wire::new(Box::new(stream)), is_encrypted: false });
    };
    let config = match tls_config(tls) {
        Ok(config) => config,
        Err(error) => {
            report.wrong("tls", error.to_string(), "check --tls-ca, --tls-cert and --tls-key");
            return None;
        }
    };
    let Ok(name) = ServerName::try_from(host.to_owned()) else {
        report.wrong(
            "tls",
            "the host is not a name or address that a certificate can contain",
            "check --broker",
        );
        return None;
    };
    match timeout(patience, TlsConnector::from(config).connect(name, stream)).await {
        Ok(Ok(stream)) => {
            let (_, session) = stream.get_ref();
            let last = session.peer_certificates().and_then(|chain| chain.first());
            look_at_end(last.and_then(|der| ends(der)), report);
            Some(Reached { wire: Wire::new(Box::new(stream)), is_encrypted: true })
        }
        Ok(Err(error)) => {
            if !blames_tls(&error, report) {
                report.wrong(
                    "tls",
                    format!("no TLS on this port: {error}"),
                    "write the --broker as mqtt://, or find the port that speaks TLS",
                );
            }
            None
        }
        Err(_) => {
            report.lost(
                "tls",
                "no answer to the first word of TLS",
                "write the --broker as mqtt:// if this port is not for TLS",
            );
            None
        }
    }
}

async fn connect(
    host: &str,
    port: u16,
    patience: Duration,
    report: &mut Report,
) -> Option<TcpStream> {
    let until = Instant::now() + patience;
    let found: Vec<SocketAddr> =
        match timeout_at(until, tokio::net::lookup_host((host, port))).await {
            // More addresses than a broker usually has.
            Ok(Ok(found)) => found.take(8).collect(),
            Ok(Err(error)) => {
                let remedy = "check the name in --broker, and that this machine asks the right DNS";
                report.wrong("address", format!("{host}: {error}"), remedy);
                return None;
            }
            Err(_) => {
                report.lost(
                    "address",
                    format!("{host}: no answer"),
                    "see that DNS answers this machine",
                );
                return None;
            }
        };
    let all = found.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(", ");
    report.fine("address", all);
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let each = patience / u32::try_from(found.len().max(1)).unwrap_or(1);
    for address in found {
        match timeout(each, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let _ = stream.set_nodelay(true);
                report.fine("port", address.to_string());
                return Some(stream);
            }
            Ok(Err(error)) => why = error,
            Err(_) => why = io::ErrorKind::TimedOut.into(),
        }
    }
    let (seen, remedy) = match why.kind() {
        io::ErrorKind::ConnectionRefused => (
            format!("nothing listens on port {port}"),
            "start the broker, or `statestore serve`, which has one; or check the port in --broker",
        ),
        io::ErrorKind::TimedOut => (
            format!("no answer from port {port}"),
            "see that the machine runs, and what a firewall drops on the way",
        ),
        _ => (format!("port {port}: {why}"), "check --broker, and the way there"),
    };
    report.lost("port", seen, remedy);
    None
}

/// Reports an error of TLS. Returns whether it is one.
pub(super) fn blames_tls(error: &io::Error, report: &mut Report) -> bool {
    let inner: &(dyn Error + 'static) = error;
    let Some(trouble) = Trouble::of(inner) else { return false };
    // With TLS 1.3, the server rejects a client certificate after the client's handshake succeeded.
    report.withdraw("tls");
    report.wrong("tls", trouble.to_string(), trouble.remedy());
    true
}

fn ends(der: &[u8]) -> Option<SystemTime> {
    let certificate = Certificate::from_der(der).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_system_time())
}

fn look_at_end(ends: Option<SystemTime>, report: &mut Report) {
    let Some(ends) = ends else {
        report.fine("tls", "the certificate is trusted");
        return;
    };
    #[expect(clippy::disallowed_methods, reason = "what a certificate is valid until is a date")]
    let left = ends.duration_since(SystemTime::now()).unwrap_or_default();
    let days = left.as_secs() / (24 * 3_600);
    let date = humantime::format_rfc3339_seconds(ends);
    let seen = format!("the certificate is trusted until {date}, for {days} days");
    if left < SOON {
        report.warn("tls", seen, "give the broker a new one in time");
    } else {
        report.fine("tls", seen);
    }
}
