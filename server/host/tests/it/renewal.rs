//! TLS files that are replaced while the broker runs.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use statestore_client::Tls;
use statestore_server::rustls::crypto::ring::sign::any_supported_type;
use statestore_server::rustls::pki_types::pem::PemObject;
use statestore_server::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use statestore_server::rustls::sign::{CertifiedKey, SingleCertAndKey};
use statestore_server::rustls::{ClientConfig, HandshakeKind, RootCertStore};
use statestore_server::{
    CertificateName, CertificateUsers, LoadErrorKind, Reloader, RevocationPolicy, TlsError,
    TlsFiles, TlsWarning, Users,
};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::timely;
use statestore_tokio::{Options as ClientOptions, Status};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

/// The files that a broker loads: copies of other files, which a test replaces.
pub(crate) struct Live(pub(crate) Certificates);

impl Live {
    pub(crate) fn new(test: &str) -> Option<Self> {
        let live = Self(Certificates::make(test)?);
        live.install("broker.pem", "live.pem");
        live.install("broker.key", "live.key");
        live.install("ca.pem", "live-ca.pem");
        live.0.make_revocation_list("none", "ca", &[], None);
        live.install("none.crl", "live.crl");
        Some(live)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    /// Copies a file by a rename, as certificate managers do.
    pub(crate) fn install(&self, from: &str, to: &str) {
        let new = self.path("new");
        fs::copy(self.path(from), &new).expect("copy file");
        fs::rename(new, self.path(to)).expect("rename file");
    }

    fn write(&self, to: &str, contents: &[u8]) {
        fs::write(self.path(to), contents).expect("write file");
    }

    fn files(&self) -> TlsFiles {
        TlsFiles::new(self.path("live.pem"), self.path("live.key"))
    }

    /// Files that require client certificates and check them for revocation.
    pub(crate) fn mutual_files(&self) -> TlsFiles {
        self.files().client_ca(self.path("live-ca.pem")).revocation_list(self.path("live.crl"))
    }

    /// A TLS client, with a certificate if it has a name. It resumes sessions.
    pub(crate) fn connector(&self, name: Option<&str>) -> TlsConnector {
        let parse = |name: &str| {
            CertificateDer::from_pem_slice(&self.0.read(&format!("{name}.pem"))).expect("PEM")
        };
        let mut roots = RootCertStore::empty();
        roots.add(parse("ca")).expect("a CA");
        let provider = statestore_server::rustls::crypto::ring::default_provider();
        let client = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let client = match name {
            None => client.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_slice(&self.0.read(&format!("{name}.key")));
                let key = any_supported_type(&key.expect("PEM")).expect("a key");
                // Certificates that no server accepts, too.
                let identity = CertifiedKey::new(vec![parse(name)], key);
                client.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
        };
        TlsConnector::from(Arc::new(client))
    }

    /// Options of a client with this certificate.
    fn client_options(&self, broker: &Broker, client_id: &str, name: &str) -> ClientOptions {
        let (chain, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        let tls = Tls::default().ca_file(self.path("ca.pem")).identity(chain, key);
        ClientOptions::new(client_id, "localhost", broker.local_addr().port()).tls(tls)
    }
}

/// Connects over TLS and sends a CONNECT. Returns the stream if a CONNACK with success arrives.
pub(crate) async fn connect(broker: &Broker, tls: &TlsConnector) -> Option<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(broker.local_addr()).await.ok()?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = tls.connect(name, stream).await.ok()?;
    // CONNECT without a client id, so that the broker assigns one.
    stream.write_all(b"\x10\x0d\0\x04MQTT\x05\x02\0\x3c\0\0\0").await.ok()?;
    let mut connack = [0; 4];
    stream.read_exact(&mut connack).await.ok()?;
    (connack[0] == 0x20 && connack[3] == 0).then_some(stream)
}

/// Returns the certificate that the broker presents.
async fn presented(broker: &Broker, tls: &TlsConnector) -> CertificateDer<'static> {
    let stream = TcpStream::connect(broker.local_addr()).await.expect("connect");
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = tls.connect(name, stream).await.expect("handshake");
    stream.get_ref().1.peer_certificates().expect("a chain")[0].clone().into_owned()
}

fn reloader(tls: &ServerTls) -> Reloader {
    let mut reloader = Reloader::default();
    reloader.add(tls.clone());
    reloader
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_renewals_under_load_lose_no_connection() {
    let Some(live) = Live::new("ten_renewals_under_load_lose_no_connection") else { return };
    timely(async {
        let tls = ServerTls::load(live.files()).expect("valid files");
        let reloader = reloader(&tls);
        let (broker, _service) = start(secured(tls)).await;
        let (count, mut tasks) = (Arc::new(AtomicU64::new(0)), tokio::task::JoinSet::new());
        for number in 0..8 {
            let options = live.client_options(&broker, &format!("client-{number}"), "client");
            let store = statestore_client::connect(options).expect("a client id");
            store.wait_connected().await.expect("connect");
            let mut status = store.status();
            assert_eq!(status.current(), Status::Online);
            let count = Arc::clone(&count);
            tasks.spawn(async move {
                loop {
                    tokio::select! {
                        status = status.changed() => panic!("connection lost: {status:?}"),
                        set = store.set("k", "v") => set.expect("a version"),
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let anonymous = live.connector(None);
        for renewal in 0..10 {
            let before = count.load(Ordering::Relaxed);
            live.0.make_broker("next", "ca");
            live.install("next.key", "live.key");
            live.install("next.pem", "live.pem");
            let reloaded = reloader.reload_all(Some(&broker)).await;
            assert!(reloaded.reports.iter().all(|report| report.result.is_ok()), "{reloaded:?}");
            assert_eq!(reloaded.disconnected, 0, "renewal {renewal}");
            let next = CertificateDer::from_pem_slice(&live.0.read("next.pem")).expect("PEM");
            assert_eq!(presented(&broker, &anonymous).await, next, "renewal {renewal}");
            while count.load(Ordering::Relaxed) < before + 100 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                assert!(tasks.try_join_next().is_none(), "a client has failed");
            }
        }
        // The connections that have only looked at the certificate end.
        while broker.stats().connections > 8 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(broker.stats().connections, 8);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_certificate_is_disconnected_and_refused() {
    let Some(live) = Live::new("revoked_certificate_is_disconnected_and_refused") else { return };
    live.0.make_client("other", "/CN=other", "", "ca");
    timely(async {
        let by_name = CertificateUsers::new(CertificateName::CommonName);
        let mut users = Users::default();
        users.set("ann", "secret").expect("a user");
        // A certificate can be the user, or be required in addition to a password or to nothing.
        for kind in 0..3 {
            live.install("none.crl", "live.crl");
            let tls = ServerTls::load(live.mutual_files()).expect("valid files");
            assert_eq!(tls.warnings(), []);
            let reloader = reloader(&tls);
            let options = match kind {
                0 => secured(tls).certificate_users(by_name.clone()),
                1 => secured(tls).users(users.clone()).any_client_id(),
                _ => secured(tls),
            };
            let (broker, _service) = start(options).await;
            let mut stores = Vec::new();
            for name in ["client", "other"] {
                let options = live.client_options(&broker, name, name);
                let options =
                    if kind == 1 { options.credentials("ann", "secret") } else { options };
                let store = statestore_client::connect(options).expect("a client id");
                store.wait_connected().await.expect("connect");
                let mut status = store.status();
                assert_eq!(status.current(), Status::Online);
                stores.push((store, status));
            }
            assert_eq!(reloader.reload_all(Some(&broker)).await.disconnected, 0);
            live.0.make_revocation_list("one", "ca", &["client"], None);
            live.install("one.crl", "live.crl");
            assert_eq!(broker.recheck(), 0, "not read yet");
            let reloaded = reloader.reload_all(Some(&broker)).await;
            assert!(reloaded.reports[0].result.is_ok(), "{reloaded:?}");
            assert_eq!(reloaded.disconnected, 1, "kind {kind}");
            let offline = stores[0].1.changed().await;
            assert!(matches!(offline, Some(Status::Offline { .. } | Status::Failed(_))));
            assert_eq!(stores[1].1.current(), Status::Online);
            if kind != 1 {
                assert!(connect(&broker, &live.connector(Some("client"))).await.is_none());
                assert!(connect(&broker, &live.connector(Some("other"))).await.is_some());
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_client_cannot_resume_a_session() {
    let Some(live) = Live::new("revoked_client_cannot_resume_a_session") else { return };
    timely(async {
        let tls = ServerTls::load(live.mutual_files()).expect("valid files");
        let (broker, _service) = start(secured(tls.clone())).await;
        let client = live.connector(Some("client"));
        assert!(connect(&broker, &client).await.is_some());
        let resumed = connect(&broker, &client).await.expect("a connection");
        let kind = resumed.get_ref().1.handshake_kind();
        assert_eq!(kind, Some(HandshakeKind::Resumed), "sessions can be resumed");
        drop(resumed);
        live.0.make_revocation_list("one", "ca", &["client"], None);
        live.install("one.crl", "live.crl");
        tls.reload().expect("valid files");
        for _ in 0..3 {
            assert!(connect(&broker, &client).await.is_none());
        }
        // A reload cannot withdraw a revocation.
        live.0.make_authority("foreign");
        live.0.make_revocation_list("foreign", "foreign", &[], None);
        let dates = Some(("20200101000000Z", "20200102000000Z"));
        live.0.make_revocation_list("old", "ca", &[], dates);
        live.0.make_partial_revocation_list("partial", "ca");
        for list in ["foreign.crl", "old.crl", "partial.crl"] {
            live.install(list, "live.crl");
            let error = tls.reload().expect_err(list);
            let kind = error.kind();
            let is_it = matches!(kind, LoadErrorKind::Tls(TlsError::RevocationListWithdrawn));
            assert!(is_it, "{list}: {error}");
            assert!(connect(&broker, &client).await.is_none(), "{list}");
        }
        // Nor can another CA with the same name.
        let namesake = Live::new("namesake_of_a_client_ca").expect("as before");
        fs::copy(namesake.path("none.crl"), live.path("namesake.crl")).expect("copy file");
        live.install("namesake.crl", "live.crl");
        let error = tls.reload().expect_err("it is not signed by the client CA");
        let kind = error.kind();
        let is_it =
            matches!(kind, LoadErrorKind::Tls(TlsError::RevocationListSignature { file: 0 }));
        assert!(is_it, "{error}");
        // Nor can an older list before a newer one.
        live.write("both.crl", &[live.0.read("old.crl"), live.0.read("one.crl")].concat());
        live.install("both.crl", "live.crl");
        let error = tls.reload().expect_err("two lists of one CA");
        let kind = error.kind();
        let is_it = matches!(kind, LoadErrorKind::Tls(TlsError::RevocationListTwice { file: 0 }));
        assert!(is_it, "{error}");
        // A list that is not older may omit the certificate.
        live.0.make_revocation_list("none", "ca", &[], None);
        live.install("none.crl", "live.crl");
        tls.reload().expect("valid files");
        assert!(connect(&broker, &client).await.is_some(), "no longer revoked");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_removed_ca_are_disconnected() {
    let Some(live) = Live::new("clients_of_a_removed_ca_are_disconnected") else { return };
    live.0.make_authority("next-ca");
    live.0.make_client("next", "/CN=next", "", "next-ca");
    let both = [live.0.read("ca.pem"), live.0.read("next-ca.pem")].concat();
    timely(async {
        let tls = ServerTls::load(live.files().client_ca(live.path("live-ca.pem")));
        let tls = tls.expect("valid files");
        let reloader = reloader(&tls);
        let users = CertificateUsers::new(CertificateName::CommonName);
        let (broker, _service) = start(secured(tls).certificate_users(users)).await;
        let _old = connect(&broker, &live.connector(Some("client"))).await.expect("connect");
        assert!(connect(&broker, &live.connector(Some("next"))).await.is_none());
        live.write("live-ca.pem", &both);
        assert_eq!(reloader.reload_all(Some(&broker)).await.disconnected, 0);
        let _new = connect(&broker, &live.connector(Some("next"))).await.expect("connect");
        live.install("next-ca.pem", "live-ca.pem");
        assert_eq!(reloader.reload_all(Some(&broker)).await.disconnected, 1);
        assert!(connect(&broker, &live.connector(Some("client"))).await.is_none());
        assert!(connect(&broker, &live.connector(Some("next"))).await.is_some());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_files_change_nothing() {
    let Some(live) = Live::new("invalid_files_change_nothing") else { return };
    live.0.make_dated("expired", "20200101000000Z", "20200102000000Z");
    live.0.make_dated("early", "20900101000000Z", "20910101000000Z");
    live.0.make_dated("reversed", "20910101000000Z", "20900101000000Z");
    live.0.encrypt_key("broker", "-v2 aes-256-cbc");
    let half = |name: &str| {
        let whole = live.0.read(name);
        whole[..whole.len() / 2].to_vec()
    };
    let read = |name: &str| live.0.read(name);
    type Check = fn(&TlsError) -> bool;
    let cases: Vec<(&str, &str, Vec<u8>, Check)> = vec![
        ("half chain", "live.pem", half("broker.pem"), |e| matches!(e, TlsError::Chain(_))),
        ("half key", "live.key", half("broker.key"), |e| matches!(e, TlsError::Key(_))),
        ("half CA", "live-ca.pem", half("ca.pem"), |e| matches!(e, TlsError::AuthorityPem(_))),
        ("half list", "live.crl", half("none.crl"), |e| {
            matches!(e, TlsError::RevocationListPem { .. })
        }),
        ("empty chain", "live.pem", vec![], |e| matches!(e, TlsError::Chain(_))),
        ("empty CA", "live-ca.pem", vec![], |e| matches!(e, TlsError::AuthorityPem(_))),
        ("empty list", "live.crl", vec![], |e| matches!(e, TlsError::RevocationListPem { .. })),
        ("key as chain", "live.pem", read("broker.key"), |e| matches!(e, TlsError::ChainIsKey)),
        ("chain as key", "live.key", read("broker.pem"), |e| {
            matches!(e, TlsError::KeyIsCertificate)
        }),
        ("another key", "live.key", read("client.key"), |e| matches!(e, TlsError::KeyMismatch)),
        ("another chain", "live.pem", read("client.pem"), |e| matches!(e, TlsError::KeyMismatch)),
        ("encrypted", "live.key", read("broker.encrypted.key"), |e| {
            matches!(e, TlsError::EncryptedKey)
        }),
        ("expired", "live.pem", read("expired.pem"), |e| matches!(e, TlsError::Expired(_))),
        ("early", "live.pem", read("early.pem"), |e| matches!(e, TlsError::NotYetValid(_))),
        ("reversed", "live.pem", read("reversed.pem"), |e| {
            matches!(e, TlsError::InvalidValidityPeriod)
        }),
        ("CA as list", "live.crl", read("ca.pem"), |e| {
            matches!(e, TlsError::RevocationListPem { .. })
        }),
    ];
    timely(async {
        let tls = ServerTls::load(live.mutual_files()).expect("valid files");
        let not_after = tls.not_after().expect("a certificate");
        let reloader = reloader(&tls);
        let loaded = reloader.last_reloads();
        let (broker, _service) = start(secured(tls.clone())).await;
        let client = live.connector(Some("client"));
        let _connected = connect(&broker, &client).await.expect("connect");
        let before = presented(&broker, &client).await;
        for (case, file, contents, is_expected) in cases {
            let good = live.0.read(file);
            live.write(file, &contents);
            let reloaded = reloader.reload_all(Some(&broker)).await;
            let error = reloaded.reports[0].result.as_ref().expect_err(case);
            let LoadErrorKind::Tls(kind) = error.kind() else { panic!("{case}: {error}") };
            let named = if matches!(kind, TlsError::KeyMismatch) { "live.key" } else { file };
            assert_eq!(error.path(), live.path(named), "{case}: {error}");
            assert!(is_expected(kind), "{case}: {error}");
            assert!(reloaded.reports[0].to_string().ends_with("; nothing has changed"));
            assert_eq!((reloaded.disconnected, tls.not_after()), (0, Some(not_after)), "{case}");
            assert_eq!(presented(&broker, &client).await, before, "{case}");
            assert_eq!(reloader.last_reloads(), loaded, "{case}");
            live.write(file, &good);
        }
        fs::remove_file(live.path("live.key")).expect("remove file");
        let missing = tls.reload().expect_err("no key");
        assert!(matches!(missing.kind(), LoadErrorKind::Read(_)), "{missing}");
        live.install("broker.key", "live.key");
        live.write("live.crl", &vec![b'x'; (8 << 20) + 1]);
        assert!(tls.reload().expect_err("too large").to_string().contains("8388608 bytes"));
        live.install("none.crl", "live.crl");
        assert!(reloader.reload_all(None).await.reports[0].result.is_ok());
        assert!(connect(&broker, &client).await.is_some());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn usable_but_unintended_files_cause_warnings() {
    let Some(live) = Live::new("usable_but_unintended_files_cause_warnings") else { return };
    // As `openssl req -x509` makes it: a CA certificate without a host name.
    let own = ServerTls::load(TlsFiles::new(live.path("ca.pem"), live.path("ca.key")));
    let expected = [TlsWarning::CaAsServerCertificate, TlsWarning::NoHostName];
    assert_eq!(own.expect("valid files").warnings(), expected);
    live.0.make_authority("second");
    let both = [live.0.read("ca.pem"), live.0.read("second.pem")].concat();
    live.write("live-ca.pem", &both);
    let dates = Some(("20200101000000Z", "20200102000000Z"));
    live.0.make_revocation_list("old", "ca", &[], dates);
    live.install("old.crl", "live.crl");
    let tls = ServerTls::load(live.mutual_files()).expect("valid files");
    let warnings = tls.warnings();
    assert!(
        matches!(
            warnings[..],
            [TlsWarning::RevocationListExpired(_), TlsWarning::NoRevocationList(1)]
        ),
        "{warnings:?}"
    );
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let key = live.path("live.key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("set mode");
        let tls = ServerTls::load(live.files()).expect("valid files");
        assert_eq!(tls.warnings(), [TlsWarning::KeyReadableByAll(key)]);
    }
    timely(async {
        // An expired or missing list rejects clients only if lists are required.
        live.0.make_client("foreign", "/CN=foreign", "", "second");
        for (policy, list, name, expected) in [
            (RevocationPolicy::IfListed, "old.crl", "client", true),
            (RevocationPolicy::IfListed, "old.crl", "foreign", true),
            (RevocationPolicy::Required, "old.crl", "client", false),
            (RevocationPolicy::Required, "none.crl", "client", true),
            (RevocationPolicy::Required, "none.crl", "foreign", false),
        ] {
            live.install(list, "live.crl");
            let tls = ServerTls::load(live.mutual_files().revocation_policy(policy));
            let (broker, _service) = start(secured(tls.expect("valid files"))).await;
            let found = connect(&broker, &live.connector(Some(name))).await.is_some();
            assert_eq!(found, expected, "{policy:?} {list} {name}");
        }
    })
    .await;
}
