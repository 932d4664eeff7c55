//! An HTTP proxy between a client and its broker.

use std::fmt;
use std::str::FromStr;

use super::address::Address;
use super::url::{self, UrlError};

/// An HTTP proxy that opens TCP connections to brokers, with the method CONNECT.
///
/// See [`Options::proxy`](crate::Options::proxy) for the limits and errors.
///
/// ```
/// use statestore_tokio::Proxy;
///
/// let proxy = Proxy::from_url("http://lamp:p%40ss@proxy.example:3128")?;
/// assert_eq!(proxy, Proxy::new("proxy.example", 3128).credentials("lamp", "p@ss"));
/// assert_eq!(proxy.to_string(), "http://proxy.example:3128");
/// # Ok::<(), statestore_tokio::UrlError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proxy {
    /// Address of the proxy.
    pub address: Address,
    /// User name and password for the proxy.
    pub credentials: Option<(String, String)>,
}

impl Proxy {
    /// Returns the proxy at this port of this host.
    #[must_use]
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { address: Address::new(host, port), credentials: None }
    }

    /// Sets user name and password for the proxy. They are sent without encryption (*Basic*
    /// authentication). A user name cannot contain a colon.
    #[must_use]
    pub fn credentials(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.credentials = Some((user.into(), password.into()));
        self
    }

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
        url::check_authority(rest)?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err(UrlError::Unexpected("path or query"));
        }
        let (user, host) = url::split_credentials(authority);
        if host.contains(',') {
            return Err(UrlError::Host);
        }
        let Address { host, port } = url::parse_address(host, 80)?;
        let proxy = Self::new(host, port);
        match user.map(url::decode_credentials).transpose()? {
            // The colon separates user name and password in the header.
            Some((user, _)) if user.contains(':') => {
                Err(UrlError::Unexpected("colon in the user name"))
            }
            Some((user, password)) => Ok(proxy.credentials(user, password)),
            None => Ok(proxy),
        }
    }
}

impl FromStr for Proxy {
    type Err = UrlError;

    fn from_str(url: &str) -> Result<Self, UrlError> {
        Self::from_url(url)
    }
}

/// The URL without user name and password.
impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.address)
    }
}

/// Omits user name and password.
impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_has_host_port_and_credentials() {
        for (url, proxy) in [
            ("http://proxy:3128", Proxy::new("proxy", 3128)),
            ("HTTP://proxy/", Proxy::new("proxy", 80)),
            ("http://[::1]:8080", Proxy::new("[::1]", 8080)),
            ("http://me:p%3A%40@proxy:1", Proxy::new("proxy", 1).credentials("me", "p:@")),
            ("http://me@proxy:1", Proxy::new("proxy", 1).credentials("me", "")),
        ] {
            assert_eq!(Proxy::from_url(url), Ok(proxy), "{url}");
        }
    }

    #[test]
    fn invalid_url_is_an_error_without_the_password() {
        for (url, error) in [
            ("proxy:3128", UrlError::ProxyScheme),
            ("https://proxy:3128", UrlError::ProxyScheme),
            ("socks5://me:secret@proxy", UrlError::ProxyScheme),
            ("http://", UrlError::Host),
            ("http://me:secret@", UrlError::Host),
            ("http://a,b", UrlError::Host),
            ("http://me:secret@proxy:0", UrlError::Port),
            ("http://me:secret", UrlError::Port),
            ("http://me:sec/ret@proxy", UrlError::Credentials),
            ("http://me:%zzsecret@proxy", UrlError::Encoding),
            ("http://a%3Ab:secret@proxy", UrlError::Unexpected("colon in the user name")),
            ("http://proxy/path", UrlError::Unexpected("path or query")),
            ("http://proxy?query", UrlError::Unexpected("path or query")),
        ] {
            let found = Proxy::from_url(url).expect_err(url);
            assert_eq!(found, error, "{url}");
            assert!(!found.to_string().contains("secret"), "{found}");
        }
    }

    #[test]
    fn text_and_debug_output_omit_the_credentials() {
        let proxy = Proxy::new("proxy", 3128).credentials("hidden-user", "hidden-password");
        assert!(!format!("{proxy} {proxy:?}").contains("hidden"), "{proxy:?}");
    }
}
