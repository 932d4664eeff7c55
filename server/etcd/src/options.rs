//! Options: address and use of etcd, and identity of this store.

use std::fmt;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::time::Duration;

use crate::error::OptionsError;
use crate::limits::{LEASE_MAX, LEASE_MIN, PREFIX_BYTES_MAX, is_label};

/// Default prefix.
const PREFIX: &str = "/statestore/";

/// Address and use of etcd. All stores that fail over to each other have the same endpoints and
/// prefix.
///
/// ```
/// use std::time::Duration;
/// use statestore_etcd::Options;
///
/// let members = ["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"];
/// let options = Options::new(members)
///     .prefix("/ss/plant-7/")
///     .name("edge-2")
///     .advertise("mqtt://10.0.0.2:1883")
///     .lease(Duration::from_secs(3));
/// # let _ = options;
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a journal uses them"]
pub struct Options {
    pub(crate) endpoints: Vec<String>,
    pub(crate) prefix: String,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) user: Option<(String, String)>,
    pub(crate) lease: Duration,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<Tls>,
}

/// Certificates for connections to etcd, as files in PEM format. Each journal reads them when it
/// connects.
#[cfg(feature = "tls")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// CA certificates that are trusted for etcd. The CAs of the system are not.
    pub authorities: PathBuf,
    /// Client certificate and key, if etcd requires one (`--client-cert-auth`).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Name in the certificate of etcd, if it differs from the host of the endpoint.
    pub server_name: Option<String>,
}

#[cfg(feature = "tls")]
impl Tls {
    /// Trusts these CAs, and sends no client certificate.
    pub fn new(authorities: impl Into<PathBuf>) -> Self {
        Self { authorities: authorities.into(), ..Self::default() }
    }

    /// Sends this client certificate, which belongs to this key.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Requires that the certificate of etcd contains this name.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

impl Options {
    /// Uses these members of etcd, each as `http://HOST:PORT`, or `https://HOST:PORT` with the
    /// feature `tls`. One that responds is enough.
    pub fn new<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: PREFIX.to_owned(),
            name: format!("process {}", std::process::id()),
            address: String::new(),
            user: None,
            lease: Duration::from_secs(5),
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Sets the prefix of all keys, by default `/statestore/`. Only stores may write below it. It
    /// must begin and end with a slash, and have at most 256 bytes.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Sets the name of this store for other stores and operators, such as the name of its machine;
    /// by default the id of its process. One line of at most 256 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the address at which clients reach this store when it leads. Standbys read it from
    /// [`Leader::address`](crate::Leader::address). One line of at most 256 bytes in any form.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// Logs in to etcd with this user and password.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// Sets the lease: the longest time without a leader after a leader has died without resigning.
    /// 5 s by default; 2 to 600 whole seconds. A leader that cannot reach etcd for this time, less
    /// [a margin](crate::Leadership::is_held), stops.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Connects over TLS. All endpoints must begin with `https`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Formats the endpoints for a message.
    pub(crate) fn shown(&self) -> Box<str> {
        self.endpoints.join(", ").into()
    }

    #[cfg(feature = "tls")]
    const fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    #[cfg(not(feature = "tls"))]
    const fn is_secure(&self) -> bool {
        false
    }

    pub(crate) fn check(&self) -> Result<(), OptionsError> {
        if self.endpoints.is_empty() {
            return Err(OptionsError::NoEndpoint);
        }
        for (number, endpoint) in (1..).zip(&self.endpoints) {
            let scheme = if self.is_secure() { "https://" } else { "http://" };
            let host = endpoint.strip_prefix(scheme).unwrap_or_default();
            if endpoint.contains('@') {
                return Err(OptionsError::EndpointWithUser);
            }
            let is_host = has_valid_port(host)
                && !host.is_empty()
                && !host.contains(|c: char| c.is_whitespace() || c.is_control());
            if !is_host {
                return Err(OptionsError::Endpoint(number));
            }
        }
        let prefix = &self.prefix;
        let is_prefix = prefix.len() > 2 && prefix.starts_with('/') && prefix.ends_with('/');
        if !is_prefix || prefix.len() > PREFIX_BYTES_MAX || prefix.contains(char::is_control) {
            return Err(OptionsError::Prefix(prefix.clone()));
        }
        for label in [&self.name, &self.address] {
            if !is_label(label) {
                return Err(OptionsError::Label(label.clone()));
            }
        }
        let seconds = self.lease.as_secs();
        if !(LEASE_MIN..=LEASE_MAX).contains(&seconds) || self.lease.subsec_nanos() != 0 {
            return Err(OptionsError::Lease(seconds));
        }
        Ok(())
    }
}

/// Returns whether the port of a host, if any, is a number. Without a host, a password would be in
/// its place: `http://root:secret`.
fn has_valid_port(host: &str) -> bool {
    let authority = host.split('/').next().unwrap_or_default();
    match authority.rsplit_once(':') {
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok(),
        _ => true,
    }
}

/// Omits the password, and the endpoints, which may contain one until they are checked.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("endpoints", &self.endpoints.len())
            .field("prefix", &self.prefix)
            .field("name", &self.name)
            .field("address", &self.address)
            .field("user", &self.user.as_ref().map(|(name, _)| name))
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(["http://127.0.0.1:2379"])
    }

    #[test]
    fn invalid_options_are_refused() {
        assert_eq!(options().check(), Ok(()));
        assert_eq!(Options::new::<String>([]).check(), Err(OptionsError::NoEndpoint));
        for endpoint in
            ["127.0.0.1:2379", "http://", "mqtt://host:1", "http://a b:1", "http://root:secret"]
        {
            let wrong = Err(OptionsError::Endpoint(2));
            assert_eq!(Options::new(["http://[::1]:2379", endpoint]).check(), wrong, "{endpoint}");
        }
        let no_scheme = Options::new(["root:secret@127.0.0.1:2379"]).check();
        assert_eq!(no_scheme, Err(OptionsError::EndpointWithUser));
        let with_user = Options::new(["http://root:secret@127.0.0.1:2379"]).check();
        assert_eq!(with_user, Err(OptionsError::EndpointWithUser));
        // https without TLS options would trust no certificate; TLS options with http would send
        // secrets unencrypted.
        assert!(Options::new(["https://127.0.0.1:2379"]).check().is_err());
        #[cfg(feature = "tls")]
        {
            let secure = Options::new(["https://127.0.0.1:2379"]).tls(Tls::new("ca.pem"));
            assert_eq!(secure.check(), Ok(()));
            assert!(options().tls(Tls::new("ca.pem")).check().is_err());
        }
        for prefix in ["", "/", "//", "ss/", "/ss", "/s\ns/", &format!("/{}/", "x".repeat(255))] {
            let wrong = Err(OptionsError::Prefix(prefix.to_owned()));
            assert_eq!(options().prefix(prefix).check(), wrong);
        }
        assert_eq!(options().name("a\nb").check(), Err(OptionsError::Label("a\nb".to_owned())));
        assert!(options().advertise("x".repeat(257)).check().is_err());
        for millis in [0, 1_999, 2_500, 601_000] {
            let lease = Duration::from_millis(millis);
            assert_eq!(options().lease(lease).check(), Err(OptionsError::Lease(millis / 1_000)));
        }
        assert_eq!(options().lease(Duration::from_secs(2)).check(), Ok(()));
    }

    #[test]
    fn debug_output_omits_the_password() {
        let shown = format!("{:?}", options().user("root", "secret"));
        assert!(shown.contains("root") && !shown.contains("secret"), "{shown}");
    }
}
