//! A complete server from a configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use statestore_client::{Options, StateStore, Tls, connect};
use statestore_server::config::Config;
use statestore_server::{Event, Listener, Server, ServerError, ServerTls, TlsFiles, Users};
use statestore_testkit::credentials::Certificates;
use statestore_testkit::process::{Port, timely, wait_free};
use statestore_testkit::wire::packets::Reason;
use statestore_testkit::wire::raw::{Hello, Raw, unix_ms};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::renewal::Live;

/// A directory that is removed with its test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let name = format!("statestore-server-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The configuration in a page of the documentation, with the files of a test.
fn configuration_of_page(page: &str, files: &[(&str, PathBuf)]) -> Config {
    let (_, text) = page.split_once("```toml\n").unwrap();
    let (text, _) = text.split_once("```").unwrap();
    let text = files.iter().fold(text.to_owned(), |text, (name, path)| {
        assert!(text.contains(name), "{name}");
        text.replace(&format!("\"{name}\""), &quoted(path))
    });
    let ports = ["0.0.0.0:8883"];
    let text = ports.iter().fold(text, |text, port| text.replace(port, "127.0.0.1:0"));
    Config::from_toml(&text).unwrap()
}

#[tokio::test]
async fn configuration_of_the_tls_page_starts() {
    let Some(made) = Certificates::make("tls_page") else { return };
    let files = [
        ("/etc/statestore/server.pem", made.path("broker.pem")),
        ("/etc/statestore/server.key", made.path("broker.key")),
        ("/etc/statestore/clients-ca.pem", made.path("ca.pem")),
    ];
    let config = configuration_of_page(include_str!("../../../../docs/tls.md"), &files);
    let server = Server::start(config).await.unwrap();
    server.wait_ready().await.unwrap();
    assert!(server.broker().unwrap().local_addrs().len() == 1);
    server.stop().await.unwrap();
}

fn quoted(path: &Path) -> String {
    format!("{:?}", path.to_str().unwrap())
}

/// A server with TLS on one listener, plain MQTT on another, a policy, a data directory and
/// metrics.
fn configuration(directory: &Path, made: &Certificates) -> Config {
    let policy = directory.join("policy.yaml");
    let text = "rules: [{principals: {clientIds: [lamp]}, brokerResources: [{method: Connect}, \
                {method: Publish, topics: [\"#\"]}, {method: Subscribe, topics: [\"#\"]}], \
                stateStoreResources: [{method: ReadWrite, keyType: pattern, keys: [\"*\"]}]}]";
    fs::write(&policy, text).unwrap();
    let text = format!(
        "[listen]\nlisten = [\"127.0.0.1:0\"]\nlisten-tls = [\"127.0.0.1:0\"]\n\
         [tls]\nlisten-tls-cert = {}\nlisten-tls-key = {}\n\
         [policy]\npolicy = {}\n[storage]\ndata-dir = {}\ndurable = \"all\"\n\
         [http]\nmetrics-listen = \"127.0.0.1:0\"\n",
        quoted(&made.path("broker.pem")),
        quoted(&made.path("broker.key")),
        quoted(&policy),
        quoted(&directory.join("data")),
    );
    Config::from_toml(&text).unwrap()
}

/// `dev` tries several logins with one client id.
#[tokio::test(flavor = "multi_thread")]
async fn session_of_another_login_continues_only_if_logins_share_sessions() {
    let directory = Directory::new("one_user");
    let mut users = Users::default();
    for name in ["ann", "bob"] {
        users.set(name, "secret").unwrap();
    }
    let file = directory.0.join("users");
    fs::write(&file, users.to_string()).unwrap();
    let text = format!(
        "[listen]\nlisten = [\"127.0.0.1:0\"]\n[login]\npassword-file = {}\n\
         no-client-id-binding = true\n",
        quoted(&file)
    );
    let config = Config::from_toml(&text).unwrap();
    for shares_sessions in [false, true] {
        let builder = Server::builder(config.clone());
        let builder = if shares_sessions { builder.share_sessions() } else { builder };
        let server = builder.start().await.unwrap();
        let port = server.broker().unwrap().local_addr().port();
        let hello =
            |user| Hello { session: Some(60), login: Some((user, "secret")), ..Hello::default() };
        Raw::open(port, "sample", hello("ann")).subscribe("t");
        let bob = Raw::try_open(port, "sample", hello("bob"));
        match shares_sessions {
            true => assert!(bob.expect("one user").welcome.session_present),
            false => assert_eq!(bob.err(), Some(Some(Reason::CLIENT_IDENTIFIER_NOT_VALID))),
        }
    }
}

fn client(server: &Server, client_id: &str, made: &Certificates) -> StateStore {
    let address = server.broker().unwrap().local_addrs()[1];
    let options = Options::new(client_id, "localhost", address.port());
    connect(options.tls(Tls::default().ca_file(made.path("ca.pem")))).unwrap()
}

async fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

#[tokio::test]
async fn complete_server_runs_from_a_configuration_and_keeps_its_keys() {
    let Some(made) = Certificates::make("complete_server") else { return };
    let directory = Directory::new("complete");
    let config = configuration(&directory.0, &made);
    let events = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&events);
    let observe = move |event: &Event| observed.lock().unwrap().push(event.to_string());
    let server = Server::builder(config.clone()).on_event(observe).start().await.unwrap();
    server.wait_ready().await.unwrap();

    let lamp = client(&server, "lamp", &made);
    lamp.set("k", "v").await.unwrap();
    // The policy names another client.
    let other = client(&server, "other", &made);
    assert!(other.get("k").await.is_err());

    let metrics = events.lock().unwrap().iter().find_map(|event| {
        Some(event.strip_prefix("metrics on http://")?.strip_suffix("/metrics")?.to_owned())
    });
    let metrics = metrics.unwrap();
    assert!(page(&metrics, "/readyz").await.contains("200 OK"));
    let text = page(&metrics, "/metrics").await;
    assert!(text.contains("\nstatestore_keys 1\n"), "{text}");
    assert!(text.contains("statestore_file_loaded_timestamp_seconds{file=\"policy\"} "), "{text}");
    assert!(text.contains("\nstatestore_certificate_expiry_timestamp_seconds "), "{text}");

    let reloaded = server.reload().await;
    assert_eq!(reloaded.reports.len(), 2, "TLS and policy: {reloaded:?}");
    assert!(reloaded.reports.iter().all(|report| report.result.is_ok()), "{reloaded:?}");
    assert_eq!(reloaded.disconnected, 0);

    drop((lamp, other));
    server.stop().await.unwrap();
    // The metrics end with the server.
    wait_free(&metrics);
    let ready = events.lock().unwrap().iter().find(|event| event.starts_with("ready on ")).cloned();
    let ready = ready.unwrap();
    assert!(ready.contains("mqtt://127.0.0.1:") && ready.contains("mqtts://127.0.0.1:"), "{ready}");
    assert!(ready.contains("what the policy allows") && ready.contains("0 keys"), "{ready}");

    let server = Server::start(config).await.unwrap();
    server.wait_ready().await.unwrap();
    let lamp = client(&server, "lamp", &made);
    assert_eq!(lamp.get("k").await.unwrap().unwrap().value, "v");
    server.stop().await.unwrap();
}

/// A program adds a listener with its own TLS and login. Its files are reloaded.
#[tokio::test]
async fn added_listeners_are_opened_instead_of_the_default() {
    let Some(live) = Live::new("added_listeners") else { return };
    let made = &live.0;
    let files = TlsFiles::new(live.path("live.pem"), live.path("live.key"));
    let tls = ServerTls::load(files).unwrap();
    let local = ([127, 0, 0, 1], 0);
    let events = Arc::new(Mutex::new(Vec::new()));
    let observed = Arc::clone(&events);
    let server = Server::builder(Config::default())
        .listener(Listener::new(local).anonymous())
        .listener(Listener::new(local).tls(tls.clone()))
        .listener(Listener::new(local).websocket(["*"]).tls(tls))
        .on_event(move |event| observed.lock().unwrap().push(event.to_string()))
        .start()
        .await
        .unwrap();
    server.wait_ready().await.unwrap();
    let ports: Vec<u16> =
        server.broker().unwrap().local_addrs().iter().map(|address| address.port()).collect();
    let urls = format!(
        "ready on mqtt://127.0.0.1:{} and mqtts://127.0.0.1:{} and wss://127.0.0.1:{}",
        ports[0], ports[1], ports[2]
    );
    assert!(events.lock().unwrap().iter().any(|event| event.starts_with(&urls)), "{urls}");
    client(&server, "c", made).set("k", "v").await.unwrap();
    let reloaded = server.reload().await;
    assert_eq!(reloaded.reports.len(), 1, "the TLS of two listeners, once: {reloaded:?}");
    server.stop().await.unwrap();

    let external = Config::from_toml("[broker]\nbroker = [\"mqtt://127.0.0.1:1\"]\n").unwrap();
    let refused = Server::builder(external).listener(local).start().await;
    let error = refused.expect_err("an external broker");
    assert!(matches!(error, ServerError::Config(error) if error.key() == Some("broker")));
    // Another machine could connect without a login.
    let public = Server::builder(Config::default()).listener(([0, 0, 0, 0], 0)).start().await;
    let error = public.expect_err("every machine could connect");
    assert!(matches!(error, ServerError::Config(error) if error.key() == Some("listen")));
}

#[tokio::test]
async fn failed_start_names_the_cause_and_leaves_nothing_running() {
    let start = |text: &str| Server::start(Config::from_toml(text).unwrap());
    let open = start("[listen]\nlisten = [\"0.0.0.0:0\"]\n").await;
    assert!(matches!(open, Err(ServerError::Config(error)) if error.key() == Some("listen")));
    let missing = start("[login]\npassword-file = \"/no/such/file\"\n").await;
    assert!(matches!(missing, Err(ServerError::File(error)) if error.path() == "/no/such/file"));

    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().port();
    let port = Port::free();
    let first = port.number();
    let text = format!("[listen]\nlisten = [\"127.0.0.1:{first}\", \"127.0.0.1:{taken}\"]\n");
    assert!(matches!(start(&text).await, Err(ServerError::Bind(_))));
    wait_free(("127.0.0.1", first));
    assert!(std::net::TcpListener::bind(("127.0.0.1", first)).is_ok(), "the first is free again");
}

#[tokio::test]
async fn server_with_an_external_broker_retries_until_it_is_reached() {
    let port = Port::free();
    let text = format!("[broker]\nbroker = [\"mqtt://127.0.0.1:{}\"]\n", port.number());
    let server = Server::start(Config::from_toml(&text).unwrap()).await.unwrap();
    assert!(server.broker().is_none());
    let soon = Duration::from_millis(50);
    assert!(tokio::time::timeout(soon, server.wait_ready()).await.is_err(), "it is not connected");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn server_warns_before_its_certificate_expires_and_is_not_ready_afterwards() {
    let Some(live) = Live::new("expiry") else { return };
    let now = || SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms());
    let end = now() + Duration::from_secs(12);
    let to = humantime::format_rfc3339_seconds(end).to_string();
    let to: String = to.chars().filter(char::is_ascii_alphanumeric).filter(|c| *c != 'T').collect();
    live.0.make_dated("short", "20200101000000Z", &to);
    live.install("short.pem", "live.pem");
    let path = |name: &str| format!("{:?}", live.path(name).to_str().unwrap());
    let config = Config::from_toml(&format!(
        "[listen]\nlisten-tls = [\"127.0.0.1:0\"]\n\
         [tls]\nlisten-tls-cert = {}\nlisten-tls-key = {}\n\
         [http]\nmetrics-listen = \"127.0.0.1:0\"\n",
        path("live.pem"),
        path("live.key"),
    ));
    let (events, mut received) = tokio::sync::mpsc::unbounded_channel();
    let observe = move |event: &Event| _ = events.send(event.to_string());
    let server = Server::builder(config.unwrap()).on_event(observe).start().await.unwrap();
    server.wait_ready().await.unwrap();
    let (mut metrics, mut warning) = (None, None);
    while metrics.is_none() || warning.is_none() {
        let event = timely(received.recv()).await.unwrap();
        let address = event.strip_prefix("metrics on http://");
        if let Some(address) = address.and_then(|address| address.strip_suffix("/metrics")) {
            metrics = Some(address.to_owned());
        } else if event.contains("certificate expires on") {
            warning = Some(event);
        }
    }
    assert!(warning.unwrap().contains("in less than a day"));
    let metrics = metrics.unwrap();
    let ready = async || page(&metrics, "/readyz").await;
    assert!(ready().await.contains("200 OK"));
    let unready = loop {
        let page = ready().await;
        if !page.contains("200 OK") {
            break page;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(now() >= end - Duration::from_secs(1), "{unready}");
    assert!(unready.contains("503") && unready.contains("certificate expired on"), "{unready}");

    live.install("broker.pem", "live.pem");
    live.install("broker.key", "live.key");
    assert!(server.reload().await.reports.iter().all(|report| report.result.is_ok()));
    assert!(ready().await.contains("200 OK"), "a new certificate is in use");
    server.stop().await.unwrap();
}

/// The logins of a listener replace those of the configuration.
#[tokio::test]
async fn unencrypted_logins_are_reported_for_each_listener() {
    use statestore_server::{ServiceAccountKeys, ServiceAccounts};
    use statestore_testkit::credentials::tokens::{AUDIENCE, ISSUER, Issuer, key_set};

    let directory = Directory::new("unencrypted-logins");
    let users = directory.0.join("users");
    fs::write(&users, "").unwrap();
    let keys = ServiceAccountKeys::parse(&key_set(&[&Issuer::p256("k")])).unwrap();
    let accounts = ServiceAccounts::new(keys, ISSUER, [AUDIENCE]);
    let public = || Listener::new(([0, 0, 0, 0], 0));
    let local = || Listener::new(([127, 0, 0, 1], 0));
    for (listener, with_users, expected) in [
        (public().service_accounts(accounts.clone()), false, 1),
        (local().service_accounts(accounts), false, 0),
        (public().anonymous(), true, 0),
        (public(), true, 1),
        (public(), false, 0),
    ] {
        let mut config = Config::default();
        config.listen.allow_anonymous = true;
        config.login.password_file = with_users.then(|| users.clone());
        let events = Arc::new(Mutex::new(0));
        let observed = events.clone();
        let observe = move |event: &Event| {
            *observed.lock().unwrap() +=
                usize::from(matches!(event, Event::LoginWithoutTls { .. }));
        };
        let server = Server::builder(config).listener(listener.clone()).on_event(observe);
        let server = server.start().await.unwrap();
        assert_eq!(*events.lock().unwrap(), expected, "{listener:?} {with_users}");
        server.stop().await.unwrap();
    }
}
