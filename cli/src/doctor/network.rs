//! Checks DNS, TCP and TLS, and connects.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use statestore_client::{
    Address, LinkError, LinkErrorKind, Options, Proxy, TlsProblem, open_tcp, tls_config,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use x509_cert::Certificate;
use x509_cert::der::Decode as _;

use super::report::Findings;
use super::wire::Wire;
use crate::tls::option_names;

/// A certificate that expires sooner causes a warning: 14 days.
const EXPIRES_SOON: Duration = Duration::from_secs(14 * 24 * 3_600);

/// Connects to the first address of the options.
pub(crate) async fn connect(
    options: &Options,
    step_timeout: Duration,
    report: &mut Findings<'_>,
) -> Option<Wire> {
    // As in a URL, an IPv6 address has brackets.
    let host = options.host.trim_start_matches('[').trim_end_matches(']');
    let stream = match &options.proxy {
        Some(proxy) => {
            let broker = Address::new(host, options.port);
            open_tunnel(&broker, proxy, step_timeout, report).await?
        }
        None => open_socket(host, options.port, step_timeout, report).await?,
    };
    let Some(tls) = &options.tls else {
        if !report.has("tls") {
            report.skip("tls", "not used: --broker is mqtt://");
        }
        return Some(Wire::new(Box::new(stream)));
    };
    let config = match tls_config(tls) {
        Ok(config) => config,
        Err(error) => {
            report.fail("tls", error.to_string(), "check --tls-ca, --tls-cert and --tls-key");
            return None;
        }
    };
    let Ok(name) = ServerName::try_from(host.to_owned()) else {
        report.fail("tls", "the host is not a valid DNS name or IP address", "check --broker");
        return None;
    };
    match timeout(step_timeout, TlsConnector::from(config).connect(name, stream)).await {
        Ok(Ok(stream)) => {
            let (_, session) = stream.get_ref();
            let first = session.peer_certificates().and_then(|chain| chain.first());
            check_certificate_expiry(first.and_then(|der| not_after(der)), report);
            Some(Wire::new(Box::new(stream)))
        }
        Ok(Err(error)) => {
            if !report_tls_error(&error, report) {
                report.fail(
                    "tls",
                    format!("no TLS on this port: {error}"),
                    "set --broker to mqtt://HOST:PORT, or to the port for TLS",
                );
            }
            None
        }
        Err(_) => {
            report.no_response(
                "tls",
                "no response to the TLS handshake",
                "set --broker to mqtt://HOST:PORT if this port is not for TLS",
            );
            None
        }
    }
}

/// Connects through a proxy.
async fn open_tunnel(
    broker: &Address,
    proxy: &Proxy,
    step_timeout: Duration,
    report: &mut Findings<'_>,
) -> Option<TcpStream> {
    const REMEDY: &str = "check --proxy, and that the proxy allows and reaches this host and port";
    report.skip("address", "the proxy resolves the name");
    match timeout(step_timeout, open_tcp(broker, Some(proxy))).await {
        Ok(Ok(stream)) => {
            report.pass("port", format!("through the proxy {proxy}"));
            return Some(stream);
        }
        Ok(Err(error)) if error.is_transient() => {
            report.no_response("port", error.to_string(), REMEDY);
        }
        Ok(Err(error)) => report.fail("port", error.to_string(), REMEDY),
        Err(_) => report.no_response("port", format!("no response from the proxy {proxy}"), REMEDY),
    }
    None
}

async fn open_socket(
    host: &str,
    port: u16,
    step_timeout: Duration,
    report: &mut Findings<'_>,
) -> Option<TcpStream> {
    let until = Instant::now() + step_timeout;
    let found: Vec<SocketAddr> =
        match timeout_at(until, tokio::net::lookup_host((host, port))).await {
            // Bounded, since the resolver is not trusted.
            Ok(Ok(found)) => found.take(16).collect(),
            Ok(Err(error)) => {
                let remedy = "check the host name in --broker and the DNS of this machine";
                report.fail("address", format!("{host}: {error}"), remedy);
                return None;
            }
            Err(_) => {
                report.no_response(
                    "address",
                    format!("{host}: no response from DNS"),
                    "check the DNS of this machine",
                );
                return None;
            }
        };
    let all = found.iter().map(|address| address.ip().to_string()).collect::<Vec<_>>().join(", ");
    report.pass("address", all.clone());
    let error = match timeout_at(until, open_tcp(&Address::new(host, port), None)).await {
        Ok(Ok(stream)) => {
            report.pass("port", stream.peer_addr().map_or_else(|_| all, |at| at.to_string()));
            return Some(stream);
        }
        Ok(Err(error)) => error,
        Err(_) => LinkError::io(LinkErrorKind::TimedOut, io::ErrorKind::TimedOut.into()),
    };
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref().map(io::Error::kind));
    let (seen, remedy) = match cause {
        Some(io::ErrorKind::ConnectionRefused) => (
            format!("no server listens on port {port}"),
            "start the broker, or `statestore serve` with its embedded broker; or check the port \
             in --broker",
        ),
        Some(io::ErrorKind::TimedOut) => (
            format!("no response from port {port}"),
            "check that the machine runs, and that no firewall blocks the port",
        ),
        _ => (format!("port {port}: {error}"), "check --broker and the network"),
    };
    report.no_response("port", seen, remedy);
    None
}

/// Reports an error of TLS. Returns false if the error has another cause.
pub(crate) fn report_tls_error(error: &io::Error, report: &mut Findings<'_>) -> bool {
    let inner: &(dyn Error + 'static) = error;
    let Some(problem) = TlsProblem::of(inner) else { return false };
    // With TLS 1.3, the server rejects a client certificate after the client's handshake succeeded.
    report.withdraw("tls");
    report.fail("tls", problem.to_string(), problem.remedy(&option_names()));
    true
}

fn not_after(der: &[u8]) -> Option<SystemTime> {
    let certificate = Certificate::from_der(der).ok()?;
    Some(certificate.tbs_certificate().validity().not_after.to_system_time())
}

fn check_certificate_expiry(ends: Option<SystemTime>, report: &mut Findings<'_>) {
    let Some(ends) = ends else {
        report.pass("tls", "the certificate is trusted");
        return;
    };
    #[expect(clippy::disallowed_methods, reason = "a certificate expires on a date")]
    let left = ends.duration_since(SystemTime::now()).unwrap_or_default();
    let days = left.as_secs() / (24 * 3_600);
    let date = humantime::format_rfc3339_seconds(ends);
    let seen = format!("the certificate is trusted; it expires in {days} days, at {date}");
    if left < EXPIRES_SOON {
        report.warn("tls", seen, "renew the broker's certificate");
    } else {
        report.pass("tls", seen);
    }
}
