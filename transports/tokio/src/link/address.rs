//! Address of a broker.

use std::fmt;
use std::net::IpAddr;

/// Address of a broker.
///
/// ```
/// use statestore_tokio::Address;
///
/// assert_eq!(Address::new("broker.example", 1883).to_string(), "broker.example:1883");
/// assert_eq!(Address::new("::1", 1883).to_string(), "[::1]:1883");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Address {
    /// Name or IP address. An IPv6 address may have brackets around it, as in a URL.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl Address {
    /// This port of this host.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port }
    }

    /// The host without the brackets that an IPv6 address has in a URL, as sockets and TLS want it.
    ///
    /// ```
    /// # use statestore_tokio::Address;
    /// assert_eq!(Address::new("[::1]", 1883).bare_host(), "::1");
    /// ```
    #[must_use]
    pub fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns whether this is a loopback address, `localhost` or a Unix socket.
    pub(crate) fn is_local(&self) -> bool {
        let host = self.bare_host();
        host.starts_with('/')
            || host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// Returns whether a Server Reference contains this address. It is a list of names or IP
    /// addresses, separated by spaces, each with an optional port.
    pub(crate) fn is_in(&self, server_reference: &str) -> bool {
        let is_same = |host: &str| {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.eq_ignore_ascii_case(self.bare_host())
        };
        server_reference.split(' ').any(|named| match named.rsplit_once(':') {
            // A bare IPv6 address ends in a colon and digits too.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                is_same(host) && port.parse() == Ok(self.port)
            }
            _ => is_same(named),
        })
    }
}

/// As in a URL: an IPv6 address has brackets around it. The path of a Unix socket has no port.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, port) = (self.bare_host(), self.port);
        match host {
            path if path.starts_with('/') => f.write_str(path),
            host if host.contains(':') => write!(f, "[{host}]:{port}"),
            host => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_reference_names_hosts_with_or_without_a_port() {
        let broker = Address::new("b.example", 1883);
        for named in ["b.example:1883", "B.Example:1883", "b.example", "a.example:1 b.example:1883"]
        {
            assert!(broker.is_in(named), "{named}");
        }
        for other in ["", " ", "b.example:1884", "xb.example:1883", "b.example:", "b.example:1883x"]
        {
            assert!(!broker.is_in(other), "{other}");
        }
        for host in ["::1", "[::1]"] {
            let broker = Address::new(host, 1883);
            assert!(broker.is_in("[::1]:1883") && broker.is_in("[::1]") && broker.is_in("::1"));
            assert!(!broker.is_in("[::1]:1884") && !broker.is_in("::2"));
        }
    }
}
