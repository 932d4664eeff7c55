//! Protection against web pages: a browser lets any page send requests to any address that it
//! reaches, and shows the page the response if their names are the same. An attacker can let the
//! name of a page resolve to this address (DNS rebinding), but the request then has that name.

use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{Request, StatusCode, Version};

use crate::host_name::is_address_or_localhost;

/// The names by which clients may address this server, apart from IP addresses and `localhost`.
#[derive(Debug)]
pub(super) struct AllowedHosts(Vec<String>);

/// Reason why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    /// The request lacks a valid `Host`, or has several.
    NoHost,
    /// The name is not allowed.
    Host,
    /// The request is from a web page of another server.
    Origin,
}

impl Rejection {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::NoHost => StatusCode::BAD_REQUEST,
            Self::Host => StatusCode::MISDIRECTED_REQUEST,
            Self::Origin => StatusCode::FORBIDDEN,
        }
    }

    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::NoHost => "a request must have one valid Host header",
            Self::Host => {
                "this host name is not allowed: use an IP address or localhost, or allow the name \
                 with --http-allowed-hosts"
            }
            Self::Origin => "web pages of other servers have no access",
        }
    }
}

impl AllowedHosts {
    pub(super) fn new(names: &[String]) -> Self {
        Self(names.to_vec())
    }

    /// Checks the name by which a client addresses this server.
    ///
    /// A request of HTTP/1.0 may lack it: browsers send HTTP/1.1, but some health checks do not.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<(), Rejection> {
        match authority(request)? {
            Some(authority) if self.allows(authority.host()) => Ok(()),
            Some(_) => Err(Rejection::Host),
            None if request.version() == Version::HTTP_10 => Ok(()),
            None => Err(Rejection::NoHost),
        }
    }

    fn allows(&self, host: &str) -> bool {
        let name = host.strip_suffix('.').unwrap_or(host);
        is_address_or_localhost(host) || self.0.iter().any(|other| other.eq_ignore_ascii_case(name))
    }
}

/// Rejects a web page of another server. A browser sends the origin of a page with its requests to
/// other servers.
pub(super) fn check_origin<B>(request: &Request<B>) -> Result<(), Rejection> {
    let host = authority(request)?;
    let is_own = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix("http://"));
        origin.is_some_and(|origin| host.as_ref().is_some_and(|host| host == origin))
    };
    let mut origins = request.headers().get_all(ORIGIN).iter();
    if origins.all(is_own) { Ok(()) } else { Err(Rejection::Origin) }
}

/// Returns the host and port of the request target, or else of the header `Host`.
fn authority<B>(request: &Request<B>) -> Result<Option<Authority>, Rejection> {
    let header = host(request.headers())?;
    match request.uri().authority() {
        Some(target) if is_host_and_port(target) => Ok(Some(target.clone())),
        Some(_) => Err(Rejection::NoHost),
        None => Ok(header),
    }
}

fn host(headers: &HeaderMap) -> Result<Option<Authority>, Rejection> {
    let mut values = headers.get_all(HOST).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let authority = Authority::try_from(value.as_bytes()).ok();
    match authority.filter(is_host_and_port) {
        Some(authority) if values.next().is_none() => Ok(Some(authority)),
        _ => Err(Rejection::NoHost),
    }
}

/// Returns whether an authority lacks a user, and has a numeric port or none.
fn is_host_and_port(authority: &Authority) -> bool {
    let has_port = authority.as_str().len() > authority.host().len();
    !authority.as_str().contains('@') && (!has_port || authority.port_u16().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(target: &str, version: Version, headers: &[(&str, &str)]) -> Request<()> {
        let request = Request::builder().uri(target).version(version);
        let add = |request: hyper::http::request::Builder, (name, value): &(&str, &str)| {
            request.header(*name, *value)
        };
        headers.iter().fold(request, add).body(()).unwrap()
    }

    #[test]
    fn only_allowed_names_addresses_and_localhost_are_served() {
        let hosts = AllowedHosts::new(&["store.example".to_owned()]);
        let check =
            |host| hosts.check(&request("/metrics", Version::HTTP_11, &[("Host", host)])).err();
        for host in [
            "127.0.0.1",
            "127.0.0.1:9464",
            "192.0.2.7:80",
            "[::1]:9464",
            "[2001:db8::1]",
            "localhost",
            "LocalHost:9464",
            "localhost.:9464",
            "store.example:9464",
            "STORE.example.",
        ] {
            assert_eq!(check(host), None, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9464",
            "store.example.evil.example",
            "xstore.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "store.example..",
            "127.1",
        ] {
            assert_eq!(check(host), Some(Rejection::Host), "{host}");
        }
        for host in [
            "",
            "a b",
            "localhost@evil.example",
            "evil.example@localhost",
            "a/b",
            "h:x:y",
            "localhost:http",
            "localhost:65536",
            "[::1]x",
        ] {
            assert_eq!(check(host), Some(Rejection::NoHost), "{host:?}");
        }
    }

    #[test]
    fn host_is_required_once_except_in_http_1_0() {
        let hosts = AllowedHosts::new(&[]);
        let check = |target, version, headers: &[(&str, &str)]| {
            hosts.check(&request(target, version, headers)).err()
        };
        assert_eq!(check("/", Version::HTTP_10, &[]), None);
        assert_eq!(
            check("/", Version::HTTP_10, &[("Host", "evil.example")]),
            Some(Rejection::Host)
        );
        assert_eq!(check("/", Version::HTTP_11, &[]), Some(Rejection::NoHost));
        let twice = [("Host", "localhost"), ("Host", "evil.example")];
        assert_eq!(check("/", Version::HTTP_11, &twice), Some(Rejection::NoHost));
        // The target has precedence over the header.
        let local = [("Host", "localhost")];
        let target = "http://evil.example/metrics";
        assert_eq!(check(target, Version::HTTP_11, &local), Some(Rejection::Host));
        assert_eq!(check("http://localhost:1/metrics", Version::HTTP_11, &local), None);
        for target in ["http://evil.example@localhost/metrics", "http://localhost:x/metrics"] {
            assert_eq!(
                check(target, Version::HTTP_11, &local),
                Some(Rejection::NoHost),
                "{target}"
            );
        }
    }

    #[test]
    fn web_pages_of_other_servers_are_rejected() {
        let check = |origins: &[&str]| {
            let host = [("Host", "localhost:9464")];
            let origins = origins.iter().map(|origin| ("Origin", *origin));
            let headers: Vec<_> = host.into_iter().chain(origins).collect();
            check_origin(&request("/traffic", Version::HTTP_11, &headers)).err()
        };
        assert_eq!(check(&[]), None);
        assert_eq!(check(&["http://localhost:9464"]), None);
        for origins in [
            &["http://evil.example"][..],
            &["null"],
            &[""],
            &["https://localhost:9464"],
            &["http://localhost:80"],
            &["http://localhost:9464", "http://evil.example"],
        ] {
            assert_eq!(check(origins), Some(Rejection::Origin), "{origins:?}");
        }
    }
}
