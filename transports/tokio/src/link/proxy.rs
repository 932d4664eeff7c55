//! An HTTP proxy between a client and its broker.

use std::fmt;

use super::address::Address;

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
    use super::super::url::UrlError;
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
