//! etcd over TLS, with server and client certificates.

use statestore_etcd::{EtcdJournal, Options, Tls};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::Port;

use crate::support::{Server, commit, load, new_store, set};

#[tokio::test]
async fn wrong_certificates_are_reported_and_right_ones_accepted() {
    let Some(certificates) = Certificates::make("etcd_certificates") else { return };
    let port = Port::free();
    let url = format!("https://localhost:{}", port.number());
    let path = |name| certificates.path(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (path("broker.pem"), path("broker.key"), path("ca.pem"));
    let files = ["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &ca];
    let alone = ["--name", "one", "--listen-peer-urls", "http://127.0.0.1:0", "--client-cert-auth"];
    // etcd listens at addresses only, not at names.
    let listen = format!("https://127.0.0.1:{}", port.number());
    let args = [&alone[..], &files[..]].concat();
    let Some(_server) = Server::spawn(vec![port], &listen, &args) else { return };
    let options = |tls| Options::new([&*url]).tls(tls);
    let tls = || Tls::new(certificates.path("ca.pem"));
    let (client, client_key) = (certificates.path("client.pem"), certificates.path("client.key"));
    let with_client = || tls().identity(&client, &client_key);
    let mut attempts = 0;
    let mut journal = loop {
        let mut journal = EtcdJournal::new(options(with_client())).unwrap();
        match load(&mut journal).await {
            Ok(_) => break journal,
            Err(error) => assert!(attempts < 100, "{error}"),
        }
        attempts += 1;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let mut store = new_store();
    commit(&mut journal, set(&mut store, 1, b"a", b"1")).await.unwrap();
    journal.leadership().resign().await.unwrap();

    certificates.make_authority("other");
    let wrong = [
        // Without a client certificate. The connection can end before its reason is received.
        (tls(), "connection"),
        (Tls::new(certificates.path("other.pem")), "UnknownIssuer"),
        (with_client().server_name("elsewhere"), "not valid for name"),
    ];
    for (tls, reason) in wrong {
        let mut journal = EtcdJournal::new(options(tls)).unwrap();
        let error = load(&mut journal).await.unwrap_err().to_string();
        assert!(error.contains("cannot reach etcd") && error.contains(reason), "{error}");
    }
    let missing = EtcdJournal::new(options(Tls::new("/nowhere/ca.pem")));
    let error = load(&mut missing.unwrap()).await.unwrap_err().to_string();
    assert!(error.starts_with("cannot read /nowhere/ca.pem: "), "{error}");
}
