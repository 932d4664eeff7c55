//! The TLS configuration of listeners, which can be replaced while the broker runs.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::SystemTime;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;

use super::client_trust::{ClientTrust, RevocationPolicy};
use super::error::{TlsError, TlsPart, TlsWarning};
use super::pem::{ParsedTls, TlsPem};
use crate::files::{LoadError, ReloadFile};

/// Minimum number of registered certificates for a sweep.
const SWEEP_MIN: usize = 1_024;

/// Maximum length of a certificate file and of a key file in bytes.
const PEM_MAX: u64 = 1 << 20;

/// Maximum length of a file of revocation lists in bytes: at least 150,000 revoked certificates.
const REVOCATION_LIST_MAX: u64 = 8 << 20;

/// TLS of one or several [listeners](crate::Listener). Clones share the same configuration. Needs
/// the feature `tls`.
///
/// The certificate, the key, the client CAs and the revocation lists can be replaced while the
/// broker runs: [`reload`](Self::reload) reads the files again. All of them are replaced or none.
/// Existing connections stay. New handshakes use the new files, and cannot resume a session from
/// before. [`Broker::recheck`](crate::Broker::recheck) then disconnects clients whose certificate
/// was revoked or whose CA is no longer trusted. For this, each client with a certificate stores
/// its certificate chain, at most 16 KiB; clients with a longer chain are rejected.
///
/// ```
/// use statestore_server::{Listener, Options, ServerTls, TlsFiles};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let run = || -> Result<(), Box<dyn std::error::Error>> {
/// let files = TlsFiles::new("broker.pem", "broker.key")
///     .client_ca("clients-ca.pem")
///     .revocation_list("clients-ca.crl");
/// let tls = ServerTls::load(files)?;
/// for warning in tls.warnings() {
///     eprintln!("{warning}");
/// }
/// // MQTT with TLS for the network, and without TLS for this machine.
/// let options = Options::new(([127, 0, 0, 1], 1883))
///     .listener(Listener::new(([0, 0, 0, 0], 8883)).tls(tls.clone()));
/// // Later, when the files have changed:
/// tls.reload()?;
/// # Ok(()) }; assert!(run().is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ServerTls(Arc<Inner>);

struct Inner {
    files: Option<OpenFiles>,
    state: RwLock<Arc<TlsState>>,
    clients: ClientRegistry,
    /// Held during a replacement, so that two do not run at the same time.
    replacing: Mutex<()>,
}

/// Paths of the PEM files of a TLS configuration. The broker reads at most 1 MiB of each file, and
/// 8 MiB of a revocation list.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    chain: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
    revocation_lists: Vec<PathBuf>,
    policy: RevocationPolicy,
}

impl TlsFiles {
    /// The certificate chain of this broker, its own certificate first, and the private key.
    #[must_use]
    pub fn new(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self {
            chain: chain.into(),
            key: key.into(),
            client_ca: None,
            revocation_lists: Vec::new(),
            policy: RevocationPolicy::default(),
        }
    }

    /// Requires a client certificate from one of the CAs in this file.
    #[must_use]
    pub fn client_ca(mut self, path: impl Into<PathBuf>) -> Self {
        self.client_ca = Some(path.into());
        self
    }

    /// Adds a file with one or several certificate revocation lists (`X509 CRL`).
    #[must_use]
    pub fn revocation_list(mut self, path: impl Into<PathBuf>) -> Self {
        self.revocation_lists.push(path.into());
        self
    }

    /// Sets what a missing and an expired revocation list mean.
    #[must_use]
    pub const fn revocation_policy(mut self, policy: RevocationPolicy) -> Self {
        self.policy = policy;
        self
    }
}

/// The files of a configuration, with the versions that were read last.
struct OpenFiles {
    chain: ReloadFile,
    key: ReloadFile,
    client_ca: Option<ReloadFile>,
    revocation_lists: Vec<ReloadFile>,
    policy: RevocationPolicy,
}

impl OpenFiles {
    fn new(files: TlsFiles) -> Self {
        let pem = |path| ReloadFile::new(path, PEM_MAX);
        let list = |path| ReloadFile::new(path, REVOCATION_LIST_MAX);
        Self {
            chain: pem(files.chain),
            key: pem(files.key),
            client_ca: files.client_ca.map(pem),
            revocation_lists: files.revocation_lists.into_iter().map(list).collect(),
            policy: files.policy,
        }
    }

    fn all(&self) -> Vec<&ReloadFile> {
        let both = [&self.chain, &self.key];
        both.into_iter().chain(&self.client_ca).chain(&self.revocation_lists).collect()
    }

    /// Reads and checks all files.
    fn load(&self) -> Result<ParsedTls, LoadError> {
        let read = |file: &ReloadFile| file.read().map_err(|error| LoadError::new(file, error));
        let (chain, key) = (read(&self.chain)?, read(&self.key)?);
        let is_exposed = key.is_readable_by_all;
        let client_ca = self.client_ca.as_ref().map(read).transpose()?;
        let lists = self.revocation_lists.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let pem = TlsPem {
            chain: chain.bytes,
            key: key.bytes,
            client_ca: client_ca.map(|contents| contents.bytes),
            revocation_lists: lists.into_iter().map(|contents| contents.bytes).collect(),
            policy: self.policy,
        };
        let mut parsed = ParsedTls::new(&pem).map_err(|error| {
            let file = match error.part() {
                TlsPart::Chain => Some(&self.chain),
                TlsPart::Key => Some(&self.key),
                TlsPart::ClientCa => self.client_ca.as_ref(),
                TlsPart::RevocationList(number) => self.revocation_lists.get(number),
            };
            LoadError::new(file.unwrap_or(&self.chain), error)
        })?;
        if is_exposed {
            parsed.warnings.push(TlsWarning::KeyReadableByAll(self.key.path().to_owned()));
        }
        Ok(parsed)
    }
}

/// One version of a TLS configuration.
pub(crate) struct TlsState {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) trust: Option<Arc<ClientTrust>>,
    /// Number of changes of the client CAs and the revocation lists.
    pub(super) trust_generation: u64,
    not_after: Option<SystemTime>,
    warnings: Vec<TlsWarning>,
}

impl TlsState {
    fn new(parsed: ParsedTls, previous: Option<&Self>) -> Self {
        let ParsedTls { config, trust, not_after, warnings } = parsed;
        let (before, generation) = match previous {
            Some(previous) => (previous.trust.as_ref(), previous.trust_generation),
            None => (None, 0),
        };
        let is_unchanged = match (before, &trust) {
            (Some(before), Some(trust)) => before.is_same(trust),
            (None, None) => true,
            _ => false,
        };
        let trust_generation = if is_unchanged { generation } else { generation + 1 };
        Self { config, trust: trust.map(Arc::new), trust_generation, not_after, warnings }
    }
}

impl ServerTls {
    /// Reads a configuration from files. Blocks.
    ///
    /// # Errors
    /// [`LoadError`] if a file cannot be read or is unusable, if the key does not belong to the
    /// certificate, or if the certificate is not valid now.
    pub fn load(files: TlsFiles) -> Result<Self, LoadError> {
        let files = OpenFiles::new(files);
        let parsed = files.load()?;
        Ok(Self::new(TlsState::new(parsed, None), Some(files)))
    }

    /// Creates a configuration from the contents of PEM files.
    ///
    /// # Errors
    /// [`TlsError`] under the conditions of [`load`](Self::load).
    pub fn from_pem(pem: &TlsPem) -> Result<Self, TlsError> {
        Ok(Self::new(TlsState::new(ParsedTls::new(pem)?, None), None))
    }

    /// Uses any configuration of rustls, for example one that gets its certificates by ACME. The
    /// broker does not know its client CAs, so client certificates identify no
    /// [users](crate::CertificateUsers) and are not checked again after the handshake.
    #[must_use]
    pub fn from_config(config: Arc<ServerConfig>) -> Self {
        let state = TlsState {
            config,
            trust: None,
            trust_generation: 0,
            not_after: None,
            warnings: Vec::new(),
        };
        Self::new(state, None)
    }

    fn new(state: TlsState, files: Option<OpenFiles>) -> Self {
        Self(Arc::new(Inner {
            files,
            state: RwLock::new(Arc::new(state)),
            clients: ClientRegistry::default(),
            replacing: Mutex::default(),
        }))
    }

    /// Reads all files again, checks them, and replaces all of them or none. Does nothing if this
    /// configuration was not [loaded](Self::load) from files. Blocks; verifies the certificates of
    /// all connected clients again if the client CAs or the revocation lists have changed.
    ///
    /// # Errors
    /// [`LoadError`], and nothing has changed. A revocation list must stay or be replaced by a newer
    /// one of the same CA, unless the CA is removed too.
    pub fn reload(&self) -> Result<(), LoadError> {
        let Some(files) = &self.0.files else { return Ok(()) };
        let _guard = self.0.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        let parsed = files.load()?;
        let (state, next) = (self.state(), parsed.trust.as_ref());
        if state.trust.as_ref().zip(next).is_some_and(|(now, next)| now.loses_revocations(next)) {
            let file = files.revocation_lists.first().unwrap_or(&files.chain);
            return Err(LoadError::new(file, TlsError::RevocationListWithdrawn));
        }
        self.replace(parsed);
        Ok(())
    }

    /// Replaces the configuration by the contents of other PEM files. Blocks like
    /// [`reload`](Self::reload), which would read the files again. Clients that are connected
    /// without a certificate stay connected, even if a client CA is new.
    ///
    /// # Errors
    /// [`TlsError`], and nothing has changed.
    pub fn replace_pem(&self, pem: &TlsPem) -> Result<(), TlsError> {
        let _guard = self.0.replacing.lock().unwrap_or_else(PoisonError::into_inner);
        self.replace(ParsedTls::new(pem)?);
        Ok(())
    }

    fn replace(&self, parsed: ParsedTls) {
        let state = Arc::new(TlsState::new(parsed, Some(&self.state())));
        *self.0.state.write().unwrap_or_else(PoisonError::into_inner) = state;
        self.0.clients.verify_all();
    }

    /// Returns when the certificate of this broker expires. `None` for a configuration
    /// [of rustls](Self::from_config).
    #[must_use]
    pub fn not_after(&self) -> Option<SystemTime> {
        self.state().not_after
    }

    /// Returns warnings about the current configuration.
    #[must_use]
    pub fn warnings(&self) -> Vec<TlsWarning> {
        self.state().warnings.clone()
    }

    /// Returns whether clients need a certificate. False for a configuration
    /// [of rustls](Self::from_config).
    #[must_use]
    pub fn requires_client_certificate(&self) -> bool {
        self.state().trust.is_some()
    }

    /// Returns whether both are clones of one configuration.
    #[cfg(feature = "server")]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn files(&self) -> Vec<&ReloadFile> {
        self.0.files.as_ref().map(OpenFiles::all).unwrap_or_default()
    }

    pub(crate) fn state(&self) -> Arc<TlsState> {
        Arc::clone(&self.0.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Registers the chain of a client that has completed its handshake with `state`. Returns
    /// `None` if the chain is too long.
    pub(crate) fn register_client(
        &self,
        state: &TlsState,
        chain: &[CertificateDer<'_>],
    ) -> Option<Arc<ClientCertificate>> {
        let certificate = ClientCertificate::new(self, state.trust_generation, chain)?;
        let certificate = Arc::new(certificate);
        self.0.clients.add(&certificate);
        Some(certificate)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths: Vec<_> = self.files().into_iter().map(ReloadFile::path).collect();
        f.debug_struct("ServerTls").field("files", &paths).finish_non_exhaustive()
    }
}

/// The certificate chain of a client, as long as its connection or its session exists.
pub(crate) struct ClientCertificate {
    tls: ServerTls,
    chain: Vec<CertificateDer<'static>>,
    /// Twice the number of the trust generation that was checked last, plus one if the chain was
    /// accepted.
    verdict: AtomicU64,
}

impl ClientCertificate {
    /// Maximum length of a chain in bytes. Usual chains have one to four kilobytes.
    pub(crate) const CHAIN_MAX: usize = 16 << 10;

    /// Copies a chain that was accepted by the handshake, with the client CAs of this generation.
    /// Returns `None` if it exceeds [`CHAIN_MAX`](Self::CHAIN_MAX).
    pub(super) fn new(
        tls: &ServerTls,
        generation: u64,
        chain: &[CertificateDer<'_>],
    ) -> Option<Self> {
        let length: usize = chain.iter().map(|certificate| certificate.len()).sum();
        let copy = || chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        (length <= Self::CHAIN_MAX).then(|| Self {
            tls: tls.clone(),
            chain: copy(),
            verdict: AtomicU64::new(encode(generation, true)),
        })
    }

    /// Returns whether a handshake would accept the certificate now. Verifies signatures only
    /// after the client CAs or the revocation lists have changed, and then usually in the reload.
    pub(crate) fn is_trusted(&self) -> bool {
        let state = self.tls.state();
        let verdict = self.verdict.load(Ordering::Acquire);
        if verdict >> 1 == state.trust_generation {
            return verdict & 1 == 1;
        }
        let accepted = state.trust.as_ref().is_some_and(|trust| trust.accepts(&self.chain));
        self.verdict.store(encode(state.trust_generation, accepted), Ordering::Release);
        accepted
    }
}

const fn encode(generation: u64, accepted: bool) -> u64 {
    (generation << 1) | accepted as u64
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").field("certificates", &self.chain.len()).finish()
    }
}

/// The certificates of all clients of one [`ServerTls`], so that a reload can verify them again.
#[derive(Default)]
struct ClientRegistry(Mutex<Vec<Weak<ClientCertificate>>>);

impl ClientRegistry {
    fn add(&self, certificate: &Arc<ClientCertificate>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The vector grows by doubling, so sweeping it when it is full costs little.
        if all.len() >= SWEEP_MIN && all.len() == all.capacity() {
            all.retain(|other| other.strong_count() > 0);
        }
        all.push(Arc::downgrade(certificate));
    }

    /// Verifies all certificates again. Takes about 0.1 ms for each, so call it off the event loop.
    fn verify_all(&self) {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for certificate in all.iter().filter_map(Weak::upgrade) {
            certificate.is_trusted();
        }
    }
}
