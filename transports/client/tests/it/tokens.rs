//! The login with a service account token, in simulated time.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use statestore_client::{CloseReason, Error, LinkErrorKind, Options, StateStore, Status, connect};
use statestore_server::{Broker, ServiceAccountKeys, ServiceAccounts, StoreService, serve};
use statestore_testkit::credentials::tokens::{AUDIENCE, Claims, ISSUER, Issuer, key_set};
use statestore_testkit::process::Log;
use tokio::time::{Instant, sleep, timeout};

/// Validity of a short token. The server tolerates ten more seconds.
const SHORT: Duration = Duration::from_secs(50);

/// Time after which a connection with a short token has ended.
const EXPIRED: Duration = Duration::from_secs(90);

/// A projected volume, with the links that Kubernetes makes: `token` → `..data/token`, and `..data`
/// → a directory, which is replaced as a whole.
struct Volume {
    folder: PathBuf,
    generation: u32,
}

impl Volume {
    fn new(test: &str) -> Self {
        let name = format!("statestore-volume-{}-{test}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("a directory");
        symlink("..data/token", folder.join("token")).expect("a link");
        Self { folder, generation: 0 }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("token")
    }

    fn put(&mut self, token: &str) {
        self.generation += 1;
        let name = format!("..{}", self.generation);
        let folder = self.folder.join(&name);
        fs::create_dir(&folder).expect("a directory");
        fs::write(folder.join("token"), token).expect("a file");
        let link = self.folder.join("..data_tmp");
        symlink(name, &link).expect("a link");
        fs::rename(link, self.folder.join("..data")).expect("renamed");
    }

    fn remove(&self) {
        fs::remove_file(self.folder.join("..data")).expect("a link");
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A server that accepts the tokens of an issuer, and a client that reads its token from a volume.
struct Setup {
    issuer: Issuer,
    volume: Volume,
    broker: Broker,
    _service: StoreService,
}

impl Setup {
    async fn new(test: &str) -> Self {
        let issuer = Issuer::p256("k");
        let keys = ServiceAccountKeys::parse(&key_set(&[&issuer])).expect("keys");
        let accounts = ServiceAccounts::new(keys, ISSUER, [AUDIENCE]);
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = statestore_server::Options::new(loopback).service_accounts(accounts);
        let (broker, service) = serve(options).await.expect("a free port");
        Self { issuer, volume: Volume::new(test), broker, _service: service }
    }

    /// A token that is valid for an hour.
    fn token(&self) -> String {
        self.issuer.token(&Claims::of("home", "lamp"))
    }

    fn short_token(&self) -> String {
        let claims = Claims::of("home", "lamp");
        self.issuer.token(&Claims { expires: claims.begins + SHORT.as_secs(), ..claims })
    }

    fn client(&self) -> StateStore {
        let address = self.broker.local_addr();
        let options = Options::new("home.lamp", address.ip().to_string(), address.port());
        connect(options.service_account_token(self.volume.file())).expect("a client id")
    }

    /// A connected client.
    async fn connected(&self) -> StateStore {
        let store = self.client();
        store.wait_connected().await.expect("accepted");
        store
    }
}

/// Checks that a connection does not end for a while.
async fn stays_connected(store: &StateStore, time: Duration) {
    let mut status = store.status();
    assert_eq!(status.current(), Status::Online);
    let change = timeout(time, status.changed()).await;
    assert!(change.is_err(), "{change:?}");
    assert_eq!(store.get("k").await, Ok(None));
}

/// Waits until the broker ends the connection because of its token.
async fn wait_rejected(store: &StateStore) {
    let mut status = store.status();
    assert_eq!(status.current(), Status::Online);
    let status = timeout(EXPIRED, status.changed()).await.expect("it ends");
    let status = status.expect("the handle continues");
    let error = status.link_error().expect("a reason");
    assert_eq!(error.kind(), LinkErrorKind::Disconnected, "{error}");
    assert!(error.to_string().contains("not authorized"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn connection_outlives_its_first_token_if_the_file_is_renewed() {
    let mut setup = Setup::new("renewed").await;
    setup.volume.put(&setup.short_token());
    let store = setup.connected().await;
    stays_connected(&store, Duration::from_secs(30)).await;
    setup.volume.put(&setup.token());
    stays_connected(&store, EXPIRED).await;
}

#[tokio::test(start_paused = true)]
async fn connection_ends_with_its_token_if_the_file_is_not_renewed() {
    let mut setup = Setup::new("expired").await;
    setup.volume.put(&setup.short_token());
    let store = setup.connected().await;
    let since = Instant::now();
    wait_rejected(&store).await;
    let expected = SHORT.as_secs() + 5..SHORT.as_secs() + 15;
    assert!(expected.contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn rejected_renewal_is_followed_by_a_connection_with_the_next_valid_token() {
    let mut setup = Setup::new("rejected").await;
    setup.volume.put(&setup.token());
    let store = setup.connected().await;
    let foreign = Issuer::p256("k").token(&Claims::of("home", "lamp"));
    setup.volume.put(&foreign);
    wait_rejected(&store).await;
    sleep(Duration::from_secs(60)).await;
    let mut status = store.status();
    let error = status.current().link_error().cloned().expect("a reason");
    assert_eq!(error.kind(), LinkErrorKind::NotAuthorized, "the connection is retried: {error}");
    setup.volume.put(&setup.token());
    store.wait_connected().await.expect("accepted");
    stays_connected(&store, EXPIRED).await;
}

#[tokio::test(start_paused = true)]
async fn token_that_is_rejected_at_the_first_connection_ends_the_handle() {
    let mut setup = Setup::new("first").await;
    setup.volume.put(&Issuer::p256("k").token(&Claims::of("home", "lamp")));
    let Err(Error::Closed(closed)) = setup.client().wait_connected().await else {
        panic!("the token is rejected");
    };
    let Some(CloseReason::NotAuthorized(_)) = closed.reason else { panic!("{closed}") };
}

#[tokio::test(start_paused = true)]
async fn missing_or_empty_file_leaves_the_login_and_is_logged_once_without_the_token() {
    let mut setup = Setup::new("missing").await;
    let first = setup.short_token();
    setup.volume.put(&first);
    let store = setup.connected().await;
    let log = Log::listen();
    setup.volume.remove();
    stays_connected(&store, Duration::from_secs(25)).await;
    setup.volume.put("\n");
    stays_connected(&store, Duration::from_secs(15)).await;
    let warnings = log.with(&["WARN", "cannot renew the login"]);
    let [warning] = &*warnings else { panic!("{warnings:?}") };
    assert!(warning.contains(&*setup.volume.file().to_string_lossy()), "{warning}");
    setup.volume.put(&setup.token());
    stays_connected(&store, EXPIRED).await;
    let signature = first.rsplit('.').next().expect("a signature");
    assert_eq!(log.with(&[signature]), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn client_waits_for_a_file_that_does_not_exist_yet() {
    let mut setup = Setup::new("late").await;
    let store = setup.client();
    let mut status = store.status();
    let offline = status.changed().await.expect("the handle continues");
    let error = offline.link_error().expect("a reason").to_string();
    assert!(error.contains("cannot read the token"), "{error}");
    setup.volume.put(&setup.token());
    store.wait_connected().await.expect("accepted");
}
