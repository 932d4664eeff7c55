//! Where etcd is, and who this store is among its like.

use std::fmt;
#[cfg(feature = "tls")]
use std::path::PathBuf;
use std::time::Duration;

use crate::error::OptionsError;
use crate::limits::{LEASE_MAX, LEASE_MIN, PREFIX_BYTES_MAX, is_label};

/// What is below it belongs to a store of no other name.
const PREFIX: &str = "/statestore/";

/// Where etcd is, and how it is used. All stores that stand by for each other have the same endpoints and prefix.
///
/// ```
/// use std::time::Duration;
/// use statestore_etcd::Options;
///
/// let options = Options::new(["http://10.0.0.1:2379", "http://10.0.0.2:2379", "http://10.0.0.3:2379"])
///     .prefix("/ss/plant-7/")
///     .name("edge-2")
///     .advertise("mqtt://10.0.0.2:1883")
///     .lease(Duration::from_secs(3));
/// # let _ = options;
/// ```
#[derive(Clone)]
#[must_use = "options do nothing by themselves"]
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

/// Certificates for connections to etcd, as files in PEM format. They are read at each start.
#[cfg(feature = "tls")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The authorities that have signed the certificates of etcd. There are no others.
    pub authorities: PathBuf,
    /// The certificate of this client and its key, where etcd asks for one (`--client-cert-auth`).
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that etcd's certificate is for, where that is not the host of its endpoint.
    pub server_name: Option<String>,
}

#[cfg(feature = "tls")]
impl Tls {
    /// Trusts these authorities, and shows no certificate.
    pub fn new(authorities: impl Into<PathBuf>) -> Self {
        Self { authorities: authorities.into(), ..Self::default() }
    }

    /// Shows this certificate, which belongs to this key.
    #[must_use]
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Expects a certificate for this name.
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

impl Options {
    /// The members of etcd, each as `http://HOST:PORT`, or `https://HOST:PORT` with the feature `tls`. One that is down does
    /// no harm while another answers.
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

    /// What all keys begin with, `/statestore/` by default. Nobody else may write below it. Begins and ends with a slash,
    /// and has 256 bytes at most.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// What others see of this store when it leads, such as the name of its machine; by default the number of its process.
    /// One line of 256 bytes at most.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Where clients reach this store when it leads, for standbys to pass on. One line of 256 bytes at most; of what form is
    /// between the stores and their clients.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.address = address.into();
        self
    }

    /// A user of etcd and its password.
    pub fn user(mut self, name: impl Into<String>, password: impl Into<String>) -> Self {
        self.user = Some((name.into(), password.into()));
        self
    }

    /// How long nobody leads, at most, after a leader has died without resigning; 5 s by default, 2 to 600 s, whole seconds. A
    /// leader that cannot reach etcd for as long as that, less [a margin](crate::Leadership::is_held), stops.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Connects over TLS, to endpoints that all begin with `https`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The endpoints for a message.
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
        for endpoint in &self.endpoints {
            let scheme = if self.is_secure() { "https://" } else { "http://" };
            let host = endpoint.strip_prefix(scheme).unwrap_or_default();
            if host.contains('@') {
                return Err(OptionsError::EndpointWithUser);
            }
            if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c.is_control()) {
                return Err(OptionsError::Endpoint(endpoint.clone()));
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

/// Without the password.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("endpoints", &self.endpoints)
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
    fn what_cannot_be_is_named() {
        assert_eq!(options().check(), Ok(()));
        assert_eq!(Options::new::<String>([]).check(), Err(OptionsError::NoEndpoint));
        for endpoint in ["127.0.0.1:2379", "http://", "mqtt://host:1", "http://a b:1"] {
            let wrong = Err(OptionsError::Endpoint(endpoint.to_owned()));
            assert_eq!(Options::new([endpoint]).check(), wrong);
        }
        let with_user = Options::new(["http://root:secret@127.0.0.1:2379"]).check();
        assert_eq!(with_user, Err(OptionsError::EndpointWithUser));
        // One without the other would send in the clear what was meant to be secret, or trust nobody.
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
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", options().user("root", "secret"));
        assert!(shown.contains("root") && !shown.contains("secret"), "{shown}");
    }
}
