//! etcd over TLS, with certificates on both ends.

use statestore_etcd::{EtcdJournal, Options, Tls};
use statestore_testkit::credentials::Certificates;

use crate::support::{Server, commit, free_port, load, new_store, set};

#[tokio::test]
async fn both_ends_show_certificates() {
    let Some(made) = Certificates::make("both_ends_show_certificates") else { return };
    let port = free_port();
    let url = format!("https://localhost:{port}");
    let path = |name| made.path(name).to_str().unwrap().to_owned();
    let (cert, key, ca) = (path("broker.pem"), path("broker.key"), path("ca.pem"));
    let files = ["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &ca];
    let alone = ["--name", "one", "--listen-peer-urls", "http://127.0.0.1:0", "--client-cert-auth"];
    // It listens at addresses and not at names.
    let listen = format!("https://127.0.0.1:{port}");
    let Some(_server) = Server::spawn(port, &listen, &[&alone[..], &files[..]].concat()) else {
        return;
    };
    let options = |tls| Options::new([&*url]).tls(tls);
    let tls = || Tls::new(made.path("ca.pem"));
    let shown = || tls().identity(made.path("client.pem"), made.path("client.key"));
    let mut tries = 0;
    let mut journal = loop {
        let mut journal = EtcdJournal::new(options(shown())).unwrap();
        match load(&mut journal).await {
            Ok(_) => break journal,
            Err(error) => assert!(tries < 100, "{error}"),
        }
        tries += 1;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    };
    let mut store = new_store();
    commit(&mut journal, set(&mut store, 1, b"a", b"1")).await.unwrap();
    journal.leadership().resign().await.unwrap();

    made.make_authority("other");
    let wrong = [
        // What comes first, the end or the reason, is up to the network.
        (tls(), "connection"),
        (Tls::new(made.path("other.pem")), "UnknownIssuer"),
        (shown().server_name("elsewhere"), "not valid for name"),
    ];
    for (tls, why) in wrong {
        let mut journal = EtcdJournal::new(options(tls)).unwrap();
        let error = load(&mut journal).await.unwrap_err().to_string();
        assert!(error.contains("no etcd answers") && error.contains(why), "{error}");
    }
    let missing = EtcdJournal::new(options(Tls::new("/nowhere/ca.pem")));
    let error = load(&mut missing.unwrap()).await.unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/ca.pem: "), "{error}");
}
