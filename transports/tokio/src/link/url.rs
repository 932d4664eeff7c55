//! Options from a URL.

use super::address::Address;
use super::options::{Options, Tls, Transport};
use super::proxy::Proxy;

/// Error of an invalid URL. It contains no part of the URL, since a mistake may turn any part into a
/// password: `mqtt://lamp:secret` has the port `secret`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The scheme is missing or unknown.
    #[error("unknown scheme: expected mqtt://, mqtts://, ws://, wss:// or unix://")]
    Scheme,
    /// The URL of a proxy has another scheme than `http`.
    #[error("unknown scheme of a proxy: expected http://")]
    ProxyScheme,
    /// The host is missing.
    #[error("the host is missing, or is an IPv6 address without brackets: [::1]")]
    Host,
    /// The port is not a number from 1 to 65535.
    #[error("the port is not a number from 1 to 65535")]
    Port,
    /// A percent sign is not followed by two hexadecimal digits, or the result is not UTF-8.
    #[error("invalid percent-encoding")]
    Encoding,
    /// A query parameter other than `client_id`.
    #[error("unknown parameter; the only one is client_id")]
    Parameter,
    /// The URL has parts that its scheme does not use, such as a path after `mqtt://`.
    #[error("unexpected {0} in the URL")]
    Unexpected(&'static str),
    /// User name or password contains a character that must be percent-encoded.
    #[error("user name and password must be percent-encoded")]
    Credentials,
    /// There are more than 16 addresses.
    #[error("more than {} addresses", Options::ADDRESSES_MAX)]
    Addresses,
}

/// Default port of a scheme, whether it uses TLS, and whether it uses WebSocket.
fn scheme(name: &str) -> Option<(u16, bool, bool)> {
    Some(match name.to_ascii_lowercase().as_str() {
        "mqtt" => (1883, false, false),
        "mqtts" => (8883, true, false),
        "ws" => (80, false, true),
        "wss" => (443, true, true),
        _ => return None,
    })
}

impl Options {
    /// Options for the broker at this URL, and defaults for everything else.
    ///
    /// `mqtt`, `mqtts`, `ws` and `wss` URLs have a host or several, separated by commas, each with
    /// an optional port. User name and password stand before the hosts, percent-encoded. A `unix`
    /// URL has the path of a socket. The parameter `client_id` sets the client id. Otherwise it is
    /// random, and begins with the user name, as brokers require that bind client ids to users.
    ///
    /// ```
    /// use statestore_tokio::Options;
    ///
    /// let url = "mqtt://lamp:p%40ss@a.example,b.example:1884?client_id=lamp-7";
    /// let options = Options::from_url(url)?;
    /// assert_eq!(options.client_id, "lamp-7");
    /// assert_eq!(options.credentials, Some(("lamp".into(), "p@ss".into())));
    /// let addresses: Vec<_> = options.addresses().map(|address| address.to_string()).collect();
    /// assert_eq!(addresses, ["a.example:1883", "b.example:1884"]);
    /// # Ok::<(), statestore_tokio::UrlError>(())
    /// ```
    ///
    /// # Errors
    /// [`UrlError`] if the URL is invalid. Not every adapter supports each scheme: connecting then
    /// fails with [`LinkErrorKind::Unsupported`](crate::LinkErrorKind::Unsupported).
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        let (name, rest) = url.split_once("://").ok_or(UrlError::Scheme)?;
        check_authority(rest)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let client_id = client_id(query)?;
        if name.eq_ignore_ascii_case("unix") {
            if !rest.starts_with('/') || rest.len() < 2 {
                return Err(UrlError::Host);
            }
            return Ok(Self::new(client_id.unwrap_or_else(random_id), decode(rest)?, 0));
        }
        let (default_port, is_tls, is_websocket) = scheme(name).ok_or(UrlError::Scheme)?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = split_credentials(authority);
        let credentials = user.map(decode_credentials).transpose()?;
        let addresses = hosts.split(',').map(|host| parse_address(host, default_port));
        let addresses = addresses.collect::<Result<Vec<_>, _>>()?;
        let [first, others @ ..] = &*addresses else { return Err(UrlError::Host) };
        if addresses.len() > Self::ADDRESSES_MAX {
            return Err(UrlError::Addresses);
        }
        let client_id = match (client_id, &credentials) {
            (Some(client_id), _) => client_id,
            (None, Some((user, _))) => format!("{user}-{:012x}", fastrand::u64(..) >> 16),
            (None, None) => random_id(),
        };
        let mut options = Self::new(client_id, &*first.host, first.port);
        for other in others {
            options = options.add_address(&*other.host, other.port);
        }
        if let Some((user, password)) = credentials {
            options = options.credentials(user, password);
        }
        if is_tls {
            options = options.tls(Tls::default());
        }
        match (is_websocket, path) {
            (true, path) => Ok(options.transport(Transport::websocket(format!("/{path}")))),
            (false, "") => Ok(options),
            (false, _) => Err(UrlError::Unexpected("path")),
        }
    }
}

impl TryFrom<&str> for Options {
    type Error = UrlError;

    fn try_from(url: &str) -> Result<Self, UrlError> {
        Self::from_url(url)
    }
}

impl TryFrom<String> for Options {
    type Error = UrlError;

    fn try_from(url: String) -> Result<Self, UrlError> {
        Self::from_url(&url)
    }
}

impl std::str::FromStr for Options {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        Self::from_url(url)
    }
}

impl Proxy {
    /// Returns the proxy at a URL `http://[USER:PASSWORD@]HOST[:PORT]`. User name and password are
    /// percent-encoded. The default port is 80. Several hosts are an error.
    ///
    /// # Errors
    /// [`UrlError`] if the URL is invalid. The text of the error contains neither the user name nor
    /// the password.
    pub fn from_url(url: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = url.split_once("://").ok_or(UrlError::ProxyScheme)?;
        if !scheme.eq_ignore_ascii_case("http") {
            return Err(UrlError::ProxyScheme);
        }
        check_authority(rest)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err(UrlError::Unexpected("path or query"));
        }
        let (user, host) = split_credentials(authority);
        if host.contains(',') {
            return Err(UrlError::Host);
        }
        let Address { host, port } = parse_address(host, 80)?;
        let proxy = Self::new(host, port);
        match user.map(decode_credentials).transpose()? {
            // The colon separates user name and password in the header.
            Some((user, _)) if user.contains(':') => {
                Err(UrlError::Unexpected("colon in the user name"))
            }
            Some((user, password)) => Ok(proxy.credentials(user, password)),
            None => Ok(proxy),
        }
    }
}

impl std::str::FromStr for Proxy {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        Self::from_url(url)
    }
}

/// A fixed client id would let two programs disconnect each other.
pub(super) fn random_id() -> String {
    format!("statestore-{:012x}", fastrand::u64(..) >> 16)
}

fn client_id(query: &str) -> Result<Option<String>, UrlError> {
    let mut client_id = None;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("client_id", value)) => client_id = Some(decode(value)?),
            _ => return Err(UrlError::Parameter),
        }
    }
    Ok(client_id)
}

/// Checks that the part of a URL after `://` contains `@` only in the authority. Elsewhere, it ends
/// a password with an unencoded `/`, `?` or `#`, which must not appear in another error.
fn check_authority(rest: &str) -> Result<(), UrlError> {
    match rest.split_once(['/', '?', '#']) {
        Some((_, tail)) if tail.contains('@') => Err(UrlError::Credentials),
        _ => Ok(()),
    }
}

/// Splits an authority into the credentials, if any, and the hosts.
fn split_credentials(authority: &str) -> (Option<&str>, &str) {
    match authority.rsplit_once('@') {
        Some((user, hosts)) => (Some(user), hosts),
        None => (None, authority),
    }
}

/// Decodes a user name and a password, which are percent-encoded and separated by a colon.
fn decode_credentials(text: &str) -> Result<(String, String), UrlError> {
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    Ok((decode(user)?, decode(password)?))
}

/// Parses a host with an optional port. An IPv6 address has brackets around it.
fn parse_address(text: &str, default_port: u16) -> Result<Address, UrlError> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // Without brackets, a colon separates the port.
    let is_valid = match inside {
        Some(address) => !address.is_empty(),
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    };
    if !is_valid {
        return Err(UrlError::Host);
    }
    let port = match port {
        None => default_port,
        Some(port) => match port.parse() {
            Ok(port @ 1..) => port,
            _ => return Err(UrlError::Port),
        },
    };
    Ok(Address::new(decode(host)?, port))
}

/// Replaces percent-encoded bytes.
fn decode(text: &str) -> Result<String, UrlError> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2).ok_or(UrlError::Encoding)?;
        let digit =
            |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (Some(high), Some(low)) = (digit(digits[0]), digit(digits[1])) else {
            return Err(UrlError::Encoding);
        };
        bytes.push(high << 4 | low);
        rest = tail;
    }
    String::from_utf8(bytes).map_err(|_| UrlError::Encoding)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(url: &str) -> Vec<String> {
        let options = Options::from_url(url).expect(url);
        options.addresses().map(|address| address.to_string()).collect()
    }

    #[test]
    fn scheme_selects_port_encryption_and_transport() {
        for (url, port, is_tls, transport) in [
            ("mqtt://h", 1883, false, Transport::Tcp),
            ("MQTTS://h", 8883, true, Transport::Tcp),
            ("ws://h/mqtt", 80, false, Transport::websocket("/mqtt")),
            ("wss://h", 443, true, Transport::websocket("/")),
        ] {
            let options = Options::from_url(url).expect(url);
            assert_eq!((&*options.host, options.port), ("h", port), "{url}");
            assert_eq!(options.tls.is_some(), is_tls, "{url}");
            assert_eq!(options.transport, transport, "{url}");
        }
    }

    #[test]
    fn hosts_have_ports_and_may_be_ipv6() {
        assert_eq!(addresses("mqtt://[::1]"), ["[::1]:1883"]);
        assert_eq!(addresses("mqtt://[::1]:7,b"), ["[::1]:7", "b:1883"]);
        assert_eq!(addresses("mqtt://a:1,b:2/"), ["a:1", "b:2"]);
    }

    #[test]
    fn unix_url_has_a_path_in_place_of_a_host() {
        let options = Options::from_url("unix:///run/a%20b.sock").expect("a path");
        assert_eq!(options.host, "/run/a b.sock");
        assert_eq!(Options::from_url("unix://run").map(drop), Err(UrlError::Host));
    }

    #[test]
    fn client_ids_without_a_parameter_differ() {
        let id = |url: &str| Options::from_url(url).expect(url).client_id;
        assert_eq!(id("mqtt://h?client_id=a%26b"), "a&b");
        let (first, second) = (id("mqtt://h"), id("mqtt://h"));
        assert_ne!(first, second);
        let named = id("mqtt://al%2Dice:secret@h");
        assert!(named.starts_with("al-ice-") && named.len() > 15, "{named}");
        assert!(first.len() <= 23, "brokers must accept 23 bytes: {first}");
    }

    #[test]
    fn invalid_urls_are_errors() {
        let many = format!("mqtt://{}", ["h"; 17].join(","));
        for (url, error) in [
            ("localhost", UrlError::Scheme),
            ("http://h", UrlError::Scheme),
            ("mqtt://", UrlError::Host),
            ("mqtt://a,,b", UrlError::Host),
            ("mqtt://h:0", UrlError::Port),
            ("mqtt://h:65536", UrlError::Port),
            ("mqtt://h:x", UrlError::Port),
            ("mqtt://h:", UrlError::Port),
            ("mqtt://alice:secret", UrlError::Port),
            ("mqtt://h?secret", UrlError::Parameter),
            ("mqtt://u:%zz@h", UrlError::Encoding),
            ("mqtt://u:%f@h", UrlError::Encoding),
            ("mqtt://u:%ff@h", UrlError::Encoding),
            ("mqtt://::1", UrlError::Host),
            ("mqtt://[::1", UrlError::Host),
            ("mqtt://alice:12/34@h", UrlError::Credentials),
            ("mqtt://alice:a?b=c@h", UrlError::Credentials),
            ("mqtt://alice:pa#ss@h", UrlError::Credentials),
            ("mqtt://h/path", UrlError::Unexpected("path")),
            ("mqtt://h?keep_alive=5", UrlError::Parameter),
            (&*many, UrlError::Addresses),
        ] {
            let found = Options::from_url(url).map(drop);
            assert!(!format!("{found:?}").contains("secret"), "{found:?}");
            assert_eq!(found, Err(error), "{url}");
        }
    }
}
